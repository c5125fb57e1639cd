"""One table of a destination that Spark writes and that commits one table at a time: what each format has a word for.

Rows and mark of a table are one commit. The mark says who made it and by which plan, and stays with the table whatever
becomes of its history.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from schemas.lsn import Lsn
from schemas.table import Column, TableSchema


class Mark(NamedTuple):
    """What a commit leaves in its table: which apply made it, and by which plan."""

    owner: int
    plan: int


class Shape(NamedTuple):
    """The columns of the source that a mirror has, under the names that they have there, and since when."""

    columns: tuple[Column, ...]
    since: Lsn


class How(enum.Enum):
    """Which commit a batch becomes."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "merge by key"
    BAG = "merge by whole rows"


@dataclass(frozen=True)
class Ready:
    """Rows in the types of the mirror, as columns c0, c1 and so on; `gone` (boolean) says which are to be found there
    and deleted."""

    schema: TableSchema
    how: How
    rows: DataFrame


class Mirror(Protocol):
    """The table of a name. It need not be there.

    What changes it makes one commit with its mark, or none. DestinationTaken: the table knows a later owner."""

    def frame(self) -> DataFrame: ...

    def is_foreign(self) -> bool:
        """Whether there is a table that this destination did not make."""

    def mark(self) -> Mark | None:
        """Of the last commit. None: no table is there, or none that holds what this destination wrote."""

    def shape(self) -> Shape | None:
        """None: as above."""

    def fence(self, owner: int) -> Mark | None:
        """Lets no owner before this one commit any more; the plan that the table holds stays, and is returned."""

    def make(self, shape: Shape, mark: Mark) -> None:
        """The table in this shape, empty, whatever stood there."""

    def write(self, ready: Ready, mark: Mark) -> None: ...

    def reshape(self, shape: Shape, mark: Mark) -> None:
        """Gives it this shape: columns that it has, by their numbers, under their new names, then new ones, with NULL
        in every row."""

    def rewrite(self, shape: Shape, rows: Callable[[], DataFrame], mark: Mark) -> None:
        """Gives it this shape, and these rows, which have its names, for those that it has."""

    def remove(self) -> None:
        """No table is there any more, nor a file of it."""
