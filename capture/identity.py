"""Whether the server is still the one that our LSNs belong to.

An LSN says nothing by itself: another server, a recreated database, a restored backup and a standby that was promoted
too early all have WAL at the same numbers, and a slot there would go on without an error, and without what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from capture.errors import SourceChanged, SourceUnreachable
from capture.replication_connection import ReplicationConnection
from schemas.lsn import Lsn
from stores.state import SourceIdentity

DECODES_ON_STANDBY_SINCE = 16
_VERSION = 10_000


@dataclass(frozen=True)
class Server:
    """Who answers, and where its WAL ends: on a standby, what it has replayed."""

    identity: SourceIdentity
    wal_end: Lsn
    is_standby: bool
    version: int

    @property
    def decodes(self) -> bool:
        return not self.is_standby or self.version >= DECODES_ON_STANDBY_SINCE


def identify(session: psycopg.Connection, connection: ReplicationConnection) -> Server:
    row = session.execute(
        "select oid::bigint, pg_is_in_recovery() from pg_database where datname = current_database()"
    ).fetchone()
    assert row is not None  # noqa: S101 -- we are connected to it
    system = connection.identify()
    identity = SourceIdentity(system.id, row[0], system.timeline)
    return Server(identity, system.wal_end, row[1], session.info.server_version // _VERSION)


def judge_source(known: SourceIdentity | None, server: Server, last: Lsn, history: Callable[[int], str]) -> None:
    """Raises SourceChanged where the WAL before `last`, the last checkpoint, is not that of the server that we knew.

    `history` gives the history of a timeline. Where nothing is known, for the store is new, only the end of the WAL is
    compared. A standby that has yet to replay what we have seen is SourceUnreachable: time heals that."""
    now = server.identity
    if known is not None:
        if now.system_id != known.system_id:
            raise SourceChanged(
                f"This is another server: its system identifier is {now.system_id}, and the topics were filled from "
                f"{known.system_id}."
            )
        if now.database_oid != known.database_oid:
            raise SourceChanged(
                f"The database was made anew: its oid is {now.database_oid}, and the topics were filled from "
                f"{known.database_oid}."
            )
        if now.timeline != known.timeline:
            _judge_timeline(known.timeline, now.timeline, last, history)
    if server.wal_end < last:
        if server.is_standby:
            raise SourceUnreachable(
                f"The standby has replayed up to {server.wal_end}, and the last checkpoint is at {last}.",
                solution="Wait until the standby has caught up with its primary.",
            )
        raise SourceChanged(
            f"The WAL of the server ends at {server.wal_end}, before the last checkpoint at {last}: "
            "it was restored from a backup, or has lost what it had written."
        )


def _judge_timeline(known: int, now: int, last: Lsn, history: Callable[[int], str]) -> None:
    fork = fork_from(known, history(now)) if now > known else None
    if fork is None:
        raise SourceChanged(
            f"The server is on timeline {now}, which does not come from timeline {known}, from which the topics were "
            "filled."
        )
    if fork < last:
        raise SourceChanged(
            f"The server left timeline {known} at {fork}, before the last checkpoint at {last}: "
            "it was promoted or restored without the transactions between."
        )


def fork_from(timeline: int, history: str) -> Lsn | None:
    """Where a later timeline, whose history this is, left this one; None where it does not come from it."""
    for line in history.splitlines():
        fields = line.partition("#")[0].split()
        if fields and int(fields[0]) == timeline:
            return Lsn.parse(fields[1])
    return None
