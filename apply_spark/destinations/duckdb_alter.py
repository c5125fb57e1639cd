"""A mirror altered as its table was: all DDL first, then what rows have in the columns that came.

DuckDB refuses at commit an ALTER of a table that was updated before it in the same transaction.
"""

# ruff: noqa: S608 -- DuckDB has no composer of statements: names pass through quoted

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from apply_spark.destination import Alteration
from apply_spark.destinations.duckdb_types import converted, duckdb_type, quoted
from apply_spark.reshape import defaults
from schemas.evolution import ColumnAdded, ColumnDropped, ColumnRenamed
from schemas.table import Column


def alter(db: duckdb.DuckDBPyConnection, target: str, alteration: Alteration) -> None:
    """Columns pass through names that no table has, for they may exchange theirs, and the last may not go first."""
    changes = alteration.changes
    dropped = [change.column.name for change in changes if isinstance(change, ColumnDropped)]
    renamed = [(change.before.name, change.after.name) for change in changes if isinstance(change, ColumnRenamed)]
    added = [change.column for change in changes if isinstance(change, ColumnAdded)]
    for place, name in enumerate(dropped):
        _rename(db, target, name, _passing("dropped", place))
    for place, (before, _) in enumerate(renamed):
        _rename(db, target, before, _passing("renamed", place))
    for place, (_, after) in enumerate(renamed):
        _rename(db, target, _passing("renamed", place), after)
    for column in added:
        db.execute(f"alter table {target} add column {quoted(column.name)} {duckdb_type(column).name}")
    for place in range(len(dropped)):
        db.execute(f"alter table {target} drop column {quoted(_passing('dropped', place))}")
    filled = [column for column in added if column.missing is not None]
    if filled:
        set_columns(db, target, filled)


def _passing(kind: str, place: int) -> str:
    return f"penstock {kind} {place}"


def _rename(db: duckdb.DuckDBPyConnection, target: str, before: str, after: str) -> None:
    db.execute(f"alter table {target} rename column {quoted(before)} to {quoted(after)}")


def set_columns(db: duckdb.DuckDBPyConnection, target: str, columns: Sequence[Column], where: str = "true") -> None:
    """What `missing` says of each column, in all rows where that holds.

    Joined, for DuckDB makes 0.0 of a -0.0 in a list that comes out of a subquery."""
    db.register("defaults", defaults(columns))
    values = ", ".join(f"{quoted(column.name)} = {converted(column, 'defaults.row')}" for column in columns)
    db.execute(f"update {target} set {values} from defaults where {where}")
    db.unregister("defaults")  # not after an error: the connection is of no more use then
