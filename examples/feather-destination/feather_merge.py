"""A table's rows and a batch in, its new rows out: DuckDB joins them, in memory. No Python for a row.

Columns go by their places (c0, c1, ...): the names of the source may differ in case only, which DuckDB does not see.
"""

# ruff: noqa: S608 -- statements hold places, not names

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from apply_spark.destination import Alteration, TableChanges
from apply_spark.errors import PartialRow, TableFailed
from apply_spark.reshape import default
from schemas.envelope import avro_name
from schemas.table import TableSchema


def positional(rows: pa.Table) -> pa.Table:
    return rows.rename_columns([f"c{place}" for place in range(rows.num_columns)])


def empty(schema: TableSchema) -> pa.Table:
    return pa.schema([(f"c{place}", default(c).type) for place, c in enumerate(schema.columns)]).empty_table()


def appended(mirror: pa.Table, copied: pa.Table) -> pa.Table:
    rows = pa.table(_fields(copied["row"], "c")).cast(mirror.schema)
    return pa.concat_tables([mirror, rows])


def altered(mirror: pa.Table, alteration: Alteration) -> pa.Table:
    """A column is known by its number, whatever its name; a new one has, in older rows, what the source shows there."""
    places = {column.number: place for place, column in enumerate(alteration.before.columns)}
    columns = [
        mirror.column(places[column.number]) if column.number in places else pa.repeat(default(column), mirror.num_rows)
        for column in alteration.after.columns
    ]
    return pa.table(columns, [f"c{place}" for place in range(len(columns))])


def merged(mirror: pa.Table, changes: TableChanges) -> pa.Table:
    """First the truncate, then the rows."""
    if changes.truncate:
        mirror = mirror.slice(0, 0)
    rows = changes.rows.arrow()
    fields = {name: rows[name] for name in ("deleted", "missing", "net") if name in rows.column_names}
    for struct, letter in (("row", "c"), ("key", "k"), ("base", "b")):
        if struct in rows.column_names:
            fields |= _fields(rows[struct], letter)
    with duckdb.connect() as db:
        db.register("mirror", mirror)
        db.register("batch", pa.table(fields))
        if not changes.schema.key:
            found = _bag(db, changes.schema, mirror)
        elif changes.partial:
            found = _upserts(db, changes.schema, _filled(db, changes.schema))
        else:
            found = _upserts(db, changes.schema, "batch")
        return found.cast(mirror.schema)


def _fields(structs: pa.ChunkedArray, letter: str) -> dict[str, pa.ChunkedArray]:
    return {f"{letter}{place}": pc.struct_field(structs, [place]) for place in range(structs.type.num_fields)}


def _upserts(db: duckdb.DuckDBPyConnection, schema: TableSchema, batch: str) -> pa.Table:
    """What the batch does not name stays; what it does not delete comes."""
    columns = _list(f"c{place}" for place in range(len(schema.columns)))
    return db.execute(
        f"select {columns} from mirror m where not exists (select 1 from {batch} b where {_at(schema, 'k')})"
        f" union all select {columns} from {batch} where not deleted"
    ).to_arrow_table()


def _filled(db: duckdb.DuckDBPyConnection, schema: TableSchema) -> str:
    """The batch with columns that were not sent, from the row that the mirror has under the base key."""
    key = next(place for place, column in enumerate(schema.columns) if column.key)
    lost = db.execute(
        f"select count(*) from batch b left join mirror m on {_at(schema, 'b')}"
        f" where len(b.missing) > 0 and m.c{key} is null"
    ).fetchone()
    if lost is not None and lost[0]:
        raise TableFailed(
            schema.name,
            PartialRow(f"{lost[0]} rows lack columns that were not sent, and have no row to take them from."),
        )
    values = _list(
        f"case when list_contains(b.missing, $name{place}) then m.c{place} else b.c{place} end as c{place}"
        for place in range(len(schema.columns))
    )
    keys = _list(f"b.k{place}" for place in range(len(schema.key)))
    db.execute(
        f"create temp table filled as select b.deleted, {keys}, {values}"
        f" from batch b left join mirror m on len(b.missing) > 0 and {_at(schema, 'b')}",
        {f"name{place}": avro_name(column.name) for place, column in enumerate(schema.columns)},
    )
    return "filled"


def _bag(db: duckdb.DuckDBPyConnection, schema: TableSchema, mirror: pa.Table) -> pa.Table:
    """Rows without a key: so many copies come, so many go, whichever they are."""
    columns = [f"c{place}" for place in range(len(schema.columns))]
    same = " and ".join(f"m.{each} is not distinct from g.{each}" for each in columns)
    some = f"select {_list(columns)}, sum(net) as net from batch group by all"
    kept = db.execute(
        f"select {_list(f'm.{each}' for each in columns)}"
        f" from (select *, row_number() over (partition by {_list(columns)}) as copy from mirror) m"
        f" left join ({some}) g on g.net < 0 and {same} where m.copy > coalesce(-g.net, 0)"
    ).to_arrow_table()
    going = db.execute(f"select coalesce(sum(-net), 0) from ({some}) where net < 0").fetchone()
    if going is not None and mirror.num_rows - kept.num_rows != going[0]:
        raise TableFailed(schema.name, PartialRow(f"{going[0]} rows were to go, and not all of them were found."))
    coming = db.execute(f"select {_list(columns)} from ({some}) g, range(greatest(g.net, 0)::bigint)").to_arrow_table()
    return pa.concat_tables([kept.cast(mirror.schema), coming.cast(mirror.schema)])


def _at(schema: TableSchema, letter: str) -> str:
    """Where row `m` has the key that row `b` names."""
    places = [place for place, column in enumerate(schema.columns) if column.key]
    return " and ".join(f"m.c{place} = b.{letter}{number}" for number, place in enumerate(places))


def _list(parts: Iterable[str]) -> str:
    return ", ".join(parts)
