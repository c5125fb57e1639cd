"""Positions in the write-ahead log. Text or integers in, ordered values out; nothing unclear is accepted."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_MAX = 2**64 - 1


class Lsn(int):
    """A byte position in the write-ahead log; prints as Postgres prints it: `16/B374D848`.

    An LSN that bounds something excludes what starts there (DESIGN, rule 1).
    """

    def __new__(cls, value: int) -> Self:
        if not 0 <= value <= _MAX:
            raise ValueError(f"{value} is not an LSN: it must fit in 64 bits")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an LSN; one looks like '16/B374D848'")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({str(self)!r})"


NOWHERE = Lsn(0)
"""Before all WAL."""


class Position(NamedTuple):
    """Where a change stands in commit order. Positions never repeat and never go back."""

    commit_lsn: Lsn
    ordinal: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Reads what `str` writes: `16/B374D848/5`."""
        lsn, _, ordinal = text.rpartition("/")
        if not re.fullmatch("[0-9]{1,19}", ordinal):
            raise ValueError(f"{text!r} is not a position; one looks like '16/B374D848/5': LSN of the commit, ordinal")
        return cls(Lsn.parse(lsn), int(ordinal))

    def __str__(self) -> str:
        return f"{self.commit_lsn}/{self.ordinal}"
