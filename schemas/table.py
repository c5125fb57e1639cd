"""The shape of a table at one moment, as both stages see it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from schemas.errors import StateTooNew
from schemas.identifiers import TableId, TableName


class ReplicaIdentity(enum.Enum):
    """What Postgres logs of the old row; the values are pg_class.relreplident."""

    DEFAULT = "d"
    FULL = "f"
    INDEX = "i"
    NOTHING = "n"


@dataclass(frozen=True, slots=True)
class Column:
    """A published column. `key` says that it belongs to the row key: the identity index, else the primary key.

    Domains are looked through: type and modifier are those of the base type, in arrays too."""

    name: str
    type_oid: int
    type_name: str
    modifier: int = -1
    nullable: bool = True
    key: bool = False
    delimiter: str | None = None
    """Of an array whose type is not in the type table: what stands between its items, which are text."""
    number: int = 0
    """pg_attribute.attnum: a column keeps it under another name, and no other one ever has it. 0: not known."""
    missing: str | None = None
    """What rows have there that are older than the column, as text. None: NULL."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Published columns in their order, and what identifies a row."""

    id: TableId
    name: TableName
    columns: tuple[Column, ...]
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    width: int = 0
    """The highest number that a column of the table ever had. 0: not known, or not all of its columns are published."""

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.key)

    def same_shape(self, other: TableSchema) -> bool:
        """Whether a record of one can stand beside a record of the other: all but NOT NULL is the same."""
        return (self.id, self.name, self.identity, self._shape()) == (
            other.id,
            other.name,
            other.identity,
            other._shape(),
        )

    def same_columns(self, other: TableSchema) -> bool:
        """Whether they have the same shape, and each column is, as far as it is known, no other one of its name."""
        numbers = [(mine.number, its.number) for mine, its in zip(self.columns, other.columns, strict=False)]
        return self.same_shape(other) and all(mine == its or 0 in (mine, its) for mine, its in numbers)

    def _shape(self) -> list[tuple[str, int, int, bool, str | None]]:
        return [(each.name, each.type_oid, each.modifier, each.key, each.delimiter) for each in self.columns]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "schema": self.name.schema,
            "name": self.name.name,
            "identity": self.identity.value,
            "width": self.width,
            "columns": [
                {
                    "name": column.name,
                    "type_oid": column.type_oid,
                    "type_name": column.type_name,
                    "modifier": column.modifier,
                    "nullable": column.nullable,
                    "key": column.key,
                    "delimiter": column.delimiter,
                    "number": column.number,
                    "missing": column.missing,
                }
                for column in self.columns
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableSchema:
        """What releases before did not write has its default. StateTooNew: somebody wrote more."""
        further = {*data, *(name for column in data["columns"] for name in column)} - _WRITTEN
        if further:
            raise StateTooNew(
                f"The schema of {data['schema']}.{data['name']} tells {', '.join(sorted(further))}, which this "
                "penstock does not know."
            )
        return cls(
            id=TableId(data["id"]),
            name=TableName(data["schema"], data["name"]),
            identity=ReplicaIdentity(data["identity"]),
            columns=tuple(Column(**column) for column in data["columns"]),
            width=data.get("width", 0),
        )


_WRITTEN = {*Column.__dataclass_fields__, "id", "schema", "name", "identity", "width", "columns"}
