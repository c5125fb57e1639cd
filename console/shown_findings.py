"""What a destination is told to show, held against the tables that are published: a slip there hides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from apply_spark.config import DestinationConfig, Treatment
from apply_spark.errors import TableFailed
from apply_spark.hashing import Hasher
from apply_spark.modes import kept_schema
from apply_spark.showing import Showing, salt_of
from apply_spark.view import TableView
from capture.findings import Finding, Severity
from schemas.identifiers import DestinationName, TableName
from schemas.patterns import is_wild, matching
from schemas.table import TableSchema


def shown_findings(
    name: DestinationName, destination: DestinationConfig, published: Sequence[TableSchema]
) -> Iterator[Finding]:
    subject, showing = f"destination {name}", Showing.configured(destination)
    tables = [schema.name for schema in published]
    for pattern in destination.tables:
        if not matching(tables, [pattern.removeprefix("!")]):
            yield Finding(Severity.WARNING, subject, f"Its `tables` names {pattern}, which no published table fits.")
    for rule in destination.columns:
        if not any(_fits(rule, schema) for schema in published):
            severity = Severity.WARNING if is_wild(rule) else Severity.PROBLEM
            reason = f"Its `columns` names {rule}, which no published column fits: nothing is hidden by it."
            yield Finding(severity, subject, reason, "Correct the name, or take the rule away.")
    hasher = Hasher(salt_of(destination))
    for schema in published:
        if showing.selects(schema.name):
            try:
                kept_schema(showing.mode, TableView(showing, hasher, schema).schema)
            except TableFailed as error:
                yield Finding(Severity.PROBLEM, subject, error.reason, error.solution)
    yield from _same_names(subject, showing, tables)


def _fits(rule: str, schema: TableSchema) -> bool:
    only = Showing(columns={rule: Treatment.DROP})
    return any(only.rule(schema.name, column.name) is not None for column in schema.columns)


def _same_names(subject: str, showing: Showing, tables: Sequence[TableName]) -> Iterator[Finding]:
    taken: dict[TableName, TableName] = {}
    for table in filter(showing.selects, tables):
        other = taken.setdefault(showing.name_of(table), table)
        if other != table:
            reason = f"{table} and {other} would both be called {showing.name_of(table)} there."
            solution = "Give one of the two another name by `rename`, or leave it out by `tables`."
            yield Finding(Severity.PROBLEM, subject, reason, solution)
