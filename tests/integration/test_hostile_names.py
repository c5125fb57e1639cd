"""Names that try to be more than names, from Postgres to the topics. destination_contract/odd_names.py goes on."""

from __future__ import annotations

from psycopg import sql

from destination_contract.odd_names import HOSTILE, ODD_NAMES
from tests.support.captured import MakeCaptured

PUBLICATION = """pub"lication', "b"; drop table t; --"""
TABLE, KEY = sql.Identifier(*HOSTILE), ("row", "dot.ted")


def statement(text: str, **parts: sql.Composable) -> str:
    return sql.SQL(text).format(table=TABLE, **parts).as_string()


def test_hostile_names_are_copied_and_streamed_as_they_are(captured: MakeCaptured) -> None:
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in ODD_NAMES)
    values = sql.SQL(", ").join(sql.SQL("i || {}").format(sql.Literal(f" {name}")) for name in ODD_NAMES)
    key = sql.SQL(", ").join(map(sql.Identifier, KEY))
    insert = "insert into {table} select {values} from generate_series({first}, {last}) i"
    every = statement("select * from {table}")
    too_long = sql.Identifier(HOSTILE.schema, "é" * 31)

    pipeline, log = captured(
        statement("create schema {schema}", schema=sql.Identifier(HOSTILE.schema)),
        statement("create table {table} ({columns}, primary key ({key}))", columns=columns, key=key),
        statement(insert, values=values, first=sql.Literal(1), last=sql.Literal(20)),
        statement("create table {long} (id int primary key)", long=too_long),
        statement(
            "create publication {name} for table {table}, {long}", name=sql.Identifier(PUBLICATION), long=too_long
        ),
        publish=None,
        PENSTOCK_SOURCE__PUBLICATION=PUBLICATION,
    )
    log.assert_rows(str(HOSTILE), every)
    pipeline.sql(
        statement(insert, values=values, first=sql.Literal(21), last=sql.Literal(30)),
        statement("update {table} set {a} = {b}", a=sql.Identifier("new\nline"), b=sql.Identifier("{a}")),
        statement("insert into {long} values (1)", long=too_long),
        statement("delete from {table} where {a} like '1%'", a=sql.Identifier("row")),
    )
    log.assert_rows(str(HOSTILE), every)

    assert log.columns(str(HOSTILE)) == list(ODD_NAMES)
    assert len(log.generations(str(HOSTILE))) == 1, "the changes came by the stream"
    assert "would have a name of 2" in pipeline.capture_log(), "more than Kafka takes: left out, and told"
