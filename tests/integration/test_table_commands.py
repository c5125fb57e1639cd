"""What operators ask of one table: to pause, to resume, to skip a change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from console.control import send_command
from schemas.control import Pause, Resume, Resync
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn, Position
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic
from tests.conftest import MakePipeline
from tests.integration.test_bad_input import assert_refused, penstock
from tests.support.envelopes import Envelopes
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile, writes_of_every_kind
from tests.support.pipeline import Pipeline

ALL = ("t", "u", "bag")


def is_paused(pipeline: Pipeline, table: str) -> bool:
    report = pipeline.report(table)
    return report is not None and report.paused


def test_a_paused_table_stands_still_and_goes_on_exactly_after_writes_a_new_shape_and_a_new_copy(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    config = pipeline.config()
    for table in ("t", "u"):
        pipeline.sql(
            f"create table {table} (id int primary key, payload text, n int)",
            f"insert into {table} select i, 'old', 0 from generate_series(1, 20000) i",
        )
    pipeline.sql("create table bag (n int)")
    pipeline.publish()
    pipeline.start()
    pipeline.settle(*ALL)
    lake = DestinationName("lake")
    paused = [TableName("public", "t"), TableName("public", "u")]

    with meanwhile(writes_of_every_kind(pipeline, "t", "bag")), meanwhile(writes_of_every_kind(pipeline, "u", "bag")):
        send_command(config, Pause(TableName("public", "bag"), DestinationName("another")))
        for name in paused:
            send_command(config, Pause(name, lake))
        eventually(lambda: is_paused(pipeline, "t") and is_paused(pipeline, "u"), what="the pause")
        before = [pipeline.lake(f"select count(*), sum(n), max(id) from public.{table}") for table in ("t", "u")]
        generation, bags = pipeline.generation("u"), pipeline.lake("select count(*) from public.bag")
        pipeline.sql("alter table t add column extra int default 5", "alter table t rename payload to note")
        send_command(config, Resync(paused[1]))
        eventually(lambda: pipeline.generation("u") > generation, what="the new copy to be told")
        pipeline.stop_apply()
        pipeline.start_apply()
        released = pipeline.wal_lsn()
        eventually(lambda: pipeline.confirmed_lsn() >= released, what="WAL to be released all the same")
        eventually(lambda: pipeline.lake("select count(*) from public.bag") > bags, what="others to go on")
        during = [pipeline.lake(f"select count(*), sum(n), max(id) from public.{table}") for table in ("t", "u")]
        assert is_paused(pipeline, "t")
        assert is_paused(pipeline, "u")
        assert not is_paused(pipeline, "bag")
        for name in paused:
            send_command(config, Resume(name))
        eventually(lambda: pipeline.known_phase("u") == "Ready", what="the new copy to be ready")

    assert during == before
    pipeline.assert_equal(*ALL)


def position_of(pipeline: Pipeline, table: str, key: int) -> Position:
    """Where the topic has the change that made this row, as an operator finds it with any reader of Kafka."""
    config = pipeline.config()
    topics = Topics(config.pipeline)
    with KafkaLog(config.kafka) as log:
        envelopes = Envelopes(SchemaTopic(config.kafka, log, topics.schemas))
        records = list(log.read_all(topics.changes(TableName("public", table))))
        changes = [envelopes.read(record.value)[1] for record in records]
    (found,) = [change["source"] for change in changes if change["after"]["id"] == key]
    return Position(Lsn(found["commit_lsn"]), found["ordinal"])


def told(file: Path) -> dict[str, Any]:
    report = json.loads(penstock("status", "-c", str(file), "--json").stdout)
    table: dict[str, Any] = report["destinations"]["lake"]["tables"]["public.bad"]
    return table


def test_one_change_is_skipped_and_that_is_remembered_until_a_new_copy(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table bad (id int primary key, n int[])")
    pipeline.publish()
    pipeline.start()
    pipeline.settle("bad")
    pipeline.sql(
        "insert into bad values (1, '{1}'), (2, '{{40961,2}}'), (3, '{3}')",
        "update bad set n = '{4}' where id = 3",
    )
    eventually(lambda: pipeline.known_phase("bad") == "Errored", what="the table to stop")
    position = str(position_of(pipeline, "bad", 2))
    reason = told(pipeline.file)["reason"]
    first, last = re.findall("from ([0-9A-F/]+) to before ([0-9A-F/]+)", reason)[0]
    assert Lsn.parse(first) <= Position.parse(position).commit_lsn < Lsn.parse(last)
    command = ("skip", "bad", "-c", str(pipeline.file), "--position")
    assert_refused(penstock(*command, "0/1/0"), "has passed 0/1/0 already")

    done = penstock(*command, position)

    assert done.returncode == 0, done.stderr
    eventually(lambda: pipeline.known_phase("bad") == "Ready", what="apply to have heard of it")
    pipeline.settle("bad")
    assert sorted(pipeline.lake("select * from public.bad")) == [(1, [1]), (3, [4])]
    assert told(pipeline.file)["skipped"] == [position]
    pipeline.stop_apply()
    pipeline.start_apply()
    pipeline.sql("insert into bad values (5, '{5}')", "delete from bad where id = 2")
    pipeline.assert_equal("bad")
    assert told(pipeline.file)["skipped"] == [position]
    generation = pipeline.generation("bad")
    send_command(pipeline.config(), Resync(TableName("public", "bad")))
    eventually(lambda: pipeline.generation("bad") > generation, what="the new copy to be told")
    assert told(pipeline.file)["skipped"] == []
