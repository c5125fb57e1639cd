"""Until others can see what the stream has already told: a walsender may send a commit before that.

A transaction gives the lock on its own id back once everybody can see it; with a synchronous standby that may be long
after its commit is in the WAL. A standby shows a transaction before its walsender sends it, and has no such lock.
"""

from __future__ import annotations

import time

import psycopg
import structlog

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.01

log = structlog.get_logger(__name__)


def wait_until_visible(session: psycopg.Connection, xid: int) -> None:
    """Returns at the latest after a while: who looks at the catalog then may find it as it was before."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while session.execute(
        "select 1 from pg_locks where locktype = 'transactionid' and transactionid = %s::text::xid", [str(xid)]
    ).fetchone():
        if time.monotonic() >= give_up:
            log.warning("a transaction that was streamed is not visible yet", xid=xid)
            return
        time.sleep(_PAUSE_SECONDS)
