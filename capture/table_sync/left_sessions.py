"""Sessions in which copies were read by an earlier incarnation, and of which the server does not know that nobody is
there any more: their network fell silent, or what lies between went on answering.

Such a session holds a snapshot and the lock of a table; whoever alters that table would wait for it, without end.
"""

from __future__ import annotations

import enum

import psycopg
import structlog

from schemas.identifiers import PipelineName, slot_name

log = structlog.get_logger(__name__)


class CopySession(enum.Enum):
    """What a session of a copy is for."""

    ROWS = "copy"
    SNAPSHOT = "snapshot"

    def name_of(self, pipeline: PipelineName) -> str:
        """As the server shows it (`application_name`)."""
        return f"{slot_name(pipeline)} {self.value}"


def end_left_sessions(session: psycopg.Connection, pipeline: PipelineName) -> None:
    """For whoever holds the slot and has begun no copy: every such session is another's, who has lost the slot."""
    ended = session.execute(
        """
        select pid, pg_terminate_backend(pid) from pg_stat_activity
         where application_name = any(%s) and usename = current_user and datname = current_database()
        """,
        [[each.name_of(pipeline) for each in CopySession]],
    ).fetchall()
    if ended:
        log.warning("ended sessions that an earlier capture left", pids=[pid for pid, _ in ended])
