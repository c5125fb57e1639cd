"""`[destinations.NAME]` with `type = "parquet"`, and the store that it asks for."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, SecretStr, model_validator

from apply_spark.destinations.parquet_folder import LogFolder
from apply_spark.destinations.parquet_store import LogStore
from apply_spark.errors import DestinationNotInstalled

_S3 = "s3://"


class Addressing(enum.Enum):
    """Where the name of a bucket stands in an address."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class ParquetOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "parquet"`."""

    path: str = Field(
        min_length=1, description="A folder, made if it is not there; or `s3://BUCKET/PREFIX`, of a bucket that is."
    )
    endpoint: str | None = Field(
        default=None, pattern="^https?://", description="Of a server that speaks S3, where it is not that of AWS."
    )
    region: str | None = Field(
        default=None, min_length=1, description="The bucket's. Left out: as AWS's tools find it."
    )
    addressing: Addressing = Field(
        default=Addressing.AUTO,
        description="`path`: the bucket is the first part of an object's path. `virtual`: it is the first part of the "
        "host's name. `auto`: as boto3 chooses.",
    )
    access_key_id: SecretStr | None = Field(
        default=None, min_length=1, description="Left out, with the next: credentials are found as by AWS's tools."
    )
    secret_access_key: SecretStr | None = Field(default=None, min_length=1, description="A secret.")

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.is_on_s3:
            if not self.bucket:
                raise ValueError("path names no bucket: write s3://BUCKET/PREFIX")
            if (self.access_key_id is None) != (self.secret_access_key is None):
                raise ValueError("access_key_id and secret_access_key are given together or not at all")
            return self
        if "://" in self.path:
            raise ValueError("path must be a folder, or begin with s3://")
        if further := sorted(self.model_fields_set - {"path"}):
            raise ValueError(f"{further[0]} is for a path that begins with s3://")
        return self

    @property
    def is_on_s3(self) -> bool:
        return self.path.startswith(_S3)

    @property
    def bucket(self) -> str:
        return self.path.removeprefix(_S3).partition("/")[0]

    @property
    def prefix(self) -> str:
        """Of the names of objects; it ends in a slash, where there is one."""
        parts = [part for part in self.path.removeprefix(_S3).split("/")[1:] if part]
        return "".join(f"{part}/" for part in parts)


def made_store(options: ParquetOptions) -> LogStore:
    """Not open yet."""
    if not options.is_on_s3:
        return LogFolder(Path(options.path).absolute())
    try:
        from apply_spark.destinations.parquet_s3 import LogBucket  # noqa: PLC0415 -- its client is an extra
    except ModuleNotFoundError as error:
        raise DestinationNotInstalled(
            f"A log on S3 needs a module that is not installed: {error.name}.",
            solution="Run `pip install 'penstock[s3]'`.",
        ) from error
    return LogBucket(options)
