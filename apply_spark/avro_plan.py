"""How Avro becomes Arrow: what the writer wrote, which of it is read, and the Arrow type in which it arrives.

The types are those that Spark's `from_avro` gives without logical types, and all is nullable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from schemas.pg_types.pg_type import AvroType


class Kind(enum.IntEnum):
    """What the decoder meets; the numbers are those of `arrow_out.pxd`."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    STRING = 6
    BYTES = 7
    ARRAY = 8
    RECORD = 9
    OPTIONAL = 10
    """A union of at most one type and null: the value takes the place of the union."""
    CHOICE = 11
    """A union of more: a struct of which one field has a value."""


@dataclass(frozen=True)
class Node:
    """A type of the writer. `children`: the items, the fields in the writer's order, or the branches of a union."""

    kind: Kind
    children: tuple[Node, ...] = ()
    arrow: pa.DataType | None = None
    """None: passed over."""


class Damaged(ValueError):
    """A record that is not what its schema says. `row` is its place among those that were given."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


_PLAIN = {
    "null": (Kind.NULL, pa.null()),
    "boolean": (Kind.BOOLEAN, pa.bool_()),
    "int": (Kind.INT, pa.int32()),
    "long": (Kind.LONG, pa.int64()),
    "float": (Kind.FLOAT, pa.float32()),
    "double": (Kind.DOUBLE, pa.float64()),
    "string": (Kind.STRING, pa.string()),
    "bytes": (Kind.BYTES, pa.binary()),
}


_Read: TypeAlias = "bool | dict[str, _Read]"
"""All of it, nothing of it, or these fields."""


def plan(writer: dict[str, Any], reader: dict[str, Any]) -> Node:
    """Of a record: the fields that the reader names are read, as the writer wrote them; the others are passed over."""
    return _Planner().node(writer, _named(reader), "")


def arrow_type(branches: list[AvroType]) -> pa.DataType:
    """In which a column arrives whose Avro type is a union of these."""
    return _Planner().node(branches, True, "").arrow


def _named(reader: Any) -> _Read:  # noqa: ANN401 -- Avro is text, list or object
    match reader:
        case {"type": "record", "fields": fields}:
            return {field["name"]: _named(field["type"]) for field in fields}
        case ["null", inner]:
            return _named(inner)
        case _:
            return True


class _Planner:
    """Knows the records that it has met."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}

    def node(self, writer: Any, read: _Read, namespace: str) -> Node:  # noqa: ANN401 -- Avro is text, list or object
        match writer:
            case str() if writer in _PLAIN:
                kind, arrow = _PLAIN[writer]
                return Node(kind, (), arrow if read is not False else None)
            case str():
                record, inside = self._known[writer if "." in writer else f"{namespace}.{writer}"]
                return self._record(record, read, inside)
            case [*branches]:
                return self._union([self.node(branch, read, namespace) for branch in branches], read)
            case {"type": "array", "items": items}:
                item = self.node(items, read, namespace)
                return Node(
                    Kind.ARRAY, (item,), pa.list_(pa.field("element", item.arrow)) if read is not False else None
                )
            case {"type": "record", "name": name}:
                namespace = writer.get("namespace", namespace)
                self._known[f"{namespace}.{name}"] = writer, namespace
                return self._record(writer, read, namespace)
            case {"type": inner, "logicalType": _}:
                return self.node(inner, read, namespace)
            case _:
                raise ValueError("The schema has an Avro type that penstock does not write.")

    def _record(self, record: dict[str, Any], read: _Read, namespace: str) -> Node:
        names = [field["name"] for field in record["fields"]]
        each = {name: read.get(name, False) if isinstance(read, dict) else read for name in names}
        fields = [self.node(field["type"], each[field["name"]], namespace) for field in record["fields"]]
        arrow = [(name, field.arrow) for name, field in zip(names, fields, strict=True) if each[name] is not False]
        return Node(Kind.RECORD, tuple(fields), pa.struct(arrow) if read is not False else None)

    def _union(self, branches: list[Node], read: _Read) -> Node:
        some = [branch for branch in branches if branch.kind is not Kind.NULL]
        if len(some) == 1:
            return Node(Kind.OPTIONAL, tuple(branches), some[0].arrow)
        members = [(f"member{index}", branch.arrow) for index, branch in enumerate(some)]
        return Node(Kind.CHOICE, tuple(branches), pa.struct(members) if read is not False else None)
