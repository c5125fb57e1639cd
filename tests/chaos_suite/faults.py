"""The faults, each with a name. One is over when its method returns: what was killed, cut or filled is healed again,
except where the product has to do it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import TypeAlias

import psycopg

from capture.table_sync.nursery import NAME as COPY_PROCESS
from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.acknowledge import AcknowledgeConfig
from schemas.control import Resync, SwitchPolicy
from schemas.identifiers import TableName
from tests.chaos_suite.place import NAME, WAL_SENDER_SECONDS, Place, SmallDisk
from tests.chaos_suite.supervised import Supervised
from tests.support.eventually import eventually
from tests.support.processes import children, descendants, signal_all
from tests.support.proxy import Proxy

_POLICIES = (
    None,
    {"policy": "destinations"},
    {"policy": "kafka"},
    {"policy": "bounded", "max_wal": "1MB"},
)

_JUMP_SECONDS = 2.0, 6 * 3600.0
_STAYS_WRONG = 0.5
_LOCK_SECONDS = 30
_LONG_TRANSACTIONS = """
    select application_name, state, wait_event from pg_stat_activity where xact_start < now() - interval '10 seconds'
"""

Fault: TypeAlias = Callable[[Random], None]


class Impossible(Exception):
    """This machine, or this moment, does not allow the fault."""


class Faults:
    """`chance` decides about everything that is not said by the name of the fault."""

    def __init__(self, place: Place, capture: Supervised, applies: list[Supervised]) -> None:
        self._place = place
        self._capture = capture
        self._applies = applies
        self._columns = 0

    def kinds(self) -> dict[str, Fault]:
        """All that can happen, by name."""
        return (
            self._of_stages()
            | self._of_servers()
            | self._of_links()
            | self._of_clocks()
            | self._of_tables()
            | self._of_the_rest()
        )

    def _of_stages(self) -> dict[str, Fault]:
        stages = [self._capture, *self._applies]
        return {
            **{f"kill {stage.name}": partial(_kill, stage) for stage in stages},
            **{f"freeze {stage.name}": partial(_freeze_stage, stage) for stage in stages},
            "kill copy worker": partial(self._kill_copier, "worker"),
            "kill copy nursery": partial(self._kill_copier, "nursery"),
            "kill jvm of apply": self._kill_jvm,
        }

    def _of_servers(self) -> dict[str, Fault]:
        servers: dict[str, LocalPostgres | LocalKafka] = {
            "postgres": self._place.source,
            "mirror": self._place.mirror,
            "broker": self._place.kafka,
        }
        return {
            **{f"kill {name}": partial(_restart, server) for name, server in servers.items()},
            **{f"freeze {name}": partial(_freeze_server, server) for name, server in servers.items()},
            "terminate walsender": self._terminate_walsender,
            "terminate every session": self._terminate_sessions,
        }

    def _of_links(self) -> dict[str, Fault]:
        ways = {"cut": _cut, "reset": _reset, "hold": _hold, "delay": _delay, "throttle": _throttle}
        found = {
            f"{way} {name}": partial(do, link) for way, do in ways.items() for name, link in self._place.links.items()
        }
        return found | {"cut apply-mirror": partial(_mute, self._place.links["apply-mirror"])}

    def _of_clocks(self) -> dict[str, Fault]:
        return {
            f"clock of {name} {way}": partial(self._jump, name, sign)
            for name in self._place.clocks
            for way, sign in (("forward", 1), ("back", -1))
        }

    def _of_tables(self) -> dict[str, Fault]:
        return {
            "add column": self._add_column,
            "drop column": self._drop_column,
            "rename column": self._rename_column,
            "rewrite table": self._rewrite,
            "truncate": self._truncate,
            "resync": self._resync,
            "leave publication": self._leave,
        }

    def _of_the_rest(self) -> dict[str, Fault]:
        return {
            "switch policy": self._switch,
            "broker's disk full": self._fill_broker,
            "store's disk full": partial(_fill, self._place.store_disk),
        }

    def heal(self) -> None:
        """After a fault that could not be ended as it should. The clock of Postgres is set right, too: where it went
        back after a cut, wal_sender_timeout, by which the end of a silent connection is known, comes as much later."""
        for link in self._place.links.values():
            link.heal()
        for disk in (self._place.broker_disk, self._place.store_disk):
            disk.free()
        self._place.clocks["postgres"].set_right()
        for server in (self._place.source, self._place.mirror, self._place.kafka):
            server.start()

    def set_clocks_right(self) -> None:
        """After a round, and not before it is checked: to jump forward would wake whoever waits for too long."""
        for clock in self._place.clocks.values():
            clock.set_right()

    def _sql(self, *statements: str) -> None:
        """A session of a copy that a cut has left at the server holds the lock of its table, until capture has noticed
        the cut, and ends it."""
        with self._place.source_session() as session:
            session.execute(f"set lock_timeout = '{_LOCK_SECONDS}s'")
            for statement in statements:
                try:
                    session.execute(statement.encode())
                except psycopg.errors.LockNotAvailable:
                    holders = session.execute(_LONG_TRANSACTIONS).fetchall()
                    raise TimeoutError(f"a table was locked for {_LOCK_SECONDS} s, perhaps by {holders}") from None

    # Processes.

    def _kill_copier(self, which: str, chance: Random) -> None:
        """While a table is copied."""
        self._resync_table("archive")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            pid = self._capture.pid
            with suppress(OSError):
                nurseries = children(pid, COPY_PROCESS) if pid is not None else []
                workers = [worker for nursery in nurseries for worker in children(nursery, COPY_PROCESS)]
                if workers:
                    os.kill(chance.choice(workers) if which == "worker" else nurseries[0], signal.SIGKILL)
                    return
            time.sleep(0.02)
        raise Impossible("no copy was under way")

    def _kill_jvm(self, chance: Random) -> None:
        stage = chance.choice(self._applies)
        pid = stage.pid
        with suppress(OSError):
            for jvm in children(pid, "java") if pid is not None else []:
                stage.excuse_files()
                os.kill(jvm, signal.SIGKILL)
                return
        raise Impossible("no Java process ran")

    # Sessions.

    def _terminate_walsender(self, _chance: Random) -> None:
        self._sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active")

    def _terminate_sessions(self, _chance: Random) -> None:
        self._sql(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            f"where pid <> pg_backend_pid() and datname = '{NAME}'"
        )

    # Shapes, membership, commands.

    def _add_column(self, chance: Random) -> None:
        self._columns += 1
        name = f"extra_{self._columns}"
        self._sql(
            f"alter table documents add {name} {chance.choice(('int', 'int not null default 7', 'text'))}",
            f"update documents set {name} = '5' where id % 7 = 0",
        )

    def _extra_column(self, chance: Random) -> str:
        """One that there is; where there is none, a new one."""
        with self._place.source_session() as session:
            found = session.execute(
                "select attname from pg_attribute where attrelid = 'documents'::regclass and attname like 'extra%' "
                "and not attisdropped order by attnum"
            ).fetchall()
        if found:
            return str(chance.choice(found)[0])
        self._add_column(chance)
        return f"extra_{self._columns}"

    def _drop_column(self, chance: Random) -> None:
        self._sql(f"alter table documents drop {self._extra_column(chance)}")

    def _rename_column(self, chance: Random) -> None:
        name = self._extra_column(chance)
        self._columns += 1
        self._sql(f"alter table documents rename {name} to extra_{self._columns}")

    def _rewrite(self, chance: Random) -> None:
        """Back and forth: a type that is the same already would rewrite nothing."""
        self._sql(f"alter table documents alter n type {chance.choice(('int', 'bigint', 'numeric'))}")

    def _truncate(self, chance: Random) -> None:
        self._sql(f"truncate {chance.choice(('bag', 'documents', 'bag, visitors'))}")

    def _resync(self, chance: Random) -> None:
        self._resync_table(chance.choice(("documents", "bag", "visitors", "archive")))

    def _resync_table(self, table: str) -> None:
        send_command(self._place.config, Resync(TableName("public", table)))

    def _leave(self, chance: Random) -> None:
        self._sql(f"alter publication {NAME} drop table visitors")
        try:
            _wait(chance)
        finally:
            self._sql(f"alter publication {NAME} add table visitors")

    def _switch(self, chance: Random) -> None:
        wanted = chance.choice(_POLICIES)
        policy = AcknowledgeConfig.model_validate(wanted) if wanted is not None else None
        send_command(self._place.config, SwitchPolicy(policy))

    # Clocks and disks.

    def _jump(self, name: str, sign: int, chance: Random) -> None:
        """Of seconds as often as of hours. Every second time it stays wrong until the round ends."""
        clock = self._place.clocks[name]
        if clock.why_not is not None:
            raise Impossible(clock.why_not)
        eventually(
            lambda: clock.is_read_by(self._place.source.pid if name == "postgres" else self._capture.pid),
            what=f"a clock of {name} that can jump",
        )
        shortest, longest = _JUMP_SECONDS
        seconds = sign * shortest * (longest / shortest) ** chance.random()
        clock.jump(seconds)
        if chance.random() < _STAYS_WRONG:
            return
        try:
            _wait(chance)
        finally:
            clock.jump(-seconds)

    def _fill_broker(self, chance: Random) -> None:
        _fill(self._place.broker_disk, chance)
        _restart(self._place.kafka, chance)


def _kill(stage: Supervised, _chance: Random) -> None:
    stage.kill()


def _freeze_stage(stage: Supervised, chance: Random) -> None:
    pid = stage.pid
    if pid is not None:
        _freeze(pid, chance)


def _freeze_server(server: LocalPostgres | LocalKafka, chance: Random) -> None:
    _freeze(server.pid, chance)


def _freeze(pid: int, chance: Random) -> None:
    """It and all that it started."""
    frozen = [pid, *descendants(pid)]
    signal_all(frozen, signal.SIGSTOP)
    try:
        _wait(chance)
    finally:
        signal_all(frozen, signal.SIGCONT)


def _restart(server: LocalPostgres | LocalKafka, _chance: Random) -> None:
    server.kill()
    server.start()


def _cut(link: Proxy, _chance: Random) -> None:
    link.cut()


def _mute(link: Proxy, _chance: Random) -> None:
    link.mute()


def _reset(link: Proxy, _chance: Random) -> None:
    link.reset()


def _hold(link: Proxy, chance: Random) -> None:
    link.hold()
    _heal_later(link, chance)


def _delay(link: Proxy, chance: Random) -> None:
    link.slow(seconds=chance.uniform(0.02, 0.3))
    _heal_later(link, chance)


def _throttle(link: Proxy, chance: Random) -> None:
    link.slow(bytes_per_second=chance.uniform(20_000, 200_000))
    _heal_later(link, chance)


def _heal_later(link: Proxy, chance: Random) -> None:
    try:
        _wait(chance)
    finally:
        link.heal()


def _fill(disk: SmallDisk, chance: Random) -> None:
    if disk.why_not is not None:
        raise Impossible(f"no disk of its own: {disk.why_not}")
    disk.fill()
    try:
        _wait(chance)
    finally:
        disk.free()


def _wait(chance: Random) -> None:
    """Now and then longer than Postgres waits for a silent client."""
    time.sleep(chance.choice((0.5, 1.5, 3.0, WAL_SENDER_SECONDS + 3.0)))
