"""Where the contract of destinations is tried, and the values that go in.

A further destination joins the suite with a Place of its own in PLACES and `make_place`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import clickhouse_connect
import duckdb
import psycopg
import pytest
from psycopg import sql
from psycopg.types.string import TextLoader
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention
from pyspark.sql import types as T  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Batch, Destination, TableChanges
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.destinations.clickhouse_types import quoted as quoted_for_clickhouse
from apply_spark.destinations.delta import DeltaDestination
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.destinations.ducklake import DuckLakeDestination, load_extension
from apply_spark.destinations.memory import MemoryDestination
from apply_spark.destinations.parquet import ParquetDestination
from apply_spark.destinations.postgres import PostgresDestination
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import Rows, SparkRows
from console.local_stack.postgres import LocalPostgres
from schemas.envelope import avro_name
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.pg_types.registry import column_type
from schemas.phases import Phase, Ready
from schemas.table import Column, TableSchema
from schemas.topics import escaped
from tests.support.builders import INT8, a_column, a_table
from tests.support.frames import a_frame
from tests.support.parquet_log import replayed

LAKE = DestinationName("lake")
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

_SPARK_TYPES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
}


class Place(Protocol):
    """Somewhere a destination writes, and how a client reads there."""

    def opened(self) -> Destination:
        """The destination as a new process would make it; what was written before is still there."""

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        """Every row, in the order of the columns."""


class MemoryPlace:
    def __init__(self) -> None:
        self._destination = MemoryDestination(LAKE, {})

    def opened(self) -> Destination:
        self._destination.shutdown()
        return self._destination

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self._destination.rows(schema.name)


class DuckDbPlace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake.duckdb"

    def opened(self) -> Destination:
        return DuckDbDestination(LAKE, {"path": self.path})

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self.query(f"select * from {quoted('lake', *schema.name)}")

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As DuckDB prints the values: Python has no infinity among dates, and no year 10000."""
        return self.query(f"select cast(columns(*) as varchar) from {quoted('lake', *schema.name)}")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.path) as client:
            client.execute("set timezone = 'UTC'")
            return client.execute(statement).fetchall()


class DuckLakePlace(DuckDbPlace):
    """Its metadata in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = {"catalog": str(folder / "lake.ducklake"), "data_path": str(folder / "lake_files")}

    def opened(self) -> Destination:
        return DuckLakeDestination(LAKE, self.options)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as client:
            load_extension(client, "ducklake")
            client.execute(f"attach 'ducklake:{self.options['catalog']}' as lake; set timezone = 'UTC'")
            return client.execute(statement).fetchall()


class PostgresPlace:
    """A database of its own on the server of the run."""

    def __init__(self, server: LocalPostgres) -> None:
        name = f"lake_{secrets.token_hex(4)}"
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        self.dsn = server.dsn(name)

    def opened(self) -> Destination:
        return PostgresDestination(LAKE, {"dsn": self.dsn})

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self.query(sql.SQL("select * from {}").format(sql.Identifier(*schema.name)))

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As Postgres prints the values."""
        columns = [sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in schema.columns]
        return self.query(
            sql.SQL("select {} from {}").format(sql.SQL(", ").join(columns), sql.Identifier(*schema.name))
        )

    def query(self, statement: sql.Composable) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, options="-c timezone=UTC -c lc_monetary=C") as client:
            for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval", "json", "jsonb"):
                client.adapters.register_loader(kind, TextLoader)  # Python has no infinity, and None is a value of json
            return client.execute(statement).fetchall()


class DeltaPlace:
    """A folder, read as any other user of Spark and Delta does."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.path = folder / "lake"
        self.spark = spark

    def opened(self) -> Destination:
        return DeltaDestination(LAKE, {"path": str(self.path)})

    def frame(self, schema: TableSchema) -> DataFrame:
        return self.spark.read.format("delta").load(self.folder(schema))

    def folder(self, schema: TableSchema) -> str:
        return str(self.path.joinpath(*[escaped(part) for part in schema.name]))

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.frame(schema).collect()]

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As Spark prints the values."""
        columns = [F.col(f"`{column.name}`").cast("string") for column in schema.columns]
        return [tuple(row) for row in self.frame(schema).select(*columns).collect()]


class ClickHousePlace:
    """A folder that ClickHouse's engine has its tables in. A process has one engine at a time: while a destination has
    the folder open, readers share its engine."""

    def __init__(self, folder: Path) -> None:
        self.options = {"dsn": f"chdb://{folder / 'lake'}", "database": "mirror_{schema}"}

    def opened(self) -> Destination:
        return ClickHouseDestination(LAKE, self.options)

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self.query(f"select * from {self.view(schema)}")

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As ClickHouse prints the values."""
        columns = [f"cast({quoted_for_clickhouse(c.name)} as Nullable(String))" for c in schema.columns]
        return self.query(f"select {', '.join(columns)} from {self.view(schema)}")

    def view(self, schema: TableSchema) -> str:
        return quoted_for_clickhouse(f"mirror_{schema.name.schema}", schema.name.name)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        client = clickhouse_connect.get_client(dsn=self.options["dsn"])
        try:
            return [tuple(row) for row in client.query(statement).result_rows]
        finally:
            client.close()

    def command(self, statement: str) -> None:
        client = clickhouse_connect.get_client(dsn=self.options["dsn"])
        try:
            client.command(statement)
        finally:
            client.close()


class ParquetPlace:
    """A change log, read by whoever wants to have the tables that it tells of."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"

    def opened(self) -> Destination:
        return ParquetDestination(LAKE, {"path": self.path})

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return replayed(self.path, LAKE, schema.name)


def needs_mirror(place: Place) -> None:
    """Ends a test about what a destination finds in its own rows. A log has none to look at: what is missing in a row
    is told to its readers."""
    if isinstance(place, ParquetPlace):
        pytest.skip("a log looks nothing up")


_IN_A_FOLDER: dict[str, Callable[[Path], Place]] = {
    "clickhouse": ClickHousePlace,
    "duckdb": DuckDbPlace,
    "ducklake": DuckLakePlace,
    "parquet": ParquetPlace,
}


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    match kind:
        case "memory":
            return MemoryPlace()
        case "delta":
            return DeltaPlace(request.getfixturevalue("tmp_path"), request.getfixturevalue("spark"))
        case "postgres":
            return PostgresPlace(request.getfixturevalue("postgres"))
        case _:
            return _IN_A_FOLDER[kind](request.getfixturevalue("tmp_path"))


FURTHER = pytest.mark.further
"""Of engines beside those that most tests use: `make test-destinations`."""
_MOST, _FURTHER = ("memory", "duckdb"), ("clickhouse", "delta", "ducklake", "parquet", "postgres")
NAMES = (*_MOST, *_FURTHER)
PLACES = (*_MOST, *(pytest.param(name, marks=FURTHER) for name in _FURTHER))


def quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Event(NamedTuple):
    """One folded row of a table with a key."""

    deleted: bool
    key: tuple[Any, ...] | None
    row: tuple[Any, ...] | None
    missing: list[str]
    base: tuple[Any, ...] | None


def upsert(*row: Any, missing: Sequence[str] = (), base: tuple[Any, ...] | None = None) -> Event:  # noqa: ANN401
    return Event(deleted=False, key=None, row=row, missing=list(missing), base=base)


def gone(*key: Any) -> Event:  # noqa: ANN401 -- values of any type
    return Event(deleted=True, key=key, row=None, missing=[], base=None)


def changes(spark: SparkSession, schema: TableSchema, *events: Event, truncate: bool = False) -> TableChanges:
    """What the fold gives for a table with a key."""
    image, key = _struct(schema), _struct(schema, key=True)
    shape = T.StructType(
        [
            T.StructField("deleted", T.BooleanType(), nullable=False),
            T.StructField("key", key, nullable=False),
            T.StructField("row", image),
            T.StructField("missing", T.ArrayType(T.StringType()), nullable=False),
            T.StructField("base", key),
        ]
    )
    with_keys = [event._replace(key=event.key or _key(schema, event.row or ())) for event in events]
    partial = any(event.missing for event in events)
    frame = a_frame(spark, with_keys, shape)
    return TableChanges(schema, truncate, SparkRows(frame if partial else frame.drop("missing", "base")), partial)


def bag_changes(
    spark: SparkSession, schema: TableSchema, *nets: tuple[tuple[Any, ...], int], truncate: bool = False
) -> TableChanges:
    """What the fold gives for a table without a key."""
    shape = T.StructType([T.StructField("row", _struct(schema)), T.StructField("net", T.LongType())])
    return TableChanges(schema, truncate, SparkRows(a_frame(spark, nets, shape)), partial=False)


def copied(spark: SparkSession, schema: TableSchema, rows: Iterable[tuple[Any, ...]]) -> Rows:
    return SparkRows(a_frame(spark, ((row,) for row in rows), T.StructType([T.StructField("row", _struct(schema))])))


def fill(
    destination: Destination, spark: SparkSession, schema: TableSchema, *rows: tuple[Any, ...], others: int = 0
) -> None:
    """A table there, with these rows; `others` keeps apart the progress of several calls."""
    destination.drop_table_for_copy(schema, a_progress(others + 1, schema))
    if rows:
        destination.write_table_rows(schema, copied(spark, schema, rows), a_progress(others + 2, schema))


def a_batch(*tables: TableChanges, lsn: int = 100) -> Batch:
    return Batch(tables, a_progress(lsn, *(table.schema for table in tables)))


def a_progress(lsn: int, *schemas: TableSchema, phase: Phase = Ready()) -> Progress:  # noqa: B008 -- a constant
    tables = [
        TableProgress(
            table=schema.name,
            phase=phase,
            generation=Lsn(7),
            schema_id=SchemaId(2**31 - 1),
            lsn=Lsn(lsn),
            epoch=Epoch(3),
            log_offset=lsn + 1,
            topic_offset=2**40,
            last_snapshot=Lsn(8),
        )
        for schema in schemas
    ]
    return Progress(
        log_id=LogId("log"),
        lsn=Lsn(lsn),
        epoch=Epoch(3),
        log_offset=lsn + 1,
        commit_ts=1_700_000_000_000_000,
        tables={table.table: table for table in tables},
    )


def _struct(schema: TableSchema, *, key: bool = False) -> T.StructType:
    columns = schema.key if key else schema.columns
    return T.StructType([T.StructField(avro_name(c.name), _column_type(c)) for c in columns])


def _column_type(column: Column) -> T.DataType:
    """As Spark reads the union of a column: a struct for an array, which has two branches."""
    types = [_spark_type(branch) for branch in column_type(column).branches[1:]]
    if len(types) == 1:
        return types[0]
    return T.StructType([T.StructField(f"member{number}", each) for number, each in enumerate(types)])


def _spark_type(avro: Any) -> T.DataType:  # noqa: ANN401 -- an Avro schema
    match avro:
        case {"type": "array", "items": [_, item]}:
            return T.ArrayType(_spark_type(item))
        case {"type": inner}:
            return _SPARK_TYPES[inner]
        case _:
            return _SPARK_TYPES[avro]


def _key(schema: TableSchema, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for column, value in zip(schema.columns, row, strict=True) if column.key)
