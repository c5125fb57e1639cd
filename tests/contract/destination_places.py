"""Where the contract of destinations is tried: our own places.

A further destination joins the suite with a Place of its own in PLACES and `make_place`. What goes in, and the suite
itself, is in `destination_contract`; the names that tests of single destinations use can be had from here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clickhouse_connect
import duckdb
import psycopg
import pytest
from psycopg import sql
from psycopg.types.string import TextLoader
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Destination
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.destinations.clickhouse_types import quoted as quoted_for_clickhouse
from apply_spark.destinations.delta import DeltaDestination
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.destinations.ducklake import DuckLakeDestination, load_extension
from apply_spark.destinations.iceberg import IcebergDestination
from apply_spark.destinations.memory import MemoryDestination
from apply_spark.destinations.parquet import ParquetDestination
from apply_spark.destinations.postgres import PostgresDestination
from console.local_stack.postgres import LocalPostgres
from destination_contract.batches import (
    Event,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    upsert,
)
from destination_contract.place import Place
from destination_contract.samples import Sample
from destination_contract.tables import EVENTS, ITEMS, ORDERS
from schemas.identifiers import DestinationName
from schemas.table import TableSchema
from schemas.topics import escaped
from tests.contract.destination_types import is_of_clickhouse, is_of_parquet, is_of_spark
from tests.support.parquet_log import ParquetLog
from tests.support.s3_server import KEY_ID, REGION, SECRET, S3Server

__all__ = [
    "EVENTS",
    "FURTHER",
    "ITEMS",
    "LAKE",
    "NAMES",
    "ORDERS",
    "PLACES",
    "ClickHousePlace",
    "DeltaPlace",
    "DuckDbPlace",
    "DuckLakePlace",
    "Event",
    "IcebergPlace",
    "MemoryPlace",
    "ParquetPlace",
    "Place",
    "PostgresPlace",
    "S3Place",
    "a_batch",
    "a_progress",
    "bag_changes",
    "changes",
    "copied",
    "fill",
    "gone",
    "in_a_folder",
    "make_place",
    "quoted",
    "upsert",
]

LAKE = DestinationName("lake")


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

    def holds(self, sample: Sample) -> bool:
        return is_of_spark(sample)

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As Spark prints the values."""
        columns = [F.col(f"`{column.name}`").cast("string") for column in schema.columns]
        return [tuple(row) for row in self.frame(schema).select(*columns).collect()]


class IcebergPlace:
    """A catalog, read as any other user of Spark and Iceberg does. The session knows each by its name."""

    def __init__(self, spark: SparkSession, name: str | None = None, **options: str) -> None:
        self.name = DestinationName(name or f"lake_{secrets.token_hex(4)}")
        self.options = options
        self.spark = spark

    def opened(self) -> IcebergDestination:
        return IcebergDestination(self.name, self.options)

    def frame(self, schema: TableSchema) -> DataFrame:
        return self.spark.table(self.table(schema))

    def table(self, schema: TableSchema) -> str:
        return ".".join(f"`{part}`" for part in (self.name, *[escaped(part) for part in schema.name]))

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.frame(schema).collect()]

    def holds(self, sample: Sample) -> bool:
        return is_of_spark(sample)

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As Spark prints the values."""
        columns = [F.col(f"`{column.name}`").cast("string") for column in schema.columns]
        return [tuple(row) for row in self.frame(schema).select(*columns).collect()]


def in_a_folder(folder: Path, spark: SparkSession, name: str | None = None) -> IcebergPlace:
    """A Hadoop catalog."""
    return IcebergPlace(spark, name, catalog="hadoop", warehouse=str(folder / "lake"))


class ClickHousePlace:
    """A folder that ClickHouse's engine has its tables in. A process has one engine at a time: while a destination has
    the folder open, readers share its engine."""

    def __init__(self, folder: Path) -> None:
        self.options = {"dsn": f"chdb://{folder / 'lake'}", "database": "mirror_{schema}"}

    def opened(self) -> Destination:
        return ClickHouseDestination(LAKE, self.options)

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self.query(f"select * from {self.view(schema)}")

    def holds(self, sample: Sample) -> bool:
        return is_of_clickhouse(sample)

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

    is_log = True

    def __init__(self, folder: Path) -> None:
        self.options = {"path": str(folder / "log")}
        self.log = ParquetLog(LocalFileSystem(), self.options["path"])

    def opened(self) -> ParquetDestination:
        return ParquetDestination(LAKE, self.options)

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return self.log.replayed(LAKE, schema.name)

    def holds(self, sample: Sample) -> bool:
        return is_of_parquet(sample)


class S3Place(ParquetPlace):
    """A change log in a bucket of its own."""

    def __init__(self, server: S3Server) -> None:
        self.server, self.bucket = server, server.made_bucket()
        self.options = {
            "path": f"s3://{self.bucket}/a log/of ours",
            "endpoint": server.endpoint,
            "region": REGION,
            "access_key_id": KEY_ID,
            "secret_access_key": SECRET,
        }
        self.log = ParquetLog(server.files(), f"{self.bucket}/a log/of ours")


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
        case "iceberg":
            return in_a_folder(request.getfixturevalue("tmp_path"), request.getfixturevalue("spark"))
        case "parquet-s3":
            return S3Place(request.getfixturevalue("s3"))
        case "postgres":
            return PostgresPlace(request.getfixturevalue("postgres"))
        case _:
            return _IN_A_FOLDER[kind](request.getfixturevalue("tmp_path"))


FURTHER = pytest.mark.further
"""Of engines beside those that most tests use: `make test-destinations`."""
_MOST, _FURTHER = ("memory", "duckdb"), ("clickhouse", "delta", "ducklake", "iceberg", "parquet", "postgres")
NAMES = (*_MOST, *_FURTHER)
"""Of types of destinations; one may have several places."""
PLACES = (*_MOST, *(pytest.param(name, marks=FURTHER) for name in (*_FURTHER, "parquet-s3")))


def quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
