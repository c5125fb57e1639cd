"""One moment of the source, held open for as long as copies need it.

A temporary slot gives the moment: its snapshot shows exactly the transactions with commit LSN < its consistent point.
A plain session imports the snapshot and exports it again, and the slot goes: it must not pin WAL during the copy.
"""

from __future__ import annotations

import secrets
import threading

import psycopg
from psycopg import sql

from capture.config import SourceConfig
from capture.errors import source_error
from capture.replication_connection import ReplicationConnection
from capture.sessions import plain_session
from capture.table_sync.left_sessions import CopySession
from capture.waiting import waiting_reporter
from schemas.failpoints import failpoint
from schemas.identifiers import PipelineName, SlotName, slot_name
from schemas.lsn import Lsn


class HeldSnapshot:
    """A snapshot that lives until `close`."""

    def __init__(self, source: SourceConfig, pipeline: PipelineName, stop: threading.Event) -> None:
        """Waits for every writer that is open now. Raises InterruptedError when `stop` is set meanwhile."""
        slot = SlotName(f"{slot_name(pipeline)}_copy_{secrets.token_hex(4)}")
        try:
            self._session = plain_session(source, application_name=CopySession.SNAPSHOT.name_of(pipeline))
        except psycopg.Error as error:
            raise source_error(error, "opening a session for a snapshot") from error
        try:
            dsn = source.dsn.get_secret_value()
            with ReplicationConnection(dsn, source.patience.total_seconds()) as exporter:
                failpoint("snapshot.taking", psycopg.OperationalError)
                exported = exporter.create_exported_slot(slot, stop, waiting_reporter(self._session))
                self._session.execute("begin transaction isolation level repeatable read")
                self._session.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(exported.snapshot)))
                row = self._session.execute("select pg_export_snapshot()").fetchone()
                failpoint("snapshot.taken", psycopg.OperationalError)
        except psycopg.Error as error:
            self._session.close()
            raise source_error(error, "exporting a snapshot") from error
        except BaseException:
            self._session.close()
            raise
        assert row is not None  # noqa: S101 -- a function returns a row
        self.id: str = row[0]
        self.lsn: Lsn = exported.lsn

    def close(self) -> None:
        self._session.close()
