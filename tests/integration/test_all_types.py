"""Every type, with values at its edges, by copy and by stream, on both paths: source and destination are compared.

`PENSTOCK_TEST_POSTGRES_VERSIONS` says on which versions of Postgres; `make test-matrix` takes all.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import fastavro
import psycopg
import pytest
from pyspark.sql import SparkSession

from capture.transcode.choose import kernel_path
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.waiting import Held
from schemas.pg_types import registry
from schemas.pg_types.dates import parse_timestamp
from schemas.phases import Errored
from schemas.topics import Topics
from schemas.wire import HEADER_BYTES, schema_id_of
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic
from tests.support.pipeline import Pipeline
from tests.support.type_cases import (
    BYTES,
    LISTS_OF_LISTS,
    MADE,
    MADE_SCALARS,
    SCALARS,
    ZONED,
    Case,
    array_case,
    completed,
)

VERSIONS = [int(each) for each in os.environ.get("PENSTOCK_TEST_POSTGRES_VERSIONS", "14,17").split(",")]
TABLES = ("scalars", "lists")
STREAMED = 1000
Running: TypeAlias = tuple[Pipeline, psycopg.Connection, dict[str, tuple[Case, ...]]]
NOT_FOR_COLUMNS = {
    "gtsvector",
    "pg_node_tree",
    "pg_ndistinct",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary",
}
"""What no client can write."""
AS_PENSTOCK_PROMISES = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    "quote_all_identifiers": "off",
}
OTHERWISE = {
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "timezone": "'Asia/Kolkata'",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "search_path": "other, public",
    "quote_all_identifiers": "on",
}
"""How the database prints values where a session says nothing."""
KEYED = (
    Case("sale", ("0.10", "5", "7.25")),
    Case("mood", ("happy", "so so", "")),
    Case("timestamptz", ("infinity", "0044-03-15 12:00:00+00 BC", "2024-02-29 00:00:00+00"), ZONED),
    Case("int[]", ("array[1, null]", "array[]::int[]", "array[3]"), array=True),
    Case("bytea", ("\\x00ff", "\\x", "\\x41"), BYTES),
    Case("numeric", ("0", "0", "0")),
)
HELD_AS = {
    "price": "DECIMAL(10,2)",
    "sale": "DECIMAL(10,2)",
    "born": "DATE",
    "good_mood": "VARCHAR",
    "price[]": "DECIMAL(10,2)[]",
    "sale[]": "DECIMAL(10,2)[]",
    "born[]": "DATE[]",
    "mood[]": "VARCHAR[]",
    "address[]": "VARCHAR[]",
    "good_mood[]": "VARCHAR[]",
    "numbers": "INTEGER[]",
    "prices": "DECIMAL(10,2)[]",
    "numbers[]": "VARCHAR[]",
}
UNHELD = {
    "matrix": ("mood[]", '{{happy,NULL},{"so so",""}}', "more than one dimension"),
    "far": ("timestamptz", "294276-12-31 23:59:59.999999+00", "294247-01-10"),
}
"""The first comes by copy, the other by stream."""


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: f"postgres{version}")
def server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    with LocalPostgres(request.param) as started:
        yield started


PATHS = ["kernel", "reference"] if kernel_path() is not None else ["reference"]


@pytest.fixture(scope="module", params=PATHS)
def running(
    request: pytest.FixtureRequest,
    server: LocalPostgres,
    kafka: LocalKafka,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    """A pipeline that has copied all tables, and has streamed every row of them once more."""
    name = f"t{secrets.token_hex(4)}"
    with Pipeline(name, server, kafka, spark, tmp_path_factory.mktemp("types")) as pipeline:
        pipeline.sql(*MADE, *(f'alter database "{name}" set {key} = {value}' for key, value in OTHERWISE.items()))
        tables = _tables(pipeline.source)
        for table, cases in tables.items():
            pipeline.sql(_create(table, cases), *_inserts(table, cases))
        for table, (kind, _, _) in UNHELD.items():
            pipeline.sql(f"create table {table} (id int primary key, it {kind})")
        columns = ", ".join(f"c{number} {case.type}" for number, case in enumerate(KEYED))
        pipeline.sql(
            f"create table keyed (id int, {columns}, primary key (c0, c1, c2, c3, c4))", *_inserts("keyed", KEYED)
        )
        pipeline.sql(f"insert into matrix values (1, '{UNHELD['matrix'][1]}')")
        pipeline.publish(*tables, "keyed", *UNHELD)
        pipeline.start_capture(PENSTOCK_KERNEL="" if request.param == "kernel" else request.param)
        pipeline.start_apply()
        pipeline.settle(*tables, "keyed", *UNHELD, held=Held.PASSED_OVER)
        for table, cases in tables.items():
            columns = ", ".join(f"c{number}" for number in range(len(cases)))
            pipeline.sql(f"insert into {table} select id + {STREAMED}, {columns} from {table}")
        pipeline.sql(f"insert into far values (1, '{UNHELD['far'][1]}')")
        pipeline.sql(
            "update keyed set c5 = 1.50 where id = 0",
            "update keyed set c0 = c0 + 1, c3 = array[7] where id = 1",
            "delete from keyed where id = 2",
        )
        pipeline.settle(*tables, "keyed", *UNHELD, held=Held.PASSED_OVER)
        with psycopg.connect(server.dsn(name), autocommit=True, options=_options(AS_PENSTOCK_PROMISES)) as client:
            yield pipeline, client, tables | {"keyed": KEYED}


def _tables(source: psycopg.Connection) -> dict[str, tuple[Case, ...]]:
    cases = (*completed(source, SCALARS), *MADE_SCALARS)
    return {"scalars": cases, "lists": (*(array_case(case) for case in cases), *LISTS_OF_LISTS)}


def _options(settings: Mapping[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _create(table: str, cases: Sequence[Case]) -> str:
    columns = ", ".join(f"c{number} {case.type}" for number, case in enumerate(cases))
    return f"create table {table} (id int primary key, {columns})"


def _inserts(table: str, cases: Sequence[Case]) -> Iterator[str]:
    """Row by row the next value of every column; NULL where there is none left, in the last row everywhere."""
    rows = max(len(case.values) for case in cases)
    for row in range(rows if table == "keyed" else rows + 1):
        values = [case.cast(case.values[row]) if row < len(case.values) else "null" for case in cases]
        yield f"insert into {table} values ({row}, {', '.join(values)})"


@pytest.mark.parametrize("table", [*TABLES, "keyed"])
def test_every_type_is_at_the_destination_as_at_the_source(running: Running, table: str) -> None:
    pipeline, client, tables = running
    cases = tables[table]
    assert pipeline.known_phase(table) == "Ready", pipeline.report(table)
    from_postgres = ", ".join(case.from_postgres(f"c{number}") for number, case in enumerate(cases))
    from_duckdb = ", ".join(case.from_duckdb(f"c{number}") for number, case in enumerate(cases))

    source = client.execute(f"select id, {from_postgres} from public.{table} order by id").fetchall()
    lake = pipeline.lake(f"select id, {from_duckdb} from public.{table} order by id")

    assert [row[0] for row in lake] == [row[0] for row in source]
    assert any(row[0] >= STREAMED for row in lake) == (table in TABLES)
    different = [
        (row[0], case.type, mine, theirs)
        for row, other in zip(source, lake, strict=True)
        for case, mine, found in zip(cases, row[1:], other[1:], strict=True)
        if mine != (theirs := case.told(found))
    ]
    assert different == []


def test_a_domain_has_the_type_of_its_base_and_an_array_is_a_list(running: Running) -> None:
    pipeline, _, tables = running

    found = {
        case.type: dict(pipeline.lake(f"select column_name, column_type from (describe public.{table})"))[f"c{number}"]
        for table in TABLES
        for number, case in enumerate(tables[table])
        if case.type in HELD_AS
    }

    assert found == HELD_AS


def test_the_path_is_the_one_that_was_asked_for(running: Running, request: pytest.FixtureRequest) -> None:
    pipeline, *_ = running
    wanted = request.node.callspec.params["running"]

    assert ("compiled kernel" if wanted == "kernel" else "reference path") in (
        pipeline.folder / "capture0.log"
    ).read_text()


@pytest.mark.parametrize("table", [*TABLES, "keyed", "far"])
def test_the_stream_has_the_shape_of_the_copy_so_that_no_other_follows(running: Running, table: str) -> None:
    pipeline, *_ = running

    with KafkaLog(pipeline.config().kafka) as log:
        copies = [topic for topic in log.topics() if topic.startswith(f"{pipeline.change_topic(table)}.copy.")]

    assert len(copies) == 1
    assert pipeline.records(pipeline.change_topic(table)) > 0


@pytest.mark.parametrize("table", UNHELD)
def test_what_duckdb_cannot_hold_is_on_the_topic_and_stops_its_table_with_a_reason(
    running: Running, table: str
) -> None:
    pipeline, client, _ = running
    _, value, reason = UNHELD[table]

    report = pipeline.report(table)

    assert report is not None
    assert isinstance(report.phase, Errored)
    assert "column it" in report.phase.reason
    assert reason in report.phase.reason
    assert value not in report.phase.reason
    row = client.execute(f"select it::text from public.{table}").fetchone()
    assert row == (value,)
    (carried,) = _carried(pipeline, table)
    assert carried == (parse_timestamp(value) if table == "far" else value)


def _carried(pipeline: Pipeline, table: str) -> list[Any]:
    """The values of the column on the copy topic and the change topic."""
    config = pipeline.config()
    with KafkaLog(config.kafka) as log:
        schemas = SchemaTopic(config.kafka, log, Topics(config.pipeline).schemas)
        mine = [topic for topic in log.topics() if f"{topic}.".startswith(f"{pipeline.change_topic(table)}.")]
        ends = log.ends(mine)
        records = [record.value for topic in mine for record in log.read(topic, 0, ends[topic][0]) if record.value]
        return [_plain(schemas.get(schema_id_of(record)).avro, record)["after"]["it"] for record in records]


def _plain(schema: dict[str, Any], record: bytes) -> dict[str, Any]:
    """Without logical types: Python has no moment for such a timestamp."""
    row = schema["fields"][0]["type"][1]
    for field in row["fields"]:
        field["type"] = [each["type"] if "logicalType" in each else each for each in field["type"]]
    read = fastavro.schemaless_reader(io.BytesIO(record[HEADER_BYTES:]), schema, None)
    assert isinstance(read, dict)
    return read


def test_the_type_table_is_that_of_the_server(server: LocalPostgres) -> None:
    with psycopg.connect(server.dsn()) as client:
        found = client.execute(
            """select t.oid::bigint, t.typarray::bigint, t.typname, e.typdelim::text from pg_type t
                 join pg_type e on e.oid = t.oid
                where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm')
                  and t.typoutput <> 'array_out'::regproc"""
        ).fetchall()

    on_the_server = {row[2]: row for row in found if row[2] not in NOT_FOR_COLUMNS}
    known = {each.name: (each.oid, each.array_oid, each.name, each.delimiter) for each in registry.SCALARS}
    assert known == on_the_server


def test_every_type_of_the_table_has_a_case(server: LocalPostgres) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as client:
        kinds = [case.type.partition("(")[0] for case in (*SCALARS,)]
        tested = {
            row[0]
            for kind in kinds
            if (row := client.execute("select %s::regtype::oid", [kind]).fetchone()) is not None
        }

    assert {each.oid for each in registry.SCALARS} - tested == {142}, "xml depends on how the server was built"
