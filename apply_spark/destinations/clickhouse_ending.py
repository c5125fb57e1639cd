"""A truncate after which rows stay: what it makes of the rows of a storage, in SQL.

Columns are named with their table: ClickHouse takes a bare name for what the column becomes in the same query.
"""

# ruff: noqa: S608 -- ClickHouse has no composer of statements: names pass through quoted, values are literals of ours

from __future__ import annotations

from apply_spark.destination import Ending
from apply_spark.destinations.clickhouse_mirror import OWN_COLUMNS, literal
from apply_spark.destinations.clickhouse_rows import Target
from apply_spark.destinations.clickhouse_types import quoted


class Ended:
    """The rows of a storage after an ending."""

    def __init__(self, target: Target, ending: Ending) -> None:
        table, mirror = target.schema.name, target.mirror
        self._target = target
        self._is_current = f"t.{quoted(mirror.stored(ending.current))} = {literal(table, ending.current)}"
        self._values = {mirror.stored(column): literal(table, column) for column in ending.values}
        self._columns = [each.stored for each in mirror.columns]
        self._keys = [mirror.stored(column) for column in target.schema.key]

    def rows(self) -> str:
        """A subselect of all of them."""
        values = [self._ended(column) for column in self._columns]
        return f"(select {_named(self._columns, values)}, t._version as _version from {self._there})"

    def insert_besides(self, staged: str) -> None:
        """Those that change, but for keys of which the batch itself says something: it is staged already."""
        after = _named(self._columns, [self._values.get(column, _of(column)) for column in self._columns])
        before = _named(self._columns, [_of(column) for column in self._columns])
        changed = [f"select {after}, 0 as gone from {self._there} where {self._is_current}"]
        if any(key in self._values for key in self._keys):
            changed.append(f"select {before}, 1 as gone from {self._there} where {self._is_current}")
        columns, keys = (", ".join(quoted(name) for name in names) for names in (self._columns, self._keys))
        into = self._target.names.own(staged)
        self._target.client.command(
            f"""insert into {into} ({columns}, {", ".join(OWN_COLUMNS)})
                select {columns}, {self._target.version}, gone from ({" union all ".join(changed)})
                 where ({keys}) not in (select {keys} from {into})"""
        )

    def _ended(self, column: str) -> str:
        value = self._values.get(column)
        return _of(column) if value is None else f"if({self._is_current}, {value}, {_of(column)})"

    @property
    def _there(self) -> str:
        return f"(select * from {self._target.storage} final) as t"


def _of(column: str) -> str:
    return f"t.{quoted(column)}"


def _named(columns: list[str], values: list[str]) -> str:
    return ", ".join(f"{value} as {quoted(column)}" for column, value in zip(columns, values, strict=True))
