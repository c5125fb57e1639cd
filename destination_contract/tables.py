"""Tables of tests: each builder gives a plain value, and takes only what the test is about."""

from __future__ import annotations

from schemas.identifiers import TableId, TableName
from schemas.pg_types.registry import pg_type
from schemas.table import Column, ReplicaIdentity, TableSchema

INT8, TEXT, FLOAT8 = 20, 25, 701


def a_column(
    name: str = "note",
    type_oid: int = TEXT,
    *,
    nullable: bool = True,
    key: bool = False,
    number: int = 0,
    missing: str | None = None,
) -> Column:
    return Column(name, type_oid, pg_type(type_oid).name, nullable=nullable, key=key, number=number, missing=missing)


def a_table(
    *columns: Column,
    name: TableName = TableName("public", "orders"),  # noqa: B008 -- a constant
    table_id: int = 16_384,
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
) -> TableSchema:
    """A table of the given columns; without any, `id int8 primary key, note text`."""
    columns = columns or (a_column("id", INT8, nullable=False, key=True), a_column())
    return TableSchema(TableId(table_id), name, columns, identity, max(column.number for column in columns))


ORDERS = a_table(a_column("id", INT8, key=True), a_column("note"), a_column("amount", INT8))
ITEMS = a_table(
    a_column("note"),
    a_column("order", INT8, key=True),
    a_column("line", key=True),
    name=TableName("shop", "items"),
    table_id=16_385,
)
EVENTS = a_table(a_column("note"), a_column("amount", INT8), name=TableName("public", "events"), table_id=16_386)
"""Without a key."""
