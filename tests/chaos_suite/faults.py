"""The faults, each with a name. One is over when its method returns: what was killed, cut or filled is healed again,
except where the product has to do it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from capture.table_sync.nursery import NAME as COPY_PROCESS
from console.control import send_command
from console.local_stack.postgres import LocalPostgres
from schemas.acknowledge import AcknowledgeConfig
from schemas.control import Resync, SwitchPolicy
from schemas.identifiers import TableName
from tests.chaos_suite.place import NAME, WAL_SENDER_SECONDS, Place, SmallDisk
from tests.chaos_suite.supervised import Supervised
from tests.support.processes import children, descendants

_POLICIES = (
    None,
    {"policy": "destinations"},
    {"policy": "kafka"},
    {"policy": "bounded", "max_wal": "1MB"},
)


class Impossible(Exception):
    """This machine, or this moment, does not allow the fault."""


class Faults:
    """`chance` decides about everything that is not said by the name of the fault."""

    def __init__(self, place: Place, capture: Supervised, applies: list[Supervised]) -> None:
        self._place = place
        self._capture = capture
        self._applies = applies
        self._columns = 0

    def kinds(self) -> dict[str, Callable[[Random], None]]:
        links = self._place.links
        stages = [self._capture, *self._applies]
        servers = {"postgres": self._place.source, "mirror": self._place.mirror}
        return {
            **{f"kill {stage.name}": lambda _, stage=stage: stage.kill() for stage in stages},
            **{f"freeze {stage.name}": lambda chance, stage=stage: self._freeze(stage, chance) for stage in stages},
            **{f"kill {name}": lambda _, server=server: _restart(server) for name, server in servers.items()},
            **{
                f"freeze {name}": lambda chance, server=server: _freeze(server.pid, chance)
                for name, server in servers.items()
            },
            "kill broker": lambda _: self._restart_broker(),
            "freeze broker": lambda chance: _freeze(self._place.kafka.pid, chance),
            "kill copy worker": lambda chance: self._kill_copier(chance, "worker"),
            "kill copy nursery": lambda chance: self._kill_copier(chance, "nursery"),
            "kill jvm of apply": self._kill_jvm,
            **{f"cut {name}": lambda _, name=name: links[name].cut() for name in links},
            **{f"reset {name}": lambda _, name=name: links[name].reset() for name in links},
            **{f"hold {name}": lambda chance, name=name: self._hold(name, chance) for name in links},
            **{f"delay {name}": lambda chance, name=name: self._slow(name, chance, "delay") for name in links},
            **{f"throttle {name}": lambda chance, name=name: self._slow(name, chance, "throttle") for name in links},
            "terminate walsender": lambda _: self._terminate("slot_name = 'penstock_chaos'"),
            "terminate every session": lambda _: self._terminate(None),
            "add column": self._add_column,
            "drop column": self._drop_column,
            "rename column": self._rename_column,
            "rewrite table": lambda _: self._sql("alter table documents alter n type bigint"),
            "truncate": lambda chance: self._sql(f"truncate {chance.choice(('bag', 'documents', 'bag, visitors'))}"),
            "resync": self._resync,
            "leave publication": self._leave,
            "switch policy": self._switch,
            "broker's disk full": lambda chance: self._fill(self._place.broker_disk, chance, self._restart_broker),
            "store's disk full": lambda chance: self._fill(self._place.store_disk, chance, lambda: None),
        }

    def heal(self) -> None:
        """After a fault that could not be ended as it should."""
        for link in self._place.links.values():
            link.heal()
        for disk in (self._place.broker_disk, self._place.store_disk):
            disk.free()
        for server in (self._place.source, self._place.mirror, self._place.kafka):
            server.start()

    def _sql(self, *statements: str) -> None:
        with self._place.source_session() as session:
            session.execute("set lock_timeout = '10s'")
            for statement in statements:
                session.execute(statement.encode())

    # Processes.

    def _freeze(self, stage: Supervised, chance: Random) -> None:
        frozen = stage.freeze()
        try:
            _wait(chance)
        finally:
            stage.thaw(frozen)

    def _restart_broker(self) -> None:
        self._place.kafka.kill()
        self._place.kafka.start()

    def _kill_copier(self, chance: Random, which: str) -> None:
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
        pid = chance.choice(self._applies).pid
        with suppress(OSError):
            for jvm in children(pid, "java") if pid is not None else []:
                os.kill(jvm, signal.SIGKILL)
                return
        raise Impossible("no Java process ran")

    # Links.

    def _hold(self, name: str, chance: Random) -> None:
        link = self._place.links[name]
        link.hold()
        try:
            _wait(chance)
        finally:
            link.heal()

    def _slow(self, name: str, chance: Random, how: str) -> None:
        link = self._place.links[name]
        if how == "delay":
            link.slow(seconds=chance.uniform(0.02, 0.3))
        else:
            link.slow(bytes_per_second=chance.uniform(20_000, 200_000))
        try:
            _wait(chance)
        finally:
            link.heal()

    def _terminate(self, slot: str | None) -> None:
        if slot is not None:
            self._sql(f"select pg_terminate_backend(active_pid) from pg_replication_slots where active and {slot}")
        else:
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

    # Disks.

    def _fill(self, disk: SmallDisk, chance: Random, restart: Callable[[], None]) -> None:
        if disk.why_not is not None:
            raise Impossible(f"no disk of its own: {disk.why_not}")
        disk.fill()
        try:
            _wait(chance)
        finally:
            disk.free()
            restart()


def _restart(server: LocalPostgres) -> None:
    server.kill()
    server.start()


def _freeze(pid: int, chance: Random) -> None:
    """A server, with all its processes."""
    frozen = [pid, *descendants(pid)]
    for each in frozen:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGSTOP)
    try:
        _wait(chance)
    finally:
        for each in frozen:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def _wait(chance: Random) -> None:
    """Now and then longer than Postgres waits for a silent client."""
    time.sleep(chance.choice((0.5, 1.5, 3.0, WAL_SENDER_SECONDS + 3.0)))


NOT_POSSIBLE = {
    "clock jumps": "Linux has one wall clock for all processes (its time namespaces move the others only); to move it "
    "for one process takes a library that is loaded into it."
}
"""What is not done, and why."""
