"""What Postgres refuses, told without its own messages, which may hold a value. One about a right holds names only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors, sql

from apply_spark.destinations.postgres_merge import Staged, unheld_column
from apply_spark.destinations.postgres_mirror import OWN_SCHEMA
from apply_spark.errors import DestinationAway, DestinationFull, DestinationLocked, NotHeld, NotPermitted, TableFailed
from schemas.errors import DestinationError
from schemas.identifiers import DestinationName, TableName
from schemas.settings import without_passwords

_REFUSED = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    errors.DependentObjectsStillExist,
)
"""What Postgres says of a table or a value; the other errors are about the server or the connection."""


_ON_DATABASE = "grant connect, create, temporary on database DATABASE to ROLE;"
_HINTS = (
    ("permission denied for database", f"Run `{_ON_DATABASE}`, with those of its `dsn`."),
    ("is not permitted to log in", "Run `alter role ROLE login;`, with the one of its `dsn`."),
    ("password authentication failed", "Correct user and password in its `dsn`, or in the password file."),
)
"""What the server says, and what helps."""


def _on_schema(name: str) -> str:
    return f"grant usage, create on schema {sql.Identifier(name).as_string()} to ROLE;"


def _denied(error: errors.InsufficientPrivilege) -> str:
    """What the server says; an error that came from an executor has only its kind."""
    return error.diag.message_primary or type(error).__name__


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
    except errors.InsufficientPrivilege as error:
        target = sql.Identifier(*table).as_string()
        raise TableFailed(
            table,
            NotPermitted(
                f"Postgres does not let apply's role write to its mirror: {_denied(error)}.",
                solution=f"Run what is missing of `{_on_schema(table.schema)}`, `{_ON_DATABASE}` and, if somebody"
                f" else owns the table there, `alter table {target} owner to ROLE;`. Apply tries again by itself.",
            ),
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
def progress_refusals() -> Iterator[None]:
    """What is not about one table. The text of an error may hold a value; its kind does not."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise DestinationAway(f"The connection to the destination was lost ({type(error).__name__}).") from error
    except errors.InsufficientPrivilege as error:
        raise DestinationError(
            f"Postgres does not let apply's role keep the progress of the destination: {_denied(error)}.",
            solution=f"Run `{_ON_DATABASE}`; where the schema {OWN_SCHEMA} is there already,"
            f" `alter schema {OWN_SCHEMA} owner to ROLE;`, and the same for its tables.",
        ) from None
    except psycopg.Error as error:
        raise DestinationError(
            f"Postgres refuses to keep the progress of the destination ({type(error).__name__}).",
            solution=f"Leave the schema {OWN_SCHEMA} of the destination as penstock made it.",
        ) from None


def connection_refused(name: DestinationName, error: Exception) -> DestinationAway:
    """Why there is no session: libpq tells the address and the server's word, and no password."""
    told = without_passwords((str(error).strip().splitlines() or ["no reason given"])[0])
    solution = next((hint for text, hint in _HINTS if text in told), None)
    return DestinationAway(f"Postgres took no connection of destination {name}: {told}", solution=solution)


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
