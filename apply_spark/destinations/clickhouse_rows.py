"""A batch of a table to rows of its storage: Arrow straight to what is stored where it is that already, else into a
table of its own, and from there in SQL.

Everything that may stop the table is found out here, before the destination decides on the batch: values that have no
place, rows that lack columns and have no base, copies of a row that are to go and are not there.
"""

# ruff: noqa: S608 -- ClickHouse has no composer of statements: names pass through quoted, numbers are ours

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.client import Client

from apply_spark.destinations.clickhouse_load import Load
from apply_spark.destinations.clickhouse_mirror import ID_COLUMNS, OWN_COLUMNS, Names
from apply_spark.destinations.clickhouse_state import Mirror
from apply_spark.destinations.clickhouse_types import held_column, quoted, quoted_text
from apply_spark.errors import PartialRow, TableFailed
from schemas.envelope import avro_name
from schemas.table import Column, TableSchema


@dataclass(frozen=True)
class Target:
    """Where the rows of a batch go: a table with the columns of a mirror's storage; `version` marks them."""

    client: Client
    names: Names
    schema: TableSchema
    mirror: Mirror
    version: int

    @property
    def storage(self) -> str:
        return self.names.own(self.mirror.storage)

    @property
    def columns(self) -> list[str]:
        """Of the source, as the storage calls them."""
        return [quoted(self.mirror.stored(column)) for column in self.schema.columns]


def carry_over(client: Client, names: Names, mirror: Mirror, staged: str) -> None:
    """Staged rows to the storage of their mirror, as the files that they are in, and all at one moment.

    Again, it changes nothing: a ReplacingMergeTree keeps one of each."""
    client.command(f"alter table {names.own(mirror.storage)} attach partition id 'all' from {names.own(staged)}")


def make_staged(target: Target, staged: str) -> None:
    """A table like the storage, in order and settings too, which holds rows until these are carried over."""
    target.client.command(f"create table {target.names.own(staged)} as {target.storage}")


def load(target: Target, batch: Load, table: str) -> None:
    """The rows as they came, in a table of this name."""
    name = target.names.own(table)
    defined = ", ".join(f"{column.name} {column.type}" for column in batch.columns)
    target.client.command(f"drop table if exists {name}")
    target.client.command(f"create table {name} ({defined}) engine = Memory")
    target.client.insert_arrow(name, batch.rows)


def insert_whole(target: Target, batch: Load, source: str, into: str) -> None:
    """Rows that were sent whole, and keys that are gone. Only arrays are put together in SQL, from the table `source`;
    without any, the rows are what is stored, and go there at once."""
    if not any(held_column(column).is_list for column in target.schema.columns):
        target.client.insert_arrow(target.names.own(into), _as_stored(target, batch.rows))
        return
    load(target, batch, source)
    values = [held_column(c).expression("r", f"c{place}") for place, c in enumerate(target.schema.columns)]
    _insert(target, into, f"{', '.join(values)}, {target.version}, r.deleted from {target.names.own(source)} as r")


def insert_partial(target: Target, source: str, into: str, ended: str | None) -> None:
    """Columns that were not sent come from the row that the storage has under the base key, before this batch; `ended`
    is a subselect of what an ending has made of its rows."""
    keys = [quoted(target.mirror.stored(column)) for column in target.schema.key]
    base = [f"b{place}" for place in range(len(keys))]
    source = target.names.own(source)
    wanted = f"({', '.join(keys)}) in (select {', '.join(base)} from {source})"
    same = " and ".join(f"t.{key} = r.{each}" for key, each in zip(keys, base, strict=True))
    there = f"{target.storage} final" if ended is None else ended
    joined = f"{source} as r left join (select * from {there} where {wanted}) as t on {same}"
    ((lost,),) = target.client.query(
        f"select count() from {joined} where notEmpty(r.missing) and t._version = 0"
    ).result_rows
    if lost:
        raise TableFailed(
            target.schema.name,
            PartialRow(f"{lost} rows lack columns that were not sent, and have no row to take them from."),
        )
    values = [
        _kept(column, held_column(column).expression("r", f"c{place}"), f"t.{stored}")
        for place, (column, stored) in enumerate(zip(target.schema.columns, target.columns, strict=True))
    ]
    _insert(target, into, f"{', '.join(values)}, {target.version}, r.deleted from {joined}")


def insert_bag(target: Target, source: str, into: str) -> None:
    """Rows without a key: so many copies come, so many go, whichever they are."""
    held = [held_column(column) for column in target.schema.columns]
    source = target.names.own(source)
    values = [each.expression("r", f"c{place}") for place, each in enumerate(held)]
    _insert(
        target,
        into,
        f"{', '.join(values)}, {target.version}, r.place, {target.version}, 0 from {source} as r where r.net > 0",
    )
    ((wanted,),) = target.client.query(f"select sum(-net) from {source} where net < 0").result_rows
    if not wanted:
        return
    there = ", ".join(each.comparable(name) for each, name in zip(held, target.columns, strict=True))
    going = ", ".join(each.comparable(value) for each, value in zip(held, values, strict=True))
    into = target.names.own(into)
    target.client.command(
        f"""insert into {into} ({", ".join([*ID_COLUMNS, *OWN_COLUMNS])})
            select born, place, {target.version}, 1 from (
              select t.born as born, t.place as place, r.net as net,
                     row_number() over (partition by r.id order by t.born, t.place) as copy
                from (select [{there}] as same, _born as born, _place as place from {target.storage} final) as t
                join (select [{going}] as same, r.net as net, r.place as id from {source} as r where r.net < 0) as r
                  on t.same = r.same)
             where copy <= -net"""
    )
    ((gone,),) = target.client.query(f"select count() from {into} where _deleted = 1").result_rows
    if gone != wanted:
        raise TableFailed(target.schema.name, PartialRow(f"{wanted} rows were to go, {gone} were found."))


def _as_stored(target: Target, rows: pa.Table) -> pa.Table:
    stored = [target.mirror.stored(column) for column in target.schema.columns]
    versions = pa.array(np.full(rows.num_rows, target.version, dtype=np.uint64))
    values = [rows[f"c{place}"] for place in range(len(stored))]
    return pa.table([*values, versions, rows["deleted"]], names=[*stored, *OWN_COLUMNS])


def _insert(target: Target, into: str, selected: str) -> None:
    own = OWN_COLUMNS if target.schema.key else ID_COLUMNS | OWN_COLUMNS
    columns = ", ".join([*target.columns, *own])
    target.client.command(f"insert into {target.names.own(into)} ({columns}) select {selected}")


def _kept(column: Column, sent: str, stored: str) -> str:
    return sent if column.key else f"if(has(r.missing, {quoted_text(avro_name(column.name))}), {stored}, {sent})"
