"""A destination that shows tables under other names, and less of them: a Destination around the real one.

On their way in, schemas, rows, alterations and progress get what the destination is to see; at the start, and in
errors, names become the source's again. So neither a destination nor the rest of apply knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from apply_spark.destination import Alteration, Batch, Destination
from apply_spark.errors import NotShown, ShapeRefused, TableFailed
from apply_spark.hashing import Hasher
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import Rows
from apply_spark.showing import Showing
from apply_spark.view import TableView
from schemas.evolution import changes as changes_between
from schemas.identifiers import OWN_SCHEMA, DestinationName, TableName
from schemas.phases import Errored, Init
from schemas.table import TableSchema


class ShownDestination:
    """What goes in is the source's; what the destination gets is what it may show."""

    def __init__(self, destination: Destination, showing: Showing, salt: bytes) -> None:
        self._destination = destination
        self._showing = showing
        self._hasher = Hasher(salt)

    @property
    def name(self) -> DestinationName:
        return self._destination.name

    def startup(self) -> Progress | None:
        stored = self._destination.startup()
        return None if stored is None else _named_as_at_the_source(stored)

    def shutdown(self) -> None:
        self._destination.shutdown()

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._require_columns(schema)
        self._require_own_name(schema.name, progress)
        view = self._view(schema)
        with self._told_by_source_names(progress):
            self._destination.drop_table_for_copy(view.schema, self._named_as_here(progress))

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        view = self._view(schema)
        with self._told_by_source_names(progress):
            self._destination.write_table_rows(view.schema, view.copied(rows), self._named_as_here(progress))

    def write_events(self, batch: Batch) -> None:
        altered = tuple(self._alteration(each) for each in batch.altered)
        tables = tuple(self._view(changes.schema).changes(changes) for changes in batch.tables)
        with self._told_by_source_names(batch.progress):
            self._destination.write_events(Batch(tables, self._named_as_here(batch.progress), altered))

    def save_progress(self, progress: Progress) -> None:
        self._destination.save_progress(self._named_as_here(progress))

    def _view(self, schema: TableSchema) -> TableView:
        return TableView(self._showing, self._hasher, schema)

    def _alteration(self, alteration: Alteration) -> Alteration:
        """What becomes of the mirror. A column that would be shown in another way from here on stops the table."""
        before, after = self._view(alteration.before), self._view(alteration.after)
        names = {column.number: column.name for column in alteration.after.columns}
        for number, how in before.treatments.items():
            if after.treatments.get(number, how) is not how:
                raise TableFailed(
                    alteration.before.name,
                    ShapeRefused(
                        f"By its new name, {names[number]}, one of its columns is shown in another way than before.",
                        solution="Correct `columns` of the destination, start apply again and run `penstock rollback "
                        "TABLE`; or run `penstock resync TABLE`, to show all rows so.",
                    ),
                )
        made = changes_between(before.schema, after.schema)
        assert made is not None  # noqa: S101 -- what is shown is a part of what was followed
        return Alteration(before.schema, after.schema, tuple(made))

    def _require_columns(self, schema: TableSchema) -> None:
        """A rule that names no column is a slip, and what it was meant to hide would be seen."""
        unmatched = self._showing.unmatched(schema)
        if unmatched:
            raise TableFailed(
                schema.name,
                NotShown(f"It has no column {', '.join(unmatched)}, which `columns` of the destination names."),
            )

    # Names.

    def _require_own_name(self, table: TableName, progress: Progress) -> None:
        wanted = self._showing.name_of(table)
        others = [
            other.table
            for other in progress.tables.values()
            if other.table != table and _has_mirror(other) and self._showing.name_of(other.table) == wanted
        ]
        if others:
            raise TableFailed(
                table,
                NotShown(
                    f"It would be called {wanted} here, as {others[0]} is.",
                    solution="Give one of the two another name by `rename` of the destination, or leave it out by "
                    "`tables`; then start apply again.",
                ),
            )

    def _named_as_here(self, progress: Progress) -> Progress:
        """Tables by their names at the destination. Of two that would have one, that which has a mirror has it."""
        here: dict[TableName, TableProgress] = {}
        for table in sorted(progress.tables.values(), key=_has_mirror, reverse=True):
            name = self._showing.name_of(table.table)
            name = name if name not in here else TableName(OWN_SCHEMA, str(table.table))
            here[name] = replace(table, table=name, source=table.table) if name != table.table else table
        return replace(progress, tables=here)

    @contextmanager
    def _told_by_source_names(self, progress: Progress) -> Iterator[None]:
        try:
            yield
        except TableFailed as error:
            here = self._named_as_here(progress).tables.get(error.table)
            if here is not None and here.source is not None:
                error.solution = error.solution.replace(str(error.table), str(here.source))
                error.table = here.source
            error.written = tuple(_at_the_source(table) for table in error.written)
            raise


def _named_as_at_the_source(progress: Progress) -> Progress:
    tables = [_at_the_source(table) for table in progress.tables.values()]
    return replace(progress, tables={table.table: table for table in tables})


def _at_the_source(table: TableProgress) -> TableProgress:
    return table if table.source is None else replace(table, table=table.source, source=None)


def _has_mirror(table: TableProgress) -> bool:
    """Whether something of it is written."""
    phase = table.phase.held if isinstance(table.phase, Errored) else table.phase
    return table.mirrored is not None or not isinstance(phase, Init)
