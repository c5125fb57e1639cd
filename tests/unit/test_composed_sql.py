"""SQL is composed, never pasted: every expression that stands inside a statement's text was looked at by somebody.

Statements of Postgres are constants, or composed with `psycopg.sql`, values are parameters. DuckDB, ClickHouse, Spark
and SQLite have no composer: there names pass through `quoted`. A new expression in a statement fails this test until it
is written down below, which is the place to ask: can a name of the source, or a value, come here unquoted?
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("capture", "apply_spark", "stores", "console")
EXECUTING = {"execute", "executemany", "command", "query", "sql", "exec_", "send_query", "_query", "_alter", "copy"}
"""Methods that take a statement first."""
STATEMENT = re.compile(
    r"\s*(select|insert|update|delete|create|alter|drop|merge|copy|lock|truncate|attach|load|install|set|pragma|with|"
    r"START_REPLICATION|CREATE_REPLICATION_SLOT|ALTER_REPLICATION_SLOT|TIMELINE_HISTORY)\b\s"
)


def pasted(tree: ast.AST) -> Iterator[str]:
    """The expressions that are written into the text of statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and _begins_as_statement(node):
            yield from _interpolated(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in EXECUTING and node.args:
                yield from _parts(node.args[0])
            if node.func.attr == "SQL":
                yield from _raw(node.args[0])


def _begins_as_statement(text: ast.JoinedStr) -> bool:
    first = text.values[0] if text.values else None
    return isinstance(first, ast.Constant) and STATEMENT.match(str(first.value)) is not None


def _parts(statement: ast.expr) -> Iterator[str]:
    match statement:
        case ast.JoinedStr():
            yield from _interpolated(statement)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            yield from (*_parts(left), ast.unparse(right))
        case ast.BinOp(left=left, right=right):
            yield from (*_parts(left), *_parts(right))
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="format"), args=arguments):
            yield from map(ast.unparse, arguments)
        case ast.Call(func=ast.Attribute(value=value, attr="encode")):
            yield from _parts(value)
        case _:
            pass  # a constant, a composed one, or a variable, whose text is found where it is made


def _raw(text: ast.expr) -> Iterator[str]:
    """Of `sql.SQL(text)`, which quotes nothing."""
    if isinstance(text, ast.JoinedStr):
        yield from _interpolated(text)
    elif not isinstance(text, ast.Constant):
        yield ast.unparse(text)


def _interpolated(text: ast.JoinedStr) -> Iterator[str]:
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            yield ast.unparse(part.value)


def found() -> dict[str, set[str]]:
    expressions: dict[str, set[str]] = defaultdict(set)
    for file in (each for package in PACKAGES for each in sorted((ROOT / package).rglob("*.py"))):
        for expression in pasted(ast.parse(file.read_text(encoding="utf-8"))):
            expressions[file.relative_to(ROOT).as_posix()].add(expression)
    return dict(expressions)


def test_no_statement_has_an_expression_in_its_text_that_nobody_looked_at() -> None:
    expressions = found()

    new = {file: sorted(known - REVIEWED.get(file, set())) for file, known in expressions.items()}
    assert {file: some for file, some in new.items() if some} == {}
    gone = {file: sorted(known - expressions.get(file, set())) for file, known in REVIEWED.items()}
    assert {file: some for file, some in gone.items() if some} == {}, "not there any more: take it out of the list"


def test_an_expression_in_a_statement_is_found_however_it_is_written() -> None:
    code = """
db.execute(f"drop table {a}")
db.execute("drop table %s" % b)
db.execute("drop table " + f"{c}")
db.execute("drop table {}".format(d))
client.command(f"{e} x".encode())
query = f"select * from {f}"
sql.SQL(g)
db.execute("select %s", [h])
db.execute(sql.SQL("drop table {}").format(sql.Identifier(i)))
"""

    assert sorted(pasted(ast.parse(code))) == ["a", "a", "b", "c", "d", "e", "f", "g"]


# Types and conversions are chosen from tables of constants; names of the source stand in `quoted`, or are columns c0,
# c1 and so on; `names.own` and `target` are quoted where they are made; the rest are constants and numbers of our own.
# In capture: `row_filter` is what Postgres printed of its own catalog, `slot` and `name` are made of a pipeline's name,
# which has letters, digits and underscores only, and in `options` the publication's name has its quotes doubled.
REVIEWED = {
    "apply_spark/destinations/clickhouse.py": {
        "self._names.own(name)",
    },
    "apply_spark/destinations/clickhouse_ending.py": {
        "' union all '.join(changed)",
        "', '.join(OWN_COLUMNS)",
        "after",
        "before",
        "columns",
        "into",
        "keys",
        "self._is_current",
        "self._target.version",
        "self._there",
    },
    "apply_spark/destinations/clickhouse_mirror.py": {
        "', '.join((quoted(name) for name in key))",
        "DURABLE",
        "_NULL_IN_AN_ARRAY",
        "added",
        "defined",
        "names.own(mirror.storage)",
        "names.own(table)",
        "names.view(mirror.table)",
        "quoted(name)",
        "quoted(names.database(mirror.table))",
        "quoted_text(names.comment)",
        "shown",
        "what",
    },
    "apply_spark/destinations/clickhouse_rows.py": {
        "', '.join([*ID_COLUMNS, *OWN_COLUMNS])",
        "columns",
        "defined",
        "going",
        "into",
        "joined",
        "name",
        "names.own(mirror.storage)",
        "names.own(staged)",
        "selected",
        "source",
        "target.names.own(into)",
        "target.names.own(staged)",
        "target.storage",
        "target.version",
        "there",
    },
    "apply_spark/destinations/clickhouse_state.py": {
        "DURABLE",
        "_IN_A_PARTITION",
        "max(0, before) * _IN_A_PARTITION",
        "number",
        "quoted(self._database)",
        "self._table",
    },
    "apply_spark/destinations/duckdb_alter.py": {
        "duckdb_type(column).name",
        "quoted(_passing('dropped', place))",
        "quoted(after)",
        "quoted(before)",
        "quoted(column.name)",
        "target",
        "values",
        "where",
    },
    "apply_spark/destinations/duckdb_beside.py": {
        "quoted(catalog, *beside(table))",
        "quoted(catalog, *table)",
        "quoted(table.name)",
    },
    "apply_spark/destinations/duckdb_mirrors.py": {
        "_staged_columns(schema)",
        "at_base",
        "columns",
        "converted_row(schema)",
        "index",
        "keys",
        "mine",
        "quoted(column.name)",
        "quoted(self._catalog, schema.name.schema)",
        "same_key",
        "same_row",
        "self._own",
        "self._target(changes.schema)",
        "self._target(schema)",
        "target",
    },
    "apply_spark/destinations/duckdb_refusals.py": {
        "converted(column, image)",
    },
    "apply_spark/destinations/ducklake.py": {
        "_ATTACHED",
        "_NO_INLINING",
        "address",
        "data",
        "name",
        'path.replace("\'", "\'\'")',
    },
    "apply_spark/destinations/postgres_mirror.py": {
        "action",
        "after[column.number]",
        "kind",
    },
    "apply_spark/destinations/postgres_staging.py": {
        "kind",
    },
    "apply_spark/destinations/postgres_types.py": {
        "DATE_INFINITY",
        "DATE_MINUS_INFINITY",
        "TIMESTAMP_FIRST",
        "TIMESTAMP_INFINITY",
        "TIMESTAMP_MINUS_INFINITY",
        "_since_1970(kind, f'div({far}, {_DAY})', f'mod({far}, {_DAY})')",
        "_since_1970(kind, f'{{v}} / {_DAY}', f'{{v}} % {_DAY}')",
        "held",
        "kind",
        "raw_type(column)",
    },
    "apply_spark/destinations/spark_changes.py": {
        "_SOURCE",
        "matched",
        "names",
        "same",
        "target",
        "values",
    },
    "apply_spark/hashing.py": {
        "hashed",
        "text",
    },
    "capture/findings.py": {
        "statement",
    },
    "capture/owned_publication.py": {
        "verb",
    },
    "capture/preflight.py": {
        "name",
    },
    "capture/publication.py": {
        "_FILENODE",
        "publication",
    },
    "capture/published_facts.py": {
        "FILES",
        "_FACTS",
    },
    "capture/published_findings.py": {
        "_TABLES",
    },
    "capture/replication_connection.py": {
        "lsn",
        "name",
        "options",
        "slot",
        "timeline",
    },
    "capture/table_sync/copier.py": {
        "comparison",
        "table.row_filter",
    },
    "console/demo/proof.py": {
        "_rendering(kind)[0]",
        "_rendering(kind)[1]",
    },
    "stores/sqlite.py": {
        "_APPLICATION_ID",
        "columns",
        "key",
        "number",
        "places",
        "relation.name",
    },
}
