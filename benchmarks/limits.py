"""What the machine allows: COPY discarded, replication streams discarded, ready bytes produced."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.group import Step
from benchmarks.measurement import Measurement
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog, TopicKind

MESSAGE_BYTES = 200


def measured(servers: Servers, start: float, end: float, count: int, **figures: float) -> Measurement:
    """So many things in that span, with the CPU and memory of all who took part."""
    return Measurement(
        count=count,
        seconds=end - start,
        cpu=servers.meter.between(start, end),
        memory=servers.meter.peaks(start),
        figures=figures,
    )


def discard_copy(servers: Servers, database: str, table: str, blocks: int, connections: int) -> Measurement:
    """The table through COPY TO STDOUT, divided by blocks between so many connections."""
    edges = [blocks * part // connections for part in range(connections + 1)]
    queries = [
        f"copy (select * from only {table} where ctid >= '({low},0)' and ctid < '({high},0)') to stdout"  # noqa: S608
        for low, high in pairwise(edges)
    ]
    if connections == 1:
        queries = [f"copy {table} to stdout"]
    answers = servers.limits([{"do": "copy", "dsn": servers.dsn(database), "query": query} for query in queries])
    return _span(servers, answers)


def discard_stream(
    servers: Servers, database: str, transport: str, mode: str, slot: str, segments: list[tuple[str, int]]
) -> dict[str, Measurement]:
    """The backlog of a slot, segment by segment: each ends with a mark."""
    (answer,) = servers.limits(
        [
            {
                "do": "stream",
                "dsn": servers.dsn(database, transport),
                "slot": slot,
                "publication": "bench",
                "mode": mode,
                "marks": len(segments),
            }
        ]
    )
    edges = [answer["start"], *answer["marks"]]
    spans = zip(segments, pairwise(edges), strict=True)
    return {name: measured(servers, low, high, count) for (name, count), (low, high) in spans}


def produce(servers: Servers, log: KafkaLog, topic: str, mode: str, count: int) -> Measurement:
    log.create(topic, TopicKind.RECORDS)
    job: dict[str, Any] = {
        "do": "produce",
        "servers": servers.kafka.bootstrap_servers,
        "topic": topic,
        "count": count,
        "size": MESSAGE_BYTES,
        "mode": mode,
    }
    result = _span(servers, servers.limits([job]))
    log.delete([topic])
    return result


def _span(servers: Servers, answers: list[dict[str, Any]]) -> Measurement:
    """From the first that began to the last that ended."""
    start, end = min(each["start"] for each in answers), max(each["end"] for each in answers)
    return measured(servers, start, end, sum(each["rows"] for each in answers))


class ProduceGroup:
    """confluent-kafka alone."""

    name = "produce"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._count = sizes.messages
        self._log = KafkaLog(KafkaConfig(bootstrap_servers=servers.kafka.bootstrap_servers))

    def prepare(self) -> None:
        """Each round makes its topics."""

    def steps(self) -> list[Step]:
        return [Step(f"confluent-kafka, {mode}", partial(self._run, mode)) for mode in ("produce", "produce_batch")]

    def close(self) -> None:
        self._log.close()

    def _run(self, mode: str, turn: int) -> Mapping[str, Measurement]:
        return {f"limit/{mode}": produce(self._servers, self._log, f"bench.{mode}.{turn}", mode, self._count)}
