"""Whoever reads a change topic beside apply sees a change soon, though nothing is sent because time passed."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from console.local_stack.kafka import LocalKafka
from tests.support.captured import MakeCaptured

SECONDS = 10.0
"""Half a second, and room for a busy machine; a producer that nobody flushes sends after a minute."""


def test_another_reader_sees_a_committed_row_with_the_next_checkpoint_and_without_further_writes(
    captured: MakeCaptured, kafka: LocalKafka
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)",
        publish="for table t",
        PENSTOCK_CAPTURE__CHECKPOINT_INTERVAL="500ms",
        PENSTOCK_CAPTURE__IDLE_INTERVAL="1h",  # no checkpoint of a quiet source helps
    )
    log.assert_rows("t")  # copied, so that what follows is streamed

    with closing(Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "somebody else"})) as reader:
        reader.assign([TopicPartition(pipeline.change_topic("t"), 0, 0)])
        seen = []
        for number in range(2):
            pipeline.sql(f"insert into t values ({number})")
            seen.append(reader.poll(SECONDS))

    assert [message.offset() for message in seen if message is not None and message.error() is None] == [0, 1]
