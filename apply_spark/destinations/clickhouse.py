"""ClickHouse: each table a view under its own name, over a ReplacingMergeTree in the database `penstock`.

ClickHouse has no transactions. Exactly once therefore means: decide, then do, and do again after a crash. How:

1.  The rows of every table of an interval are staged: complete, in the types of the mirror, with the version of the
    record that is about to be made. All that may stop a table is found out here.
2.  One row, the record (clickhouse_state.py), decides: the progress, the mirrors, and the tables with staged rows. From
    here on the interval will be there, whatever happens.
3.  The staged rows of each table are carried over to its storage, by one INSERT, and their table is dropped. A start
    that finds staged rows of the last record carries them over again: the same rows with the same version, of which a
    ReplacingMergeTree keeps one.

So a crash leaves no table behind or ahead. A reader sees the tables of an interval one after the other, and a very
large interval of a table in pieces. A truncate, a new copy and a new shape are another view over other columns or
another storage: made before, exchanged in one step. The view shows a new copy once its table is Ready.

Copied rows of a table with a key are not staged: the same rows under another version leave the same table.

Who writes: the last one that started. Its record ends the versions of the apply before it, which may only be frozen;
what that one still carries over when it wakes has an old version, and a ReplacingMergeTree keeps the newer row.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from clickhouse_connect.driver.client import Client
from pydantic import BaseModel, Field, SecretStr

from apply_spark.destination import ALL_MODES, Alteration, Batch, TableChanges
from apply_spark.destinations.clickhouse_client import REFUSED, connected, doing, refusals, told
from apply_spark.destinations.clickhouse_ending import Ended
from apply_spark.destinations.clickhouse_load import loaded
from apply_spark.destinations.clickhouse_mirror import (
    Names,
    add_columns,
    drop_stray_columns,
    is_taken,
    make_storage,
    make_view,
    own_tables,
)
from apply_spark.destinations.clickhouse_rows import (
    Target,
    carry_over,
    insert_bag,
    insert_partial,
    insert_whole,
    load,
    make_staged,
)
from apply_spark.destinations.clickhouse_state import Mirror, Pending, State, States, new_mirror
from apply_spark.errors import DestinationAway, DestinationInUse, DestinationTaken, NotHeld, TableFailed
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import Rows
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.settings import checked
from schemas.table import TableSchema


class ClickHouseOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "clickhouse"`."""

    dsn: SecretStr = Field(
        description="How to reach the server: `https://user:password@host:8443`; or `chdb:///folder`, an engine in"
        " apply's own process."
    )
    database: str = Field(
        default="{schema}",
        min_length=1,
        description="The ClickHouse database for the tables of a schema; `{schema}` stands for its name.",
    )
    own_database: str = Field(
        default="penstock", min_length=1, description="The database for progress and the storage of the mirrors."
    )


class ClickHouseDestination:
    """One server."""

    modes = ALL_MODES

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        self.name = name
        self._options = checked(ClickHouseOptions, options, f"destinations.{name}")
        self._names = Names(name, self._options.own_database, self._options.database)
        self._owner = secrets.token_hex(8)
        self._session: Client | None = None
        self._states: States
        self._version = 0
        self._state = State()

    def startup(self) -> Progress | None:
        if self._session is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        self._session = client = connected(self.name, self._options.dsn.get_secret_value())
        try:
            with told(self.name):
                self._states = States(client, self._options.own_database, self.name, self._owner)
                self._states.make()
                version, found = self._states.newest()
                try:
                    self._states.add(version + 1, found)
                except DestinationTaken:
                    raise DestinationInUse(f"Another apply opened destination {self.name} at this moment.") from None
                self._version = version + 1
                self._state = self._recovered(found)
        except BaseException:
            self.shutdown()
            raise
        return self._state.progress

    def shutdown(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._refuse_taken_name(schema.name)
        table, state = schema.name, self._settled(progress)
        shown = {table: state.views[table]} if table in state.views else {}
        with refusals(table):
            made = {table: self._made(schema)}
            self._commit(replace(state, mirrors={**state.mirrors, **made}, shown={**state.shown, **shown}))

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        if not schema.key:
            self.write_events(Batch((TableChanges(schema, truncate=False, rows=rows, partial=False),), progress))
            return
        with self._scratch() as scratch, refusals(schema.name):
            target = self._target(schema, self._mirror(schema))
            scratch.append(self._names.temporary("loaded", target.version, 0))
            copied = loaded(rows.arrow(), schema)
            if copied.rows.num_rows:
                insert_whole(target, copied, scratch[0], target.mirror.storage)
        failpoint("clickhouse.copied", DestinationAway)
        self._commit(self._settled(progress))

    def write_events(self, batch: Batch) -> None:
        before = self._state
        mirrors = {**before.mirrors, **{each.after.name: self._altered(each) for each in batch.altered}}
        pending: list[Pending] = []
        with self._scratch() as scratch:
            for number, changes in enumerate(batch.tables):
                table = changes.schema.name
                with refusals(table):
                    mirrors[table], staged = self._staged(changes, mirrors.get(table), number, scratch)
                pending += staged
            failpoint("clickhouse.staged", DestinationAway)
            held = before.progress.tables if before.progress is not None else {}
            known = tuple(held[each.table] for each in pending if each.table in held)
            # From here on only the record says what is needed: that nobody answered does not mean that it was not made.
            needed = {*(each.staged for each in pending), *(mirror.storage for mirror in mirrors.values())}
            scratch[:] = [name for name in scratch if name not in needed]
            self._decide(State(batch.progress, mirrors, tuple(pending), known, before.shown))
        failpoint("clickhouse.decided", DestinationAway)
        self._do(batch, before)

    def save_progress(self, progress: Progress) -> None:
        self._commit(self._settled(progress))

    # Before the record.

    def _staged(
        self, changes: TableChanges, mirror: Mirror | None, number: int, scratch: list[str]
    ) -> tuple[Mirror, list[Pending]]:
        """The rows of a table: in a new storage after a truncate, else in a table that is pending."""
        schema = changes.schema
        if changes.truncate:
            mirror = self._made(schema)
            scratch.append(mirror.storage)
        if mirror is None:
            raise _gone(schema.name)
        target = self._target(schema, mirror)
        source, staged = (self._names.temporary(what, target.version, number) for what in ("loaded", "staged"))
        scratch += [source, staged]
        batch = loaded(changes.rows.arrow(), schema)
        count = batch.rows.num_rows
        ended = Ended(target, changes.ending) if changes.ending is not None else None
        if not count and ended is None:
            return mirror, []
        into = mirror.storage if changes.truncate else staged
        if not changes.truncate:
            make_staged(target, staged)
        if not schema.key:
            load(target, batch, source)
            insert_bag(target, source, into)
        elif count and changes.partial:
            load(target, batch, source)
            insert_partial(target, source, into, ended.rows() if ended is not None else None)
        elif count:
            insert_whole(target, batch, source, into)
        if ended is not None:
            ended.insert_besides(staged)
        return mirror, [] if changes.truncate else [Pending(schema.name, staged)]

    def _altered(self, alteration: Alteration) -> Mirror:
        """The mirror in its new shape. Its storage has the new columns from here on; the view has them later."""
        schema = alteration.after
        before = self._mirror(schema)
        after = before.reshaped(schema)
        has = {each.stored for each in before.columns}
        with refusals(schema.name):
            new = [column for column in schema.columns if after.stored(column) not in has]
            add_columns(self._client, self._names, after, new)
        return after

    def _made(self, schema: TableSchema) -> Mirror:
        """An empty storage, which no view shows yet."""
        mirror = new_mirror(schema, self._names.storage(schema.name, self._version + 1))
        make_storage(self._client, self._names, mirror, schema)
        return mirror

    # The record, and what follows of it.

    def _commit(self, state: State) -> None:
        """A record with nothing pending, and its views."""
        before = self._state
        self._decide(state)
        for table, mirror in self._state.views.items():
            if mirror != before.views.get(table):
                with doing(table):
                    self._show(mirror)
        self._drop(*before.storages - self._state.storages)

    def _decide(self, state: State) -> None:
        state = state.levelled()
        with told(self.name):
            failpoint("clickhouse.recording", OSError)
            self._states.add(self._version + 1, state)
            failpoint("clickhouse.recorded", OSError)
        self._version += 1
        self._state = state

    def _do(self, batch: Batch, before: State) -> None:
        """Views, then rows. A table that fails stays where it was; the others are written."""
        state, failures = self._state, list[TableFailed]()
        for mirror in state.mirrors.values():
            staged = [each for each in state.pending if each.table == mirror.table]
            try:
                with doing(mirror.table):
                    view = state.views[mirror.table]
                    if view != before.views.get(mirror.table):
                        self._show(view)
                    for each in staged:
                        carry_over(self._client, self._names, mirror, each.staged)
                        failpoint("clickhouse.carried", OSError)
                        self._drop(each.staged)
            except TableFailed as error:
                failures.append(error)
        self._drop(*before.storages - state.storages)
        if any(state.mirrors[each.after.name] != before.mirrors[each.after.name] for each in batch.altered):
            with suppress(*REFUSED):
                drop_stray_columns(self._client, self._names, state.mirrors.values())
        if failures:
            failed = {error.table for error in failures}
            stay = [table for table in state.before if table.table in failed]
            self._state = replace(state, progress=batch.progress.with_tables(*stay))
            tables = {changes.schema.name for changes in batch.tables} - failed
            failures[0].written = tuple(batch.progress.tables[table] for table in tables)
            raise failures[0]

    def _show(self, mirror: Mirror) -> None:
        failpoint("clickhouse.exchanging", OSError)
        make_view(self._client, self._names, mirror)

    def _recovered(self, found: State) -> State:
        """Does what the last record decided and a crash may have kept from being done; then tidies up."""
        there = own_tables(self._client, self._names)
        behind: dict[TableName, TableProgress] = {}
        for pending in found.pending:
            if pending.staged in there:
                try:
                    with doing(pending.table):
                        carry_over(self._client, self._names, found.mirrors[pending.table], pending.staged)
                except TableFailed:
                    behind |= {each.table: each for each in found.before if each.table == pending.table}
        for mirror in found.views.values():
            if mirror.storage in there and not is_taken(self._client, self._names, mirror.table):
                make_view(self._client, self._names, mirror)
        kept = {*found.storages, *(each.staged for each in found.pending if each.table in behind)}
        self._drop(*there - kept)
        drop_stray_columns(self._client, self._names, found.mirrors.values())
        if found.progress is None:
            return found
        return replace(found, progress=found.progress.with_tables(*behind.values()), pending=(), before=())

    # What is there.

    @property
    def _client(self) -> Client:
        assert self._session is not None  # noqa: S101 -- startup comes first
        return self._session

    def _settled(self, progress: Progress) -> State:
        """Nothing is pending."""
        return State(progress, self._state.mirrors, shown=self._state.shown)

    def _mirror(self, schema: TableSchema) -> Mirror:
        mirror = self._state.mirrors.get(schema.name)
        if mirror is None:
            raise _gone(schema.name)
        return mirror

    def _target(self, schema: TableSchema, mirror: Mirror) -> Target:
        return Target(self._client, self._names, schema, mirror, self._version + 1)

    def _refuse_taken_name(self, table: TableName) -> None:
        view = self._names.view(table)
        twins = [other for other in self._state.mirrors if other != table and self._names.view(other) == view]
        if twins:
            raise TableFailed(table, NotHeld(f"Its mirror would be that of {twins[0]}."))
        with refusals(table):
            if is_taken(self._client, self._names, table):
                raise TableFailed(
                    table,
                    NotHeld(
                        "At the place of its mirror stands a table or view that this destination did not make.",
                        solution="Remove it, or set `database` of the destination, such as to `mirror_{schema}`.",
                    ),
                )

    def _drop(self, *own: str) -> None:
        """What is left is dropped at the next start."""
        for name in own:
            with suppress(*REFUSED):
                self._client.command(f"drop table if exists {self._names.own(name)}")

    @contextmanager
    def _scratch(self) -> Iterator[list[str]]:
        """Names of tables that are dropped in the end."""
        names: list[str] = []
        try:
            yield names
        finally:
            self._drop(*names)


def _gone(table: TableName) -> TableFailed:
    return TableFailed(
        table,
        NotHeld("It has no mirror here.", solution="Run `penstock resync TABLE`: it makes the mirror anew."),
    )
