"""What a row of the type table holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from schemas.errors import PenstockError

AvroType: TypeAlias = str | dict[str, Any]


class ValueNotCarried(PenstockError):
    """A value that its column's type in Avro cannot hold. Its table stops; nothing is rounded or dropped."""


@dataclass(frozen=True)
class PgType:
    """A Postgres type: `parse` turns the server's text into the value that `avro` holds exactly."""

    oid: int
    array_oid: int | None
    name: str
    parse: Callable[[str], Any]
    avro: AvroType
