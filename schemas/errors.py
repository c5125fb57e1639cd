"""The root of every error that an operator can meet.

An error names the object and the reason, tells the solution, and says whether time alone may heal it.
Row values never appear in any of the three.

    PenstockError
    |-- ConfigError          a file, a key, a value            (console)
    |-- SourceError          Postgres, slot, publication       (capture)
    |-- LogError             Kafka: topics, records, brokers   (both stages)
    |-- DestinationError     the place where rows are written  (apply_spark)
    |-- StoreError           what the pipeline remembers       (stores)
    |-- StateTooNew          a newer penstock wrote it         (all)
    '-- MalformedMessage     bytes that are not what they claim to be
"""

from __future__ import annotations

import enum


class Retry(enum.Enum):
    """Whether trying again can help without a human."""

    TIMED = "timed"
    MANUAL = "manual"


class PenstockError(Exception):
    """A failure with a reason, a solution and a retry policy."""

    retry: Retry = Retry.MANUAL
    solution: str = "Look at the reason; if it does not tell enough, run `penstock doctor`."

    def __init__(self, reason: str, *, solution: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        if solution is not None:
            self.solution = solution

    def __str__(self) -> str:
        return self.reason


class ConfigError(PenstockError):
    """The configuration cannot be used as it is."""


class SourceError(PenstockError):
    """Postgres, its slot or its publication is not as capture needs it."""


class LogError(PenstockError):
    """Kafka does not hold, give or take what the protocol says it must."""


class DestinationError(PenstockError):
    """A destination cannot take what it was given."""


class StoreError(PenstockError):
    """The pipeline's memory cannot be read or written."""


class StateTooNew(PenstockError):
    """What is stored was written by a newer penstock, and may mean more than this one would understand."""

    solution = (
        "Upgrade this penstock to the version that wrote it, or a newer one. To go back, see docs/how-to/upgrade.md."
    )


class MalformedMessage(PenstockError):
    """Bytes end early, go on too long, or hold a tag nobody knows."""

    solution = "Update penstock: this server speaks a protocol that this version does not know."

    def __init__(self, reason: str, *, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.offset = offset
