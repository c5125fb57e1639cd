"""A limit of the machine, measured in a process of its own so that its CPU can be told from everybody else's.

The parent writes a job as one line of JSON; the child connects and says `ready`; at the parent's next line it works,
and answers with what it saw as one line of JSON. Nothing that it reads is looked at: what is measured is the way to it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import Producer
from psycopg import pq

from benchmarks.workloads import MARK_BYTES

_LOW_WATER_BYTES = 64 * 1024
_PATIENCE_SECONDS = 0.05
_NAP_SECONDS = 0.001
_BATCH = 1_000

Answer = dict[str, Any]
Work = Callable[[], Answer]


def main() -> None:
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    work = _JOBS[job.pop("do")](**job)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(work()), flush=True)


def copy_discarded(dsn: str, query: str) -> Work:
    """COPY TO STDOUT through libpq, each row thrown away."""
    connection = _connected(dsn)

    def work() -> Answer:
        start, rows = time.time(), 0
        _started(connection, query, pq.ExecStatus.COPY_OUT)
        read = connection.get_copy_data
        while read(0)[0] > 0:
            rows += 1
        return {"start": start, "end": time.time(), "rows": rows}

    return work


def stream_discarded(dsn: str, slot: str, publication: str, mode: str, marks: int) -> Work:
    """The slot's changes, each message thrown away. Nothing is acknowledged: the next reader finds all of it again."""
    connection = _connected(f"{dsn} replication=database")
    command = (
        f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 '
        f"(proto_version '1', publication_names '\"{publication}\"', messages 'true')"
    )

    def work() -> Answer:
        start = time.time()
        _started(connection, command, pq.ExecStatus.COPY_BOTH)
        reached = _READERS[mode](connection, marks)
        return {"start": start, "marks": reached}

    return work


def _read_blocking(connection: pq.abc.PGconn, marks: int) -> list[float]:
    """libpq waits for every message."""
    reached: list[float] = []
    read = connection.get_copy_data
    while len(reached) < marks:
        size, _ = read(0)
        if size > MARK_BYTES:
            reached.append(time.time())
    return reached


def _read_in_bursts(connection: pq.abc.PGconn, marks: int, rest: Callable[[], None]) -> list[float]:
    """Reads what is there; `rest` then waits until more than one message is."""
    connection.nonblocking = 1
    reached: list[float] = []
    read, consume = connection.get_copy_data, connection.consume_input
    while len(reached) < marks:
        size, _ = read(1)
        if size == 0:
            consume()
            size, _ = read(1)
            if size == 0:
                rest()
                consume()
                continue
        if size > MARK_BYTES:
            reached.append(time.time())
    return reached


def _read_low_water(connection: pq.abc.PGconn, marks: int) -> list[float]:
    """The kernel wakes the reader when 64 KiB have come. A unix socket takes the setting, but poll ignores it."""
    with socket.socket(fileno=os.dup(connection.socket)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _LOW_WATER_BYTES)
    return _read_in_bursts(
        connection, marks, lambda: _discard(select.select([connection.socket], [], [], _PATIENCE_SECONDS))
    )


def _read_after_a_nap(connection: pq.abc.PGconn, marks: int) -> list[float]:
    """The first message wakes the reader, which gives the server a millisecond to send more."""

    def rest() -> None:
        select.select([connection.socket], [], [], _PATIENCE_SECONDS)
        time.sleep(_NAP_SECONDS)

    return _read_in_bursts(connection, marks, rest)


def _read_without_rest(connection: pq.abc.PGconn, marks: int) -> list[float]:
    """The reader never sleeps, so nobody has to wake it; it takes a core for itself."""
    return _read_in_bursts(connection, marks, lambda: None)


def produced(servers: str, topic: str, count: int, size: int, mode: str) -> Work:
    """Ready bytes to Kafka with the settings of capture's producer."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 60_000,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 65_536,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(timeout=30)
    key, value = os.urandom(10), os.urandom(size // 2) + bytes(size - size // 2)  # compresses about as rows do

    def one_by_one() -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)

    def in_batches() -> None:
        left = count
        while left:
            batch = [{"value": value, "key": key} for _ in range(min(_BATCH, left))]
            with suppress(BufferError):
                left -= producer.produce_batch(topic, batch)
            producer.poll(0)

    def work() -> Answer:
        start = time.time()
        {"produce": one_by_one, "produce_batch": in_batches}[mode]()
        producer.flush()
        return {"start": start, "end": time.time(), "rows": count}

    return work


def _connected(dsn: str) -> pq.abc.PGconn:
    connection = pq.PGconn.connect(dsn.encode())
    if connection.status != pq.ConnStatus.OK:
        raise SystemExit(connection.get_error_message())
    return connection


def _started(connection: pq.abc.PGconn, command: str, wanted: pq.ExecStatus) -> None:
    result = connection.exec_(command.encode())
    if result.status != wanted:
        raise SystemExit(connection.get_error_message())


def _discard(_: object) -> None:
    pass


_READERS = {
    "blocking": _read_blocking,
    "low_water": _read_low_water,
    "nap": _read_after_a_nap,
    "spin": _read_without_rest,
}
_JOBS: dict[str, Callable[..., Work]] = {
    "copy": copy_discarded,
    "stream": stream_discarded,
    "produce": produced,
}

if __name__ == "__main__":
    main()
