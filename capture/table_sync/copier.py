"""Copies one range of one table under a snapshot to the table's copy topic, in a transaction of its own.

The files of the table are compared with those from before the snapshot, under a lock: a file that changed (TRUNCATE,
VACUUM FULL, a rewriting ALTER) is not MVCC-safe, and COPY would return too few rows without an error. A partition that
came since is not in the snapshot: whoever looks at the publication judges it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import sql

from capture.producer import BoundedProducer
from capture.publication import PublishedTable, filenode
from capture.table_sync.membership import members
from capture.table_sync.pace import Pace
from capture.table_sync.ranges import CopyRange
from capture.table_sync.rows import copied_rows
from capture.transcode.contract import TableTranscoder
from capture.transcode.reference import snapshot_origin
from capture.wire import wire_of
from schemas.failpoints import failpoint
from schemas.identifiers import SchemaId
from schemas.lsn import Lsn
from schemas.table import TableSchema
from stores.kafka_errors import BrokerUnreachable
from stores.patient_session import PatientSession

_REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class TableJob:
    """A table's copy: what all of its ranges have in common."""

    table: PublishedTable
    schema_ids: tuple[SchemaId, SchemaId | None]
    snapshot: str
    snapshot_lsn: Lsn
    """The moment that the snapshot shows. That of the generation, unless the copy was interrupted and goes on."""
    generation: Lsn
    topic: str


@dataclass(frozen=True)
class Copied:
    """So many rows and bytes of Avro so far; the last report of a range is final, and Kafka has all of it."""

    rows: int
    bytes: int
    final: bool


@dataclass(frozen=True)
class FileChanged:
    """The table has other files than before the snapshot: only the next generation can be true."""


@dataclass(frozen=True)
class Source:
    """What a worker reads with and writes to."""

    session: PatientSession
    transcoder: TableTranscoder
    producer: BoundedProducer
    pace: Pace
    check_parent: Callable[[], None]

    def alive(self) -> None:
        """While Postgres makes us wait."""
        self.check_parent()
        self.session.look()


def copy_range(
    job: TableJob, part: CopyRange, source: Source, report: Callable[[Copied], None]
) -> Copied | FileChanged:
    """Returns when Kafka has the whole range. The session is idle again, or of no more use if this raises."""
    session = source.session
    session.execute("begin transaction isolation level repeatable read")
    session.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(job.snapshot)))
    session.execute(sql.SQL("lock table {} in access share mode").format(sql.Identifier(*job.table.name)))
    files = members(filenode(session, job.table.schema.id))
    if not members(job.table.filenode) <= files or not _has_its_columns(session, job.table.schema):
        session.execute("rollback")
        return FileChanged()
    origin = snapshot_origin(job.snapshot_lsn, time.time_ns() // 1000)
    origin.ordinal = part.first_ordinal
    command = copy_command(job.table, part).as_bytes(session)
    failpoint("copy.range_starting", psycopg.OperationalError)
    size, next_report = 0, time.monotonic() + _REPORT_SECONDS
    for batch in copied_rows(wire_of(session.pgconn), command, source.transcoder, origin, source.alive):
        session.heard()
        source.producer.send_batch(job.topic, batch)
        size += batch.size
        if time.monotonic() >= next_report:
            source.alive()
            report(Copied(origin.ordinal - part.first_ordinal, size, final=False))
            next_report = time.monotonic() + _REPORT_SECONDS
        source.pace.take(batch.size)
    session.execute("commit")
    failpoint("copy.range_sent", psycopg.OperationalError)
    source.producer.flush()
    failpoint("copy.range_flushed", BrokerUnreachable)
    return Copied(origin.ordinal - part.first_ordinal, size, final=True)


def _has_its_columns(session: psycopg.Connection, schema: TableSchema) -> bool:
    """Whether each column still has its name: another one may have it by now, and COPY would take that one's values.

    Asked of a function that sees the catalog of now, as COPY does; a query of it would see that of the snapshot."""
    row = session.execute(
        """
        select array(select (pg_identify_object_as_address('pg_class'::regclass, %s::oid, n.number)).object_names[3]
                       from unnest(%s::int[]) with ordinality n (number, place) order by n.place)
        """,
        [schema.id, [column.number for column in schema.columns]],
    ).fetchone()
    return row is not None and row[0] == [column.name for column in schema.columns]


def copy_command(table: PublishedTable, part: CopyRange) -> sql.Composed:
    return sql.SQL("copy ({}) to stdout").format(select_rows(table, part))


def select_rows(table: PublishedTable, part: CopyRange) -> sql.Composed:
    """The published columns and rows of a range. Children are left out unless the table is partitioned."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.schema.columns)
    conditions = []
    if part.first > 0:
        conditions.append(_ctid(">=", part.first))
    if part.end is not None:
        conditions.append(_ctid("<", part.end))
    if table.row_filter:
        conditions.append(sql.SQL("({})").format(sql.SQL(table.row_filter)))
    where = sql.SQL(" where {}").format(sql.SQL(" and ").join(conditions)) if conditions else sql.SQL("")
    through_root = part.file is None and table.partitioned
    only = sql.SQL("") if through_root else sql.SQL("only ")
    name = part.file.name if part.file is not None else table.name
    return sql.SQL("select {} from {}{}{}").format(columns, only, sql.Identifier(*name), where)


def _ctid(comparison: str, block: int) -> sql.Composed:
    return sql.SQL("ctid {} {}").format(sql.SQL(comparison), sql.Literal(f"({block},0)"))
