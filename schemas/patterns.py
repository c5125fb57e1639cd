"""Tables, topics and columns, as people name them in a configuration: `schema.table` with `*` and `?`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from schemas.identifiers import TableName

Named = TypeVar("Named", TableName, str)
_WILD = frozenset("*?[")


def matching(tables: Sequence[Named], patterns: Sequence[str]) -> list[Named]:
    """Those that a pattern names, and none with `!` before it takes away. `*` stands for any text, `?` for one sign."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return [
        table
        for table in tables
        if any(fnmatchcase(str(table), pattern) for pattern in wanted)
        and not any(fnmatchcase(str(table), pattern) for pattern in unwanted)
    ]


def is_wild(pattern: str) -> bool:
    """Whether it can name more than one thing."""
    return not _WILD.isdisjoint(pattern)
