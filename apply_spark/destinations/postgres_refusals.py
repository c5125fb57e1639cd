"""What Postgres refuses, told without its own messages: they may hold a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from apply_spark.destinations.postgres_merge import Staged, unheld_column
from apply_spark.errors import DestinationFull, DestinationLocked, NotHeld, NotPermitted, TableFailed
from schemas.identifiers import TableName

_REFUSED = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    errors.DependentObjectsStillExist,
)
"""What Postgres says of a table or a value; the other errors are about the server or the connection."""


@contextmanager
def refusals(table: TableName) -> Iterator[None]:
    """What Postgres refuses to do with a table stops that table only."""
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
        raise TableFailed(
            table,
            DestinationLocked(
                f"Another session has held its mirror for longer than lock_timeout ({type(error).__name__}).",
                solution="End the session that holds it (pg_locks). Apply tries again by itself.",
            ),
        ) from error
    except errors.DiskFull as error:
        raise TableFailed(table, DestinationFull("Postgres has no room for its mirror (DiskFull).")) from error
    except errors.InsufficientPrivilege:
        raise TableFailed(
            table, NotPermitted("Postgres does not let apply's role write to its mirror (InsufficientPrivilege).")
        ) from None
    except _REFUSED as error:
        raise TableFailed(
            table,
            NotHeld(
                f"Postgres refuses to write to its mirror ({type(error).__name__}).",
                solution="Undo what was changed there, and run `penstock rollback TABLE`; `penstock resync TABLE` makes"
                " the mirror anew.",
            ),
        ) from None


@contextmanager
def unheld_values(db: psycopg.Connection, staged: Staged) -> Iterator[None]:
    """A part of a transaction. Where a value does not fit its column, the column is named."""
    try:
        with db.transaction():
            yield
    except psycopg.DataError as error:
        column = unheld_column(db, staged)
        if column is None:
            raise
        raise TableFailed(
            staged.schema.name,
            NotHeld(
                f"A value does not fit column {column.name} in Postgres ({type(error).__name__}).",
                solution="Change the value, or leave the column out of the publication; then"
                " run `penstock resync TABLE`.",
            ),
        ) from None
