"""What a check before the start finds, and how it asks the catalog."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import sql

from schemas.errors import PenstockError, SourceError
from schemas.identifiers import TableName

Catalog: TypeAlias = psycopg.Connection[dict[str, Any]]
"""A plain session whose rows are dicts."""


class Severity(enum.Enum):
    """Whether a start can work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    severity: Severity
    subject: str
    reason: str
    solution: str = ""
    error: type[PenstockError] = SourceError


def one(connection: Catalog, query: LiteralString, *values: object) -> dict[str, Any]:
    row = connection.execute(query, values).fetchone()
    if row is None:
        raise SourceError("Postgres gave no answer to a question about its catalog.")
    return row


def text(connection: Catalog, statement: LiteralString, *names: str | TableName) -> str:
    """A statement for a human, with names quoted as Postgres wants them."""
    identifiers = [sql.Identifier(*name) if isinstance(name, TableName) else sql.Identifier(name) for name in names]
    return sql.SQL(statement).format(*identifiers).as_string(connection)
