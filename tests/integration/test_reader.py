"""An interval from real topics to folded changes: in this process where it is within the budget, read without a Spark
job if it is small; else in Spark."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from apply_spark.arrow_decode import RawRecords, is_chosen
from apply_spark.copies import CopyReader
from apply_spark.errors import TableFailed
from apply_spark.intervals import Budget, Interval
from apply_spark.progress import TableProgress
from apply_spark.range_reader import RangeReader, ReadingThread
from apply_spark.reader import IntervalReader
from capture.transcode.reference import Origin, Transcoder
from console.local_stack.kafka import LocalKafka
from schemas.checkpoint import Moved
from schemas.connections import KafkaConfig
from schemas.envelope import Op, envelope_schema
from schemas.identifiers import Epoch, LogId, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Ready
from schemas.table import TableSchema
from schemas.topics import Topics
from schemas.wire import header
from stores.kafka_errors import BrokerUnreachable
from stores.kafka_log import KafkaLog, TopicKind
from stores.schema_topic import SchemaTopic
from tests.support.builders import INT8, a_column, a_table
from tests.support.eventually import eventually
from tests.support.processes import frozen

NOW, ZOMBIE = Epoch(7), Epoch(6)
FLOAT8 = 701
BUDGETS = {"here": Budget(rows=200_000, bytes=2**28), "in Spark": Budget(rows=0, bytes=0)}


def orders(name: str = "orders", number: int = 1, **other: Any) -> TableSchema:  # noqa: ANN401 -- fields of a column
    columns = (a_column("id", INT8, nullable=False, key=True), replace(a_column("note"), **other))
    return a_table(*columns, name=TableName("public", name), table_id=16_384 + number)


@dataclass
class Written:
    """Topics with records as capture writes them, and what a checkpoint says of them."""

    kafka: KafkaConfig
    log: KafkaLog
    spark: SparkSession
    thread: ReadingThread
    budget: Budget
    moved: dict[tuple[str, SchemaId], Moved] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pipeline = PipelineName(f"r{secrets.token_hex(4)}")
        self.topics = Topics(self.pipeline)
        self.log.create(self.topics.schemas, TopicKind.LATEST)
        self.schemas = SchemaTopic(self.kafka, self.log, self.topics.schemas)
        self.producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})

    def register(self, table: TableSchema) -> SchemaId:
        return self.schemas.register("orders", envelope_schema(self.pipeline, table), table)

    def write(
        self,
        table: TableSchema,
        *changes: tuple[Op, tuple[Any, ...] | None, tuple[Any, ...] | None],
        lsn: int = 100,
        epoch: Epoch = NOW,
        counted: int | None = None,
        ordinal: int = 0,
    ) -> None:
        """Changes of one transaction; `counted` is what the checkpoint says, where that is not how many there are."""
        topic, schema = self.topics.changes(table.name), self.register(table)
        self.log.ensure(topic, TopicKind.RECORDS)
        transcoder = Transcoder(self.pipeline, "shop", table, (schema, None), epoch)
        for number, (op, before, after) in enumerate(changes, ordinal):
            origin = Origin(commit_lsn=lsn, commit_ts=1, xid=1, lsn=lsn, ordinal=number)
            self.producer.produce(topic, transcoder.value(op, _texts(before), _texts(after), origin))
        self.producer.flush()
        known = self.moved.get((topic, schema), Moved(topic, schema, 0, 0))
        rows = len(changes) if counted is None else counted
        self.moved[topic, schema] = replace(known, rows=known.rows + rows, bytes=known.bytes + 100 * rows)

    def produce(self, topic: str, value: bytes | None) -> None:
        """What somebody else writes."""
        self.producer.produce(topic, value)
        self.producer.flush()

    def progress(self, table: TableSchema, lsn: int = 50) -> TableProgress:
        return TableProgress(
            table=table.name,
            phase=Ready(),
            generation=Lsn(1),
            schema_id=self.register(table),
            lsn=Lsn(lsn),
            epoch=NOW,
            log_offset=0,
            topic_offset=0,
        )

    def interval(self) -> Interval:
        """Of the window [100, 200)."""
        moved = {key: each for key, each in self.moved.items() if each.rows}
        return Interval(
            log_id=LogId("log"),
            epoch=NOW,
            start=Lsn(100),
            lsn=Lsn(200),
            commit_ts=1,
            emitted_at=1,
            moved=moved,
            ends={topic: self.log.ends([topic])[topic][0] for topic, _ in moved},
            markers=(),
            next_offset=1,
            opens=False,
        )

    @property
    def reader(self) -> IntervalReader:
        return IntervalReader(self.spark, self.kafka, self.topics, self.log, self.schemas, self.thread, self.budget)

    @property
    def copies(self) -> CopyReader:
        return CopyReader(self.spark, self.kafka, self.topics, self.log, self.schemas, self.thread)

    def changes(self, *tables: TableProgress) -> dict[str, list[tuple[Any, ...]]]:
        """By table: (deleted, key, row) in the order of the keys; or (net, row)."""
        with self.reader.changes(self.interval(), tables) as changes:
            return {each.schema.name.name: _events(each.rows.arrow()) for each in changes}


@contextmanager
def writing(kafka: LocalKafka, spark: SparkSession, budget: Budget, patience: float = 60) -> Iterator[Written]:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, patience=timedelta(seconds=patience))
    with KafkaLog(config) as log, ReadingThread(config, "reading") as thread:
        yield Written(config, log, spark, thread, budget)


@pytest.fixture(params=BUDGETS)
def written(request: pytest.FixtureRequest, kafka: LocalKafka, spark: SparkSession) -> Iterator[Written]:
    with writing(kafka, spark, BUDGETS[request.param]) as made:
        yield made


def test_many_tables_are_read_and_folded_together(written: Written) -> None:
    tables = [orders(f"t{number}", number) for number in range(5)]
    for number, table in enumerate(tables):
        written.write(
            table,
            (Op.CREATE, None, (number, "a")),
            (Op.UPDATE, None, (number, "b")),
            (Op.CREATE, None, (-1, "c")),
            (Op.DELETE, (-1, None), None),
        )

    changes = written.changes(*[written.progress(table) for table in tables])

    assert changes == {
        f"t{number}": _in_order([(True, (-1,), None), (False, (number,), (number, "b"))]) for number in range(5)
    }


def test_two_schemas_of_one_table_are_folded_together(written: Written) -> None:
    before, after = orders(), orders(nullable=False)
    written.write(before, (Op.CREATE, None, (1, "old")), (Op.CREATE, None, (2, "old")))
    written.write(after, (Op.UPDATE, None, (1, "new")), lsn=101)

    changes = written.changes(written.progress(after))

    assert changes == {"orders": [(False, (1,), (1, "new")), (False, (2,), (2, "old"))]}


def test_what_was_delivered_twice_counts_once(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "a")), (Op.UPDATE, None, (1, "b")))
    written.write(orders(), (Op.CREATE, None, (1, "a")), counted=0)

    assert written.changes(written.progress(orders())) == {"orders": [(False, (1,), (1, "b"))]}


def test_a_bag_that_was_delivered_twice_counts_once(written: Written) -> None:
    bag = a_table(a_column("note"), name=TableName("public", "bag"))
    written.write(bag, (Op.CREATE, None, ("a",)), (Op.CREATE, None, ("a",)))
    written.write(bag, (Op.CREATE, None, ("a",)), counted=0)

    assert written.changes(written.progress(bag)) == {"bag": [(1, ("a",)), (1, ("a",))]}


@pytest.mark.parametrize("doubled", [0, 1])
def test_a_row_that_was_counted_and_is_not_there_stops_its_table(written: Written, doubled: int) -> None:
    """Also where a double hides it in the number of records."""
    written.write(orders("whole", 2), (Op.CREATE, None, (1, "a")))
    written.write(orders(), (Op.CREATE, None, (1, "a")), (Op.CREATE, None, (2, "a")), counted=3)
    written.write(orders(), *[(Op.CREATE, None, (1, "a"))] * 2 * doubled, counted=0)

    with pytest.raises(TableFailed) as caught:
        written.changes(written.progress(orders("whole", 2)), written.progress(orders()))

    assert caught.value.table == orders().name
    assert "resync" in caught.value.solution


def test_a_position_that_is_skipped_is_no_part_and_no_loss(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "a")), (Op.CREATE, None, (2, "bad")), (Op.UPDATE, None, (1, "b")))
    written.write(orders(), (Op.CREATE, None, (2, "good")), (Op.TRUNCATE, None, None), lsn=110, ordinal=1)
    skipped = (Position(Lsn(100), 1), Position(Lsn(110), 2), Position(Lsn(99), 0))

    changes = written.changes(replace(written.progress(orders()), skipped=skipped))

    assert changes == {"orders": [(False, (1,), (1, "b")), (False, (2,), (2, "good"))]}


def test_a_table_whose_only_change_is_skipped_has_none(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "bad")))

    changes = written.changes(replace(written.progress(orders()), skipped=(Position(Lsn(100), 0),)))

    assert changes in ({}, {"orders": []})


def test_what_a_zombie_wrote_and_what_lies_outside_the_window_is_no_part(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "zombie")), (Op.CREATE, None, (9, "zombie")), epoch=ZOMBIE, counted=0)
    written.write(orders(), (Op.CREATE, None, (2, "before")), lsn=99, counted=0)
    written.write(orders(), (Op.CREATE, None, (3, "first")), lsn=100)
    written.write(orders(), (Op.CREATE, None, (4, "last")), lsn=199)
    written.write(orders(), (Op.CREATE, None, (5, "after")), lsn=200, counted=0)
    written.write(orders(), (Op.UPDATE, None, (4, "zombie")), lsn=199, epoch=ZOMBIE, counted=0, ordinal=5)

    changes = written.changes(written.progress(orders()))

    assert changes == {"orders": [(False, (3,), (3, "first")), (False, (4,), (4, "last"))]}


def test_a_table_that_holds_part_of_the_window_gets_the_rest(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "held")), (Op.TRUNCATE, None, None), lsn=149)
    written.write(orders(), (Op.CREATE, None, (2, "new")), lsn=150)
    interval, table = written.interval(), written.progress(orders(), lsn=150)

    with written.reader.changes(interval, [table]) as (changes,):
        events = _events(changes.rows.arrow())

    assert not changes.truncate
    assert events == [(False, (2,), (2, "new"))]


def test_what_a_table_holds_already_may_have_another_shape(kafka: LocalKafka, spark: SparkSession) -> None:
    with writing(kafka, spark, BUDGETS["here"]) as written:
        written.write(a_table(a_column("id", INT8, key=True)), (Op.CREATE, None, (1,)), lsn=149)
        written.write(orders(), (Op.CREATE, None, (2, "new")), lsn=150)

        assert written.changes(written.progress(orders(), lsn=150)) == {"orders": [(False, (2,), (2, "new"))]}
        assert written.changes(written.progress(orders(), lsn=151)) == {}


def test_a_damaged_record_stops_its_table_and_is_named(written: Written) -> None:
    written.write(orders("whole", 2), (Op.CREATE, None, (1, "a")))
    written.write(orders(), (Op.CREATE, None, (1, "a")))
    topic = written.topics.changes(orders().name)
    written.produce(topic, header(written.register(orders())) + b"\x00\x02private")
    written.write(orders(), (Op.CREATE, None, (2, "a")), ordinal=1)

    with pytest.raises(TableFailed) as caught:
        written.changes(written.progress(orders("whole", 2)), written.progress(orders()))

    assert caught.value.table == orders().name
    where = " at offset 1:" if is_chosen() and written.budget is BUDGETS["here"] else ": Spark cannot"
    assert f"{topic} has a damaged record{where}" in caught.value.reason
    assert "private" not in str(caught.value)
    assert "resync" in caught.value.solution


def test_a_record_that_penstock_did_not_write_stops_its_table_and_is_named(written: Written) -> None:
    written.write(orders("other", 9), (Op.CREATE, None, (1, "a")))
    foreign = (b"private", b"", None, header(SchemaId(1)) + b"private", header(written.register(orders("other", 9))))

    for number, record in enumerate(foreign):
        table = orders(f"t{number}", number)
        written.write(table, (Op.CREATE, None, (1, "a")))
        topic = written.topics.changes(table.name)
        written.produce(topic, record)

        with pytest.raises(TableFailed) as caught:
            written.changes(written.progress(orders("other", 9)), written.progress(table))

        assert caught.value.table == table.name
        assert f"Topic {topic} has a record at offset 1 that penstock did not write" in caught.value.reason
        assert "private" not in str(caught.value)
        assert f"penstock resync {table.name}" in caught.value.solution


def test_a_shape_that_is_not_on_the_schema_topic_stops_its_table(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "a")))
    unknown = replace(written.progress(orders()), schema_id=SchemaId(1))

    with pytest.raises(TableFailed, match="Schema 1 is not on the topic"):
        written.changes(unknown)


def test_a_damaged_copy_stops_its_table(kafka: LocalKafka, spark: SparkSession) -> None:
    with writing(kafka, spark, BUDGETS["here"]) as written:
        table = written.progress(orders())
        topic = written.topics.copy(table.table, table.generation)
        written.log.create(topic, TopicKind.RECORDS)
        written.producer.produce(topic, header(table.schema_id) + b"\x04")
        written.producer.flush()

        with (
            pytest.raises(TableFailed, match=f"{topic} has a damaged record"),
            written.copies.piece(replace(table, copy_end=1), most=1),
        ):
            pass


def test_a_truncate_takes_what_was_before_it(written: Written) -> None:
    written.write(orders(), (Op.CREATE, None, (1, "old")), (Op.TRUNCATE, None, None), (Op.CREATE, None, (2, "new")))

    with written.reader.changes(written.interval(), [written.progress(orders())]) as (changes,):
        events = _events(changes.rows.arrow())

    assert changes.truncate
    assert events == [(False, (2,), (2, "new"))]


def test_keys_that_are_equal_and_have_other_bytes_are_one_key(written: Written) -> None:
    table = a_table(a_column("id", FLOAT8, nullable=False, key=True), a_column("note"))
    written.write(table, (Op.CREATE, None, ("-0", "a")), (Op.UPDATE, None, ("0", "b")), (Op.UPDATE, None, ("NaN", "c")))

    changes = written.changes(written.progress(table))

    assert sorted(row[1] for _, _, row in changes["orders"]) == ["b", "c"]


@pytest.mark.parametrize("second", [6, 7], ids=["as read ahead", "another one"])
def test_a_piece_of_a_copy_has_its_rows_and_no_others(written: Written, second: int) -> None:
    table = replace(written.progress(orders()), copy_offset=3, copy_end=9)
    topic = written.topics.copy(table.table, table.generation)
    written.log.create(topic, TopicKind.RECORDS)
    transcoder = Transcoder(written.pipeline, "shop", orders(), (table.schema_id, None), NOW)
    for number in range(10):
        origin = Origin(commit_lsn=1, commit_ts=1, xid=None, lsn=1, ordinal=number)
        written.producer.produce(topic, transcoder.value(Op.READ, None, _texts((number, None)), origin))
    written.producer.flush()

    pieces, copies = [], written.copies
    for each in (table, replace(table, copy_offset=second)):
        with copies.piece(each, most=3) as (rows, end):
            pieces.append(([row["row"]["id"] for row in rows.to_pylist()], end))

    assert pieces == [([3, 4, 5], 6), (list(range(second, 9)), 9)]


@pytest.mark.parametrize("later", [0, 1], ids=["as read ahead", "another one"])
def test_what_was_read_ahead_is_read_once_and_counts_only_for_the_same_interval(
    written: Written, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = RangeReader.read
    monkeypatch.setattr(RangeReader, "read", lambda *asked: reads.append(1) or read(*asked))
    table = written.progress(orders())
    written.write(orders(), (Op.CREATE, None, (1, "a")))

    reader = written.reader
    reader.read_ahead(written.interval(), [table])
    written.write(orders(), *[(Op.CREATE, None, (2, "b"))] * later, ordinal=1)
    with reader.changes(written.interval(), [table]) as (changes,):
        events = _events(changes.rows.arrow())

    assert [key for _, key, _ in events] == [(1,), (2,)][: 1 + later]
    if written.budget == BUDGETS["here"]:
        assert len(reads) == 1 + later


@pytest.mark.skipif(not is_chosen(), reason="Spark reads nothing ahead")
def test_what_a_read_ahead_met_is_forgotten_when_its_interval_is_asked_for(
    kafka: LocalKafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may have been away while nobody waited for it."""
    away, read = [BrokerUnreachable("It was away.")], RangeReader.read

    def reading(*asked: Any) -> dict[str, RawRecords]:  # noqa: ANN401 -- as it is asked
        if away:
            raise away.pop()
        return read(*asked)

    monkeypatch.setattr(RangeReader, "read", reading)
    with writing(kafka, spark, BUDGETS["here"]) as written:
        written.write(orders(), (Op.CREATE, None, (1, "a")))
        table, reader = written.progress(orders()), written.reader

        reader.read_ahead(written.interval(), [table])
        with reader.changes(written.interval(), [table]) as (changes,):
            events = _events(changes.rows.arrow())

    assert not away
    assert events == [(False, (1,), (1, "a"))]


def test_a_broker_that_falls_silent_does_not_keep_what_was_read_from_being_written(
    kafka: LocalKafka, spark: SparkSession
) -> None:
    with writing(kafka, spark, BUDGETS["here"], patience=1) as written:
        written.write(orders(), (Op.CREATE, None, (1, "a")))
        table, interval, reader = written.progress(orders()), written.interval(), written.reader

        with frozen(kafka.pid):
            reader.read_ahead(interval, [table])
        with reader.changes(interval, [table]) as (changes,):
            events = _events(changes.rows.arrow())

    assert events == [(False, (1,), (1, "a"))]


@pytest.mark.skipif(not is_chosen(), reason="Spark says it otherwise")
def test_a_topic_that_is_deleted_while_it_is_read_stops_its_table_alone(
    kafka: LocalKafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RangeReader.read

    def deleted_first(*asked: Any) -> dict[str, RawRecords]:  # noqa: ANN401 -- as it is asked
        with KafkaLog(written.kafka) as log:
            log.delete([topic])
            eventually(lambda: topic not in log.topics(), what="the end of the topic")
        return read(*asked)

    with writing(kafka, spark, BUDGETS["here"], patience=10) as written:
        written.write(orders(), (Op.CREATE, None, (1, "a")))
        table, topic, interval = written.progress(orders()), written.topics.changes(orders().name), written.interval()
        monkeypatch.setattr(RangeReader, "read", deleted_first)

        with (
            pytest.raises(TableFailed, match=f"{topic} does not exist any more"),
            written.reader.changes(interval, [table]),
        ):
            pass


def test_a_copy_that_lacks_its_end_gives_the_piece_before_it(written: Written) -> None:
    table = replace(written.progress(orders()), copy_offset=0, copy_end=6)
    topic = written.topics.copy(table.table, table.generation)
    written.log.create(topic, TopicKind.RECORDS)
    transcoder = Transcoder(written.pipeline, "shop", orders(), (table.schema_id, None), NOW)
    for number in range(4):
        origin = Origin(commit_lsn=1, commit_ts=1, xid=None, lsn=1, ordinal=number)
        written.producer.produce(topic, transcoder.value(Op.READ, None, _texts((number, None)), origin))
    written.producer.flush()
    copies = written.copies

    with copies.piece(table, most=3) as (rows, end):
        assert (rows.num_rows, end) == (3, 3)
    with (
        pytest.raises(TableFailed, match="ends at offset 4, before 6"),
        copies.piece(replace(table, copy_offset=3), most=3),
    ):
        pass


def _texts(row: tuple[Any, ...] | None) -> tuple[bytes | None, ...] | None:
    return None if row is None else tuple(None if value is None else str(value).encode() for value in row)


def _events(rows: pa.Table) -> list[tuple[Any, ...]]:
    return _in_order(
        [
            (row["deleted"], tuple(row["key"].values()), row["row"] and tuple(row["row"].values()))
            if "key" in row
            else (row["net"], tuple(row["row"].values()))
            for row in rows.to_pylist()
        ]
    )


def _in_order(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(events, key=lambda event: event[1])
