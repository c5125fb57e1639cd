"""A change log on S3, or on a server that speaks its protocol, by boto3.

An object of S3 appears whole, and a PUT with `If-None-Match: *` makes it only where there is none: that is all that the
log needs to be as exact as on a disk. Some servers take that header and ignore it, so it is tried at every start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import IO, Any

import boto3
import stamina
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from apply_spark.destinations.parquet_options import ParquetOptions
from apply_spark.destinations.parquet_s3_refusals import error_of, is_under_way, status_of
from apply_spark.destinations.parquet_store import numbered
from apply_spark.errors import DestinationAway
from schemas.errors import ConfigError, DestinationError
from schemas.failpoints import failpoint

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 60
_ATTEMPTS = 5
"""Of a request that was not answered, or with an error of the server; boto3 waits longer each time."""
_PART_BYTES = 64 * 1024**2
"""What is larger is sent in parts of this size, and waits for that on the disk."""
_TRIED = "penstock/conditional-writes"


class WritesUnconditional(DestinationError):
    """The server does not know `If-None-Match`, so nothing would keep two applies apart."""

    solution = "Use a server that has S3's conditional writes, or a newer version of this one."


class LogBucket:
    """A LogStore: objects under one prefix of a bucket."""

    def __init__(self, options: ParquetOptions) -> None:
        self.where = options.path
        self._options = options
        self._client: Any = None

    def open(self) -> None:
        self._client = self._connected()
        self.create(_TRIED, b"Made once, and then refused: see penstock's destination parquet.\n")
        if self.create(_TRIED, b""):
            raise WritesUnconditional(f"The server of {self.where} writes an object that was to be written only once.")

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        with tempfile.SpooledTemporaryFile(max_size=_PART_BYTES) as file:
            write(file)
            file.seek(0)
            failpoint("parquet.renaming", DestinationAway)
            with self._told():
                self._client.upload_fileobj(file, self._options.bucket, self._key(name), Config=_IN_PARTS)

    def create(self, name: str, content: bytes) -> bool:
        made = False
        with self._told():
            for attempt in stamina.retry_context(on=is_under_way, attempts=_ATTEMPTS, timeout=_ANSWER_SECONDS):
                with attempt:
                    made = self._made(name, content)
        return made

    def _made(self, name: str, content: bytes) -> bool:
        try:
            self._client.put_object(Body=content, IfNoneMatch="*", **self._object(name))
        except ClientError as error:
            if status_of(error) == HTTPStatus.PRECONDITION_FAILED:
                return False
            raise
        return True

    def read(self, name: str) -> bytes:
        with self._told():
            content: bytes = self._client.get_object(**self._object(name))["Body"].read()
            return content

    def last_number(self, folder: str) -> int:
        """Without a list of all, of which S3 tells a thousand at a time: steps that double while there is anything
        behind them, and then halve."""
        last, step = 0, 1
        while (found := self._first_after(folder, last + step - 1)) is not None:
            last, step = found, step * 2
        while step > 1:
            step //= 2
            last = self._first_after(folder, last + step - 1) or last
        return last

    def _first_after(self, folder: str, number: int) -> int | None:
        with self._told():
            told = self._client.list_objects_v2(
                Bucket=self._options.bucket,
                Prefix=self._key(f"{folder}/"),
                StartAfter=self._key(numbered(folder, number)),
                MaxKeys=1,
            )
        keys = [str(each["Key"]) for each in told.get("Contents", ())]
        if not keys:
            return None
        found = keys[0].rpartition("/")[2].removesuffix(".json")
        if not found.isdecimal():
            raise DestinationError(
                f"{self.where} has an object among its manifests that is none: {keys[0]}.", solution="Remove it."
            )
        return int(found)

    def _key(self, name: str) -> str:
        return f"{self._options.prefix}{name}"

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._options.bucket, "Key": self._key(name)}

    def _connected(self) -> Any:  # noqa: ANN401 -- boto3 makes its classes when it runs
        options = self._options
        keys = (options.access_key_id, options.secret_access_key)
        key_id, secret = (None if key is None else key.get_secret_value() for key in keys)
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": options.addressing.value},
            user_agent_extra="penstock",
        )
        with self._told():
            try:
                return boto3.session.Session(key_id, secret, region_name=options.region).client(
                    "s3", endpoint_url=options.endpoint, config=config
                )
            except ValueError:  # an address, or a name of a region, that cannot be one
                raise ConfigError(
                    f"No client for {self.where} can be made.", solution="Correct endpoint and region."
                ) from None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise error_of(error, self.where) from None


_IN_PARTS = TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, use_threads=False)
