"""What the event triggers of `setup_source.sql` write into the WAL: bytes in, values out.

Anybody who may call pg_logical_emit_message() can write the same, so that nothing is done on its word alone: what it
says of the columns counts only where the catalog says the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from schemas.identifiers import TableName
from schemas.table import Column

PREFIX = "penstock.ddl"


@dataclass(frozen=True, slots=True)
class TableAltered:
    """Somebody altered a table, under the name that it had then."""

    table: TableName
    rewritten: bool
    """Its rows have other values, of which no change tells."""
    dropped: frozenset[str]
    """Columns that are gone. A new one may have the name of an old one, and looks like it."""
    columns: tuple[Column, ...]
    """All of them, of the types that they were given; published or not."""


def decode_ddl(content: bytes) -> TableAltered | None:
    """None: it is not what the triggers write."""
    try:
        told = json.loads(content)
        return TableAltered(
            table=TableName(str(told["schema"]), str(told["name"])),
            rewritten=bool(told["rewritten"]),
            dropped=frozenset(str(name) for name in told["dropped"]),
            columns=tuple(_column(column) for column in told["columns"] or ()),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _column(told: dict[str, Any]) -> Column:
    return Column(
        name=str(told["name"]),
        type_oid=int(told["type"]),
        type_name="",
        modifier=int(told["modifier"]),
        number=int(told["number"]),
    )
