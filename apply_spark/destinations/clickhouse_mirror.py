"""The two halves of a mirror: a view with the source's names and nothing else, and the storage behind it.

The view has the name of the table, for a reader of a ReplacingMergeTree must say FINAL, and leave out what is deleted,
or it reads rows that are gone. The storage is in penstock's own database. That a view can be exchanged in one step is
how a table is truncated, copied anew, or takes on another shape, without a moment in which a reader sees a half.
"""

# ruff: noqa: S608 -- ClickHouse has no composer of statements: names pass through quoted, values are parameters

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client

from apply_spark.destinations.clickhouse_state import DURABLE, Mirror
from apply_spark.destinations.clickhouse_types import held_column, quoted, quoted_text
from apply_spark.errors import NotHeld, TableFailed
from apply_spark.reshape import defaults
from schemas.identifiers import DestinationName, TableName
from schemas.table import Column, TableSchema

OWN_COLUMNS = {"_version": "UInt64", "_deleted": "UInt8"}
"""Which record brought a row, and whether it took it away."""
ID_COLUMNS = {"_born": "UInt64", "_place": "UInt64"}
"""What stands for a key where there is none: the record that brought a row first, and its place there."""
_NULL_IN_AN_ARRAY = "allow_nullable_key = 1"
"""Of a key: an item may be NULL, the key never is."""
_NOT_WORD = re.compile(r"\W+", re.ASCII)
_READABLE = 80


class Names:
    """What a destination calls its databases and its own tables."""

    def __init__(self, destination: DestinationName, own_database: str, database: str) -> None:
        self._destination = destination
        self.own_database = own_database
        self._database = database
        self.suffix = f"_{hashlib.sha256(destination.encode()).hexdigest()[:8]}"
        self.comment = f"penstock {destination}"

    def own(self, name: str) -> str:
        return quoted(self.own_database, name)

    def storage(self, table: TableName, version: int) -> str:
        """A file of the server has this name, so it is short and plain; what makes it unique is the version."""
        readable = _NOT_WORD.sub("_", f"{table.schema}_{table.name}")[:_READABLE]
        return f"{readable}_{version}{self.suffix}"

    def temporary(self, what: str, version: int, number: int) -> str:
        return f"{what}_{version}_{number}{self.suffix}"

    def database(self, table: TableName) -> str:
        """TableFailed: it is penstock's own."""
        name = self._database.replace("{schema}", table.schema)
        if name == self.own_database:
            raise TableFailed(table, NotHeld(f"The database {name} of a destination is penstock's own."))
        return name

    def view(self, table: TableName) -> str:
        return quoted(self.database(table), table.name)


def make_storage(client: Client, names: Names, mirror: Mirror, schema: TableSchema) -> None:
    columns = {mirror.stored(column): held_column(column).name for column in schema.columns}
    key = [mirror.stored(column) for column in schema.key] or list(ID_COLUMNS)
    own = OWN_COLUMNS if schema.key else ID_COLUMNS | OWN_COLUMNS
    defined = ", ".join(f"{quoted(name)} {kind}" for name, kind in (columns | own).items())
    client.command(f"drop table if exists {names.own(mirror.storage)}")
    client.command(
        f"create table {names.own(mirror.storage)} ({defined}) engine = ReplacingMergeTree(_version, _deleted)"
        f" order by ({', '.join(quoted(name) for name in key)}) settings {DURABLE}, {_NULL_IN_AN_ARRAY}"
    )


def make_view(client: Client, names: Names, mirror: Mirror) -> None:
    """In one step, whatever view of this destination stood there."""
    shown = ", ".join(f"{quoted(each.stored)} as {quoted(each.name)}" for each in mirror.columns)
    client.command(f"create database if not exists {quoted(names.database(mirror.table))}")
    client.command(
        f"create or replace view {names.view(mirror.table)}"
        f" as select {shown} from {names.own(mirror.storage)} final comment {quoted_text(names.comment)}"
    )


def is_taken(client: Client, names: Names, table: TableName) -> bool:
    """Whether something stands at the place of the view that this destination did not make."""
    found = client.query(
        "select comment from system.tables where database = {database:String} and name = {name:String}",
        parameters={"database": names.database(table), "name": table.name},
    ).result_rows
    return bool(found) and found[0][0] != names.comment


def add_columns(client: Client, names: Names, mirror: Mirror, columns: list[Column]) -> None:
    """Rows that are there have in them what the source shows. No row is touched, and the view does not show them yet;
    repeated, it does nothing."""
    for column in columns:
        value = "" if column.missing is None else f" default {literal(mirror.table, column)}"
        added = f"add column if not exists {quoted(mirror.stored(column))} {held_column(column).name}{value}"
        client.command(f"alter table {names.own(mirror.storage)} {added}")


def drop_stray_columns(client: Client, names: Names, mirrors: Iterable[Mirror]) -> None:
    """What a storage has and no view shows: columns that the source dropped."""
    shown = {mirror.storage: {each.stored for each in mirror.columns} for mirror in mirrors}
    own = OWN_COLUMNS.keys() | ID_COLUMNS.keys()
    for table, name in _rows(client, names, "table, name from system.columns where database"):
        if table in shown and name not in shown[table] | own:
            client.command(f"alter table {names.own(table)} drop column if exists {quoted(name)}")


def own_tables(client: Client, names: Names) -> set[str]:
    """Storages and staged rows of this destination."""
    return {
        name
        for (name,) in _rows(client, names, "name from system.tables where database")
        if name.endswith(names.suffix)
    }


def _rows(client: Client, names: Names, what: str) -> Sequence[Any]:
    return client.query(f"select {what} = {{own:String}}", parameters={"own": names.own_database}).result_rows


def literal(table: TableName, column: Column) -> str:
    """What `missing` of a column says, in SQL."""
    held = held_column(column)
    values = pc.struct_field(defaults([column])["row"], [0]).combine_chunks()
    if held.has_misfits(values):
        raise TableFailed(
            table,
            NotHeld(
                f"What its rows have in the new column {column.name} does not fit {held.name}: ClickHouse has no place"
                f" for {held.unheld}.",
                solution="Leave the column out of the publication; then run `penstock resync TABLE`.",
            ),
        )
    if not held.is_list:
        return _literal(held.scalar.name, held.arrays(values)[0][0].as_py())
    items, text, _ = (array[0].as_py() for array in held.arrays(values))
    if text is not None:
        return f"cast({quoted_text(text)} as {held.name})"
    inner = held.scalar.name
    listed = ", ".join(_literal(inner, item) for item in items)
    return f"cast(cast([{listed}] as Array(Nullable({inner}))) as {held.name})"


def _literal(kind: str, value: Any) -> str:  # noqa: ANN401 -- of any type
    match value:
        case None:
            return "null"
        case float():  # by its bits: text is read nearly right
            code, unsigned = ("<f", "UInt32") if kind == "Float32" else ("<d", "UInt64")
            number = int.from_bytes(struct.pack(code, value), "little")
            return f"reinterpret(cast('{number}' as {unsigned}), '{kind}')"
        case bytes():
            return f"unhex('{value.hex()}')"
        case bool():
            return str(value).lower()
        case datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case date():
            text = value.isoformat()
        case Decimal():
            text = format(value, "f")
        case _:
            text = str(value)
    return f"cast({quoted_text(text)} as {kind})"
