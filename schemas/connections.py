"""How to reach the two servers that the stages share, as values: no connection is opened here."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ByteSize, Field, SecretStr

_LARGEST_ANSWER = 100_000_000
"""librdkafka's own choice."""
_BESIDE_A_RECORD = 64 * 1024**2
"""What an answer may hold of other topics, which a client asks for by 50 MiB."""
_ADDRESS = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")


def _registry(address: SecretStr) -> SecretStr:
    if not _is_address(address.get_secret_value()):
        raise ValueError("not the address of a schema registry: it begins with http:// or https:// and a host")
    return address


def _is_address(text: str) -> bool:
    try:
        return urlsplit(text).port != 0 and _ADDRESS.fullmatch(text) is not None
    except ValueError:
        return False


RegistryAddress: TypeAlias = Annotated[SecretStr, AfterValidator(_registry)]


class KafkaConfig(BaseModel, frozen=True, extra="forbid"):
    """Where the topics live and what they may hold."""

    bootstrap_servers: str = Field(description="Brokers, `host:port`, separated by commas.")
    client: dict[str, str] = Field(
        default={},
        description="Further settings of librdkafka for every client, such as `security.protocol` or `sasl.password`. "
        "Apply translates those of SASL and TLS for Spark's Java client.",
        repr=False,
    )
    java_client: dict[str, str] = Field(
        default={},
        description="Settings of Spark's Java client, by their names there. They go before what is translated.",
        repr=False,
    )
    schema_registry: RegistryAddress | None = Field(
        default=None,
        description="A registry with Confluent's API, `https://USER:PASSWORD@HOST:PORT/PATH`, for readers other than "
        "penstock: records then carry the ids that it allots. Left out: ids of penstock's own, on its schema topic.",
    )
    replication_factor: int = Field(
        default=1, ge=1, le=32_767, description="Replicas of each topic that penstock creates."
    )
    retention: timedelta = Field(
        default=timedelta(days=7),
        gt=timedelta(0),
        description="How far back the topics reach, and so how far back a replay can begin.",
    )
    max_record: ByteSize = Field(
        default=ByteSize(64 * 1024**2),
        ge=1_000,
        le=999_000_000,
        description="The largest record, and so about the largest row, that is carried.",
    )
    patience: timedelta = Field(
        default=timedelta(seconds=60),
        gt=timedelta(0),
        le=timedelta(days=1),
        description="How long a question to the broker may take. Capture waits longer, with its slot kept alive.",
    )

    def client_settings(self) -> dict[str, str | int | float | bool]:
        """A broker sends at least one batch whole, which is one record where that is large. Of an answer that is larger
        than it may be, librdkafka says nothing to whoever waits for it, and asks again."""
        largest = max(_LARGEST_ANSWER, int(self.max_record) + _BESIDE_A_RECORD)
        return {"bootstrap.servers": self.bootstrap_servers, "receive.message.max.bytes": largest, **self.client}
