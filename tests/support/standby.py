"""A primary and its physical standby, as real servers: the standby begins as a copy of the primary's files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from console.local_stack.postgres import LocalPostgres
from tests.support.eventually import eventually

PHYSICAL_SLOT = "standby"
_SYNCED_SLOTS_SINCE = 17


@contextmanager
def a_standby(primary: LocalPostgres) -> Iterator[LocalPostgres]:
    """Streams from the primary, which is restarted once, through a physical slot; its slots are kept in step (17)."""
    with psycopg.connect(primary.dsn(), autocommit=True) as admin:
        admin.execute("select pg_create_physical_replication_slot(%s, true)", [PHYSICAL_SLOT])
    with tempfile.TemporaryDirectory(prefix="penstock-standby-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server's user has to go in
        primary.stop()
        shutil.copytree(primary.directory / "data", folder / "postgres" / "data")
        shutil.copyfile(primary.directory / "password", folder / "postgres" / "password")
        primary.start()
        shutil.rmtree(folder / "postgres" / "data" / "pg_replslot")
        (folder / "postgres" / "data" / "pg_replslot").mkdir()
        (folder / "postgres" / "data" / "standby.signal").touch()
        settings = {
            "primary_conninfo": primary.dsn(),
            "primary_slot_name": PHYSICAL_SLOT,
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
            "fsync": "off",
        }
        if primary.version >= _SYNCED_SLOTS_SINCE:
            settings["sync_replication_slots"] = "on"
        with LocalPostgres(primary.version, folder / "postgres", settings) as standby:
            yield standby


def has_replayed(primary: LocalPostgres, standby: LocalPostgres) -> bool:
    """All that the primary has written when it is asked."""
    with psycopg.connect(primary.dsn()) as one, psycopg.connect(standby.dsn()) as other:
        written = one.execute("select pg_current_wal_lsn()::text").fetchone()
        assert written is not None
        return other.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone() == (True,)


def promote(server: LocalPostgres) -> None:
    """Makes a standby that runs a primary, on the next timeline."""
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("select pg_promote()")
        eventually(lambda: admin.execute("select not pg_is_in_recovery()").fetchone() == (True,), what="the promotion")


def either(one: LocalPostgres, other: LocalPostgres, database: str) -> str:
    """A DSN that finds whichever of the two is the primary."""
    parts = conninfo_to_dict(one.dsn(database))
    hosts = {"host": "127.0.0.1,127.0.0.1", "port": f"{one.port},{other.port}"}
    return make_conninfo("", **{**parts, **hosts, "target_session_attrs": "read-write"})
