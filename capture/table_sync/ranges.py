"""A table to the ranges of blocks in which it is copied: pure, and the same answer for the same files.

Together the ranges cover every block once, however far the files have grown by then: the last range of a file is open.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ByteSize

from capture.publication import PublishedTable, TableFile

_ROW_BITS = 42
"""A file has at most 2^32 blocks, and a block of 8 kB at most 291 rows."""


@dataclass(frozen=True)
class CopyRange:
    """Some blocks of one file, or all that the table shows."""

    index: int
    """Its place among the ranges of the table."""
    file: TableFile | None = None
    """None: the table is read as a whole, by its own name."""
    first: int = 0
    end: int | None = None
    """None: to the end of the file, wherever that is when it is read."""

    @property
    def first_ordinal(self) -> int:
        """Rows count up from here. With the snapshot's LSN an ordinal names a row of a copy, whoever reads it when."""
        return self.index << _ROW_BITS

    @property
    def blocks(self) -> int:
        """How many it had when the table was divided."""
        if self.file is None:
            return 0
        return max(0, (self.file.blocks if self.end is None else self.end) - self.first)


def divide(table: PublishedTable, most: int, smallest: ByteSize) -> list[CopyRange]:
    """At most `most` ranges of about one size, not below `smallest`; each leaf of a partitioned table has one at least.

    Ranges follow the files and the order of blocks."""
    if not table.files:
        return [CopyRange(0)]
    blocks = max(1, sum(file.blocks for file in table.files))
    count = max(1, min(most, table.size // smallest))
    spans = [
        (file, first, end)
        for file in table.files
        for first, end in _spans(file.blocks, file.blocks * count // blocks if file.divisible else 1)
    ]
    return [CopyRange(index, file, first, end) for index, (file, first, end) in enumerate(spans)]


def _spans(blocks: int, count: int) -> list[tuple[int, int | None]]:
    bounds = [blocks * i // count for i in range(count)] or [0]
    return list(zip(bounds, [*bounds[1:], None], strict=True))
