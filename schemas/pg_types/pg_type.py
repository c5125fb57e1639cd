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
    """A Postgres type: `parse` turns the server's text into the value that one of the `branches` holds exactly."""

    oid: int
    array_oid: int | None
    name: str
    parse: Callable[[str], Any]
    avro: AvroType
    note: str = ""
    """For the page of types: what a reader of the topics should know."""
    delimiter: str = ","
    """What stands between the items of an array of this type."""
    element: PgType | None = None
    """Of an array: the type of its items."""

    @property
    def branches(self) -> list[AvroType]:
        """The union of a column. An array has a branch for the literals that no list can hold."""
        return ["null", self.avro] if self.element is None else ["null", self.avro, "string"]
