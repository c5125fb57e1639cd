"""Orders for destinations, made by DuckDB from their numbers: as a fold hands them over, and as an engine has them."""

# ruff: noqa: S608 -- statements are put together from constants of this file

from __future__ import annotations

import duckdb
import pyarrow as pa

from schemas.identifiers import TableId, TableName
from schemas.table import Column, TableSchema

_NUMERIC_12_2 = (12 << 16 | 2) + 4
ORDERS = TableSchema(
    TableId(1),
    TableName("public", "orders"),
    (
        Column("id", 20, "int8", nullable=False, key=True, number=1),
        Column("customer_id", 23, "int4", number=2),
        Column("placed_at", 1184, "timestamptz", number=3),
        Column("status", 25, "text", number=4),
        Column("currency", 25, "text", number=5),
        Column("amount", 1700, "numeric", _NUMERIC_12_2, number=6),
        Column("items", 23, "int4", number=7),
        Column("express", 16, "bool", number=8),
        Column("reference", 2950, "uuid", number=9),
        Column("note", 25, "text", number=10),
    ),
)
_VALUES = """
    id, (hash(id) % 100000)::integer as customer_id, 1767225600000000 + id * 1700000 as placed_at,
    ['new', 'paid', 'packed', 'shipped', 'delivered'][1 + (id + turn) % 5] as status,
    ['EUR', 'USD', 'GBP'][1 + id % 3] as currency,
    ((hash(id, turn) % 1000000)::decimal(14, 2) / 100)::decimal(12, 2)::varchar as amount,
    (1 + id % 9)::integer as items, id % 10 = 0 as express,
    (md5(id::varchar)[1:8] || '-' || md5(id::varchar)[9:12] || '-' || md5(id::varchar)[13:16] || '-'
     || md5(id::varchar)[17:20] || '-' || md5(id::varchar)[21:32]) as reference,
    case when id % 4 > 0 then 'leave it at the door of number ' || id end as note
"""
_ROW = "struct_pack({})".format(", ".join(f"{column.name} := {column.name}" for column in ORDERS.columns))
_TYPED = """
    id, customer_id, make_timestamp(placed_at)::timestamptz as placed_at, status, currency,
    amount::decimal(12, 2) as amount, items, express, reference, note
"""


def copied_rows(first: int, count: int) -> tuple[pa.Table, pa.Table]:
    """Rows of a copy, and the same with the types that an engine has for them."""
    return _made(f"select range as id, 0 as turn, false as deleted from range({first}, {first + count})", "row")


def changed_rows(rows: int, count: int, turn: int) -> tuple[pa.Table, pa.Table]:
    """So many changes of a table that began with `rows`: three fifths are updates, the others deletes and inserts, half
    each. No two turns have a key in common."""
    old, step = count * 4 // 5, rows * 5 // (count * 4)
    return _made(
        f"""select range * {step} + {turn} as id, {turn} as turn, range % 4 = 0 as deleted from range({old})
            union all select {rows + turn * count} + range, {turn}, false from range({count - old})""",
        "deleted, struct_pack(id := id) as key, case when not deleted then row end as row",
    )


def _made(numbers: str, as_folded: str) -> tuple[pa.Table, pa.Table]:
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        db.execute(f"create table made as select {_VALUES}, deleted from ({numbers})")
        folded = db.execute(f"select {as_folded} from (select *, {_ROW} as row from made)").to_arrow_table()
        typed = db.execute(f"select deleted, {_TYPED} from made").to_arrow_table()
    return folded, typed
