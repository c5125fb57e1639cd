"""The checkpoints of a pipeline, each read and decoded once: tests look again and again while the log grows."""

from __future__ import annotations

from collections.abc import Sequence

from apply_spark.intervals import accepted
from schemas.checkpoint import Checkpoint
from schemas.epochs import EpochRule
from schemas.identifiers import Epoch
from schemas.lsn import Lsn
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog


class CheckpointLog:
    """Of one topic, which nobody makes anew."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._rule = EpochRule()
        self._read_to = 0
        self._accepted: list[Checkpoint] = []

    def accepted(self, log: KafkaLog) -> list[Checkpoint]:
        """Those that count, up to the end that the topic has now; none while it is not there."""
        try:
            end = log.ends([self._topic])[self._topic][0]
        except TopicMissing:
            return []
        self._accepted += [each for _, each in accepted(log.read(self._topic, self._read_to, end), self._rule)]
        self._read_to = end
        return self._accepted


def newest_log(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Those of the newest log."""
    return [checkpoint for checkpoint in checkpoints if checkpoint.log_id == checkpoints[-1].log_id]


def windows(checkpoints: Sequence[Checkpoint]) -> dict[Epoch, tuple[Lsn, Lsn]]:
    """The window of each epoch of a log: one begins where the one before it ended."""
    found: dict[Epoch, tuple[Lsn, Lsn]] = {}
    for checkpoint in checkpoints:
        start, end = found.get(checkpoint.epoch, (checkpoint.start, checkpoint.start))
        assert checkpoint.start == end
        found[checkpoint.epoch] = start, checkpoint.lsn
    return found
