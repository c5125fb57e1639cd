"""A process that copies ranges: tasks in through its pipe, reports out, until the pipe is closed.

It lives for many ranges, because a session and a producer cost time to open. One that met an error says so and ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

import psycopg
import structlog
from pydantic import ByteSize

from capture.config import SourceConfig
from capture.errors import source_error
from capture.producer import BoundedProducer
from capture.sessions import plain_session
from capture.table_sync.copier import Copied, FileChanged, Source, TableJob, copy_range
from capture.table_sync.left_sessions import CopySession
from capture.table_sync.pace import Pace
from capture.table_sync.ranges import CopyRange
from capture.transcode import choose
from schemas.connections import KafkaConfig
from schemas.errors import PenstockError
from schemas.identifiers import Epoch, PipelineName
from schemas.pg_types.pg_type import ValueNotCarried

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is told at its start. The DSN travels through a pipe, never through arguments of a process."""

    pipeline: PipelineName
    source: SourceConfig
    database: str
    kafka: KafkaConfig
    memory: ByteSize
    epoch: Epoch
    bytes_per_second: float | None
    """What it may copy, at most; None: as much as it can."""


@dataclass(frozen=True)
class Task:
    """One range to copy."""

    job: TableJob
    part: CopyRange


@dataclass(frozen=True)
class Failed:
    """The range ended with an error. `permanent`: another try would end the same way."""

    reason: str
    solution: str
    permanent: bool


Report: TypeAlias = Copied | FileChanged | Failed


class _Orphaned(Exception):
    """Capture is gone; nobody waits for this worker."""


def work(pipe: Connection) -> None:
    """The worker's main; its settings come first. It speaks through its pipe only: lines of its own would mix with
    capture's log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parent = os.getppid()

    def check_parent() -> None:
        if os.getppid() != parent:
            raise _Orphaned

    with suppress(_Orphaned, EOFError, OSError):  # OSError: the pipe is closed at its other end
        settings = pipe.recv()
        assert isinstance(settings, WorkerSettings)  # noqa: S101 -- nothing else is sent
        _serve(settings, pipe, check_parent)


def _serve(settings: WorkerSettings, pipe: Connection, check_parent: Callable[[], None]) -> None:
    what = "opening a session for a copy"
    try:
        pace = Pace(settings.bytes_per_second, check_parent)
        named = CopySession.ROWS.name_of(settings.pipeline)
        with (
            closing(BoundedProducer(settings.kafka, settings.memory, check_parent)) as producer,
            # Closed without a rollback: a COPY may be under way.
            closing(plain_session(settings.source, application_name=named)) as session,
        ):
            while True:
                task = _next_task(pipe, check_parent)
                what = f"copying {task.job.table.name}"
                transcoder = choose.transcoder(
                    settings.pipeline, settings.database, task.job.table.schema, task.job.schema_ids, settings.epoch
                )
                source = Source(session, transcoder, producer, pace, check_parent)
                pipe.send(copy_range(task.job, task.part, source, pipe.send))
    except ValueNotCarried as error:
        pipe.send(Failed(error.reason, error.solution, permanent=True))
    except PenstockError as error:
        pipe.send(Failed(error.reason, error.solution, permanent=False))
    except psycopg.Error as error:
        found = source_error(error, what)
        pipe.send(Failed(found.reason, found.solution, permanent=False))


def _next_task(pipe: Connection, check_parent: Callable[[], None]) -> Task:
    while not pipe.poll(_LOOK_SECONDS):
        check_parent()
    task = pipe.recv()
    assert isinstance(task, Task)  # noqa: S101 -- nothing else is sent
    return task
