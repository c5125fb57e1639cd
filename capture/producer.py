"""Bounded sending: at most so many bytes wait for Kafka; if it has to wait for them, the caller is kept alive.

A delivery callback would take and give the interpreter lock for each record, and cost more than the sending: there is
none. Instead a record that Kafka refuses ends the producer (its gapless guarantee), which `flush` raises; and whoever
writes a checkpoint compares the ends of the topics with what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from pydantic import ByteSize

from capture.errors import RecordTooLarge
from capture.kafka_wait import KafkaWait
from capture.transcode.choose import chosen_path
from capture.transcode.contract import Records, Sender
from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.failpoints import failpoint
from schemas.pg_types.pg_type import ValueNotCarried
from stores.kafka_errors import BrokerUnreachable, log_error, settings_told
from stores.kafka_log import MEET_SECONDS, durable_settings

_LINGER_MILLISECONDS = 60_000
"""Longer than a record waits for others: whole batches go by themselves, `flush` sends the rest. While Kafka has not
confirmed a batch, librdkafka looks without rest whether it may send the next, if that is older than this or is to be
flushed; at 20 ms that took as much CPU as all else that it does."""
_SLICE_SECONDS = 0.001
_NAPS_SECONDS = 0.001, 0.010
"""Between two slices of a flush, the shortest and the longest, for the same reason."""
_NO_LIMIT = 2**31 - 1
"""A queue of librdkafka that is full in the middle of a batch would change the order: the bound is ours."""
_RECORD_BYTES = 200
"""What a record takes in memory beside its value, about."""


class BoundedProducer:
    """One idempotent producer. `alive` is called whenever it makes its caller wait. To be closed by who made it."""

    def __init__(self, kafka: KafkaConfig, memory: ByteSize, alive: Callable[[], None]) -> None:
        self.largest = int(kafka.max_record)
        """How many bytes a record may have."""
        self._alive = alive
        self._memory = int(memory)
        self._sent = 0
        self._topics: set[str] = set()
        """Of what was sent since the last flush."""
        self._wait = KafkaWait(kafka)
        self._sender = _made_sender(kafka)
        self._sender.meet(MEET_SECONDS)

    def send_batch(self, topic: str, records: Records) -> None:
        """Queues the records behind those before them.

        Where that would be too much at once, waits first until Kafka has all that went before."""
        needed = records.size + len(records) * _RECORD_BYTES
        if self._sent + needed > self._memory:
            self.flush()
        self._sent += needed
        self._topics.add(topic)
        failpoint("producer.sending", BrokerUnreachable)
        try:
            self._sender.send(topic, records)
        except KafkaException as error:
            self.poll()  # a producer that had to end tells the reason there
            raise self._refusal(error.args[0], topic, records) from error
        failpoint("producer.sent", BrokerUnreachable)
        self.poll()

    def flush(self) -> None:
        """Returns when Kafka has every record that was sent; raises if it refused one."""
        failpoint("producer.flushing", BrokerUnreachable)
        nap, longest = _NAPS_SECONDS
        while len(self._sender) > 0:
            self._sender.flush(_SLICE_SECONDS)
            self._check()
            self._alive()
            if unsent := len(self._sender):
                self._wait.look(self._topics, unsent)
                time.sleep(nap)
                nap = min(nap * 2, longest)
        self._wait.over()
        self._topics.clear()
        self._sent = 0
        self.poll()
        failpoint("producer.flushed", BrokerUnreachable)

    def poll(self) -> None:
        self._sender.poll()
        self._check()

    def drop_unsent(self) -> None:
        """For a stop inside a transaction: what no checkpoint will cover need not arrive. The producer's last act."""
        self._sender.purge()

    def close(self) -> None:
        """Nothing is waited for: what was sent and not flushed counts for nobody."""
        self._wait.close()

    def _check(self) -> None:
        failure = self._sender.failure
        if failure is not None:
            raise log_error(failure, "a record")

    def _refusal(self, error: KafkaError, topic: str, records: Records) -> ValueNotCarried | LogError:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RecordTooLarge(max(len(record["value"] or b"") for record in records.dicts), self.largest)
        return log_error(error, f"sending to {topic}", topic=topic)


def _made_sender(kafka: KafkaConfig) -> Sender:
    settings = {
        **durable_settings(kafka),
        "enable.gapless.guarantee": True,
        "compression.type": "lz4",
        "linger.ms": _LINGER_MILLISECONDS,
        "batch.size": 1_000_000,
        "message.max.bytes": int(kafka.max_record) + 1024,
        "message.timeout.ms": 0,  # a broker that is away is waited for
        "queue.buffering.max.kbytes": _NO_LIMIT,
        "queue.buffering.max.messages": 0,
    }
    with settings_told():
        return chosen_path().sender(settings)
