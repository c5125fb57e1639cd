"""Copies one table under a snapshot to its copy topic. Runs in a process of its own, with its own connections.

The table's file is compared with the one from before the snapshot, under a lock: a file that changed (TRUNCATE, VACUUM
FULL, a rewriting ALTER) is not MVCC-safe, and COPY would return too few rows without an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import psycopg
from psycopg import sql
from pydantic import ByteSize

from capture.errors import source_error
from capture.producer import BoundedProducer
from capture.publication import PublishedTable, filenode
from capture.replication_connection import session_dsn
from capture.transcode import choose
from capture.transcode.reference import snapshot_origin
from schemas.connections import KafkaConfig
from schemas.errors import PenstockError
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.lsn import Lsn
from schemas.pg_types.pg_type import ValueNotCarried

_ROWS_BETWEEN_REPORTS = 10_000


@dataclass(frozen=True)
class CopyJob:
    """All that a worker is told. The DSN travels through a pipe, never through arguments of a process."""

    pipeline: PipelineName
    dsn: str
    database: str
    kafka: KafkaConfig
    memory: ByteSize
    table: PublishedTable
    schema_ids: tuple[SchemaId, SchemaId | None]
    epoch: Epoch
    snapshot: str
    generation: Lsn
    topic: str


@dataclass(frozen=True)
class Copied:
    """So many rows so far; the last one of a copy is final."""

    rows: int
    bytes: int
    final: bool


@dataclass(frozen=True)
class FileChanged:
    """The table has another file than before the snapshot: only the next generation can be true."""


@dataclass(frozen=True)
class Failed:
    """The copy ended with an error. `permanent`: another try would end the same way."""

    reason: str
    solution: str
    permanent: bool


Report = Copied | FileChanged | Failed


class _Orphaned(Exception):
    """Capture is gone; nobody waits for this copy."""


def copy_in_process(job: CopyJob, pipe: Connection) -> None:
    """The worker's main: reports through the pipe, the last report being the outcome."""
    parent = os.getppid()

    def check_parent() -> None:
        if os.getppid() != parent:
            raise _Orphaned

    try:
        pipe.send(_copy(job, check_parent, pipe.send))
    except ValueNotCarried as error:
        pipe.send(Failed(error.reason, error.solution, permanent=True))
    except PenstockError as error:
        pipe.send(Failed(error.reason, error.solution, permanent=False))
    except psycopg.Error as error:
        found = source_error(error, f"copying {job.table.name}")
        pipe.send(Failed(found.reason, found.solution, permanent=False))
    except (_Orphaned, BrokenPipeError):
        return


def _copy(job: CopyJob, check_parent: Callable[[], None], report: Callable[[Report], None]) -> Report:
    producer = BoundedProducer(job.kafka, job.memory, check_parent)
    transcoder = choose.transcoder(job.pipeline, job.database, job.table.schema, job.schema_ids, job.epoch)
    origin = snapshot_origin(job.generation, time.time_ns() // 1000)
    size = 0
    with psycopg.connect(session_dsn(job.dsn, application_name="penstock copy"), autocommit=True) as session:
        session.execute("begin transaction isolation level repeatable read")
        session.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(job.snapshot)))
        session.execute(sql.SQL("lock table {} in access share mode").format(sql.Identifier(*job.table.name)))
        if filenode(session, job.table.schema.id) != job.table.filenode:
            return FileChanged()
        with session.cursor().copy(copy_command(job.table)) as rows:
            for line in rows:
                key, value = transcoder.copy_row(line, origin)
                producer.send(job.topic, key, value)
                size += len(value)
                origin.ordinal += 1
                if origin.ordinal % _ROWS_BETWEEN_REPORTS == 0:
                    producer.poll()
                    check_parent()
                    report(Copied(origin.ordinal, size, final=False))
    producer.flush()
    return Copied(origin.ordinal, size, final=True)


def copy_command(table: PublishedTable) -> sql.Composed:
    """COPY of the published columns and rows, children left out unless the table is partitioned."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.schema.columns)
    where = sql.SQL(" where {}").format(sql.SQL(table.row_filter)) if table.row_filter else sql.SQL("")
    only = sql.SQL("") if table.partitioned else sql.SQL("only ")
    return sql.SQL("copy (select {} from {}{}{}) to stdout").format(columns, only, sql.Identifier(*table.name), where)
