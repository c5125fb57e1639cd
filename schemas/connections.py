"""How to reach the two servers that the stages share, as values: no connection is opened here."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ByteSize, Field, SecretStr

_ADDRESS = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")


def _registry(address: SecretStr) -> SecretStr:
    if _ADDRESS.fullmatch(address.get_secret_value()) is None:
        raise ValueError("not the address of a schema registry: it begins with http:// or https:// and a host")
    return address


RegistryAddress: TypeAlias = Annotated[SecretStr, AfterValidator(_registry)]


class KafkaConfig(BaseModel, frozen=True, extra="forbid"):
    """Where the topics live and what they may hold."""

    bootstrap_servers: str = Field(description="Brokers, `host:port`, separated by commas.")
    client: dict[str, str] = Field(
        default={},
        description="Further settings of librdkafka for every client, such as `security.protocol` or `sasl.password`.",
        repr=False,
    )
    schema_registry: RegistryAddress | None = Field(
        default=None,
        description="A registry with Confluent's API, `https://USER:PASSWORD@HOST:PORT/PATH`, for readers other than "
        "penstock: records then carry the ids that it allots. Left out: ids of penstock's own, on its schema topic.",
    )
    replication_factor: int = Field(default=1, ge=1, description="Replicas of each topic that penstock creates.")
    retention: timedelta = Field(
        default=timedelta(days=7), description="How far back the topics reach, and so how far back a replay can begin."
    )
    max_record: ByteSize = Field(
        default=ByteSize(64 * 1024**2), description="The largest record, and so about the largest row, that is carried."
    )
    patience: timedelta = Field(
        default=timedelta(seconds=60),
        description="How long a question to the broker may take. Capture waits longer, with its slot kept alive.",
    )

    def client_settings(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self.bootstrap_servers, **self.client}
