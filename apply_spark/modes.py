"""What a destination's table has besides the columns of the source, in each mode but `mirror`.

Our columns stand before the source's, so that one that comes later stands behind all others, and have negative numbers,
which no column of the source has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from apply_spark.config import Mode
from apply_spark.errors import NotKept, TableFailed
from schemas.table import Column, TableSchema

_BOOL, _INT8, _TEXT, _TEXTS, _TIMESTAMPTZ = 16, 20, 25, 1009, 1184
_FIRST_OWN = -100
"""Below the numbers of Postgres' own system columns."""

OPEN = 2**63 - 1
"""What a version that is current has as `_valid_to_lsn`."""

OP = Column("_op", _TEXT, "text", number=_FIRST_OWN)
DELETED = Column("_is_deleted", _BOOL, "bool", number=_FIRST_OWN - 1)
LSN = Column("_lsn", _INT8, "int8", number=_FIRST_OWN - 2)
ORDINAL = Column("_ordinal", _INT8, "int8", number=_FIRST_OWN - 3)
COMMIT_TS = Column("_commit_ts", _TIMESTAMPTZ, "timestamptz", number=_FIRST_OWN - 4)
UNCHANGED = Column("_unchanged", _TEXTS, "text[]", number=_FIRST_OWN - 5)
VALID_FROM = Column("_valid_from", _TIMESTAMPTZ, "timestamptz", number=_FIRST_OWN - 6)
VALID_TO = Column("_valid_to", _TIMESTAMPTZ, "timestamptz", number=_FIRST_OWN - 7)
VALID_FROM_LSN = Column("_valid_from_lsn", _INT8, "int8", number=_FIRST_OWN - 8)
VALID_TO_LSN = Column("_valid_to_lsn", _INT8, "int8", number=_FIRST_OWN - 9, key=True, nullable=False)

_OWN = {
    Mode.MIRROR: (),
    Mode.SOFT_DELETE: (DELETED, LSN, COMMIT_TS),
    Mode.HISTORY: (VALID_FROM, VALID_TO, VALID_FROM_LSN, VALID_TO_LSN),
    Mode.LOG: (OP, LSN, ORDINAL, COMMIT_TS, UNCHANGED),
}


@dataclass(frozen=True)
class Moment:
    """A commit: where, and when in microseconds since 1970, as far as that is known."""

    lsn: int
    ts: int | None

    @property
    def text(self) -> str | None:
        """The time as Postgres writes it."""
        if self.ts is None:
            return None
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.ts):%Y-%m-%d %H:%M:%S.%f}+00"


def own_columns(mode: Mode) -> tuple[Column, ...]:
    return _OWN[mode]


def is_own(column: Column) -> bool:
    """Whether it is ours, and not the source's."""
    return column.number <= _FIRST_OWN


def is_kept(schema: TableSchema) -> bool:
    """Whether it is a schema that `kept_schema` gave."""
    return is_own(schema.columns[0]) if schema.columns else False


def kept_schema(mode: Mode, schema: TableSchema) -> TableSchema:
    """What the destination has of a table of the source. TableFailed: the table cannot be kept in this mode."""
    if mode is Mode.MIRROR:
        return schema
    _require_free_names(mode, schema)
    if mode is Mode.LOG:
        return replace(schema, columns=(*_OWN[mode], *[replace(c, key=False, nullable=True) for c in schema.columns]))
    if not schema.key:
        raise TableFailed(
            schema.name,
            NotKept(
                f"It has no key, by which its rows could be found again: it cannot be kept with mode {mode.value}.",
                solution='Give it a primary key, leave it out by `tables` of the destination, or use mode = "log".',
            ),
        )
    return replace(schema, columns=(*_OWN[mode], *schema.columns))


def _require_free_names(mode: Mode, schema: TableSchema) -> None:
    ours = {column.name for column in _OWN[mode]}
    taken = [column.name for column in schema.columns if column.name.lower() in ours]
    if taken:
        raise TableFailed(
            schema.name,
            NotKept(
                f"Its column {taken[0]} has the name of a column that mode {mode.value} adds.",
                solution="Rename the column at the source, leave the table out by `tables` of the destination, or "
                "choose another mode.",
            ),
        )
