"""What the event triggers of `setup_source.sql` write into the WAL: bytes in, values out.

Anybody who may call pg_logical_emit_message() can write the same, so that nothing is done on its word but to look at
the table, and to copy it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from schemas.identifiers import TableName

PREFIX = "penstock.ddl"


@dataclass(frozen=True, slots=True)
class TableAltered:
    """Somebody altered a table, under the name that it had then."""

    table: TableName
    rewritten: bool
    """Its rows have other values, of which no change tells."""
    dropped: frozenset[str]
    """Columns that are gone. A new one may have the name of an old one, and looks like it."""


def decode_ddl(content: bytes) -> TableAltered | None:
    """None: it is not what the triggers write."""
    try:
        told = json.loads(content)
        return TableAltered(
            table=TableName(str(told["schema"]), str(told["name"])),
            rewritten=bool(told["rewritten"]),
            dropped=frozenset(str(name) for name in told["dropped"]),
        )
    except (ValueError, TypeError, KeyError):
        return None
