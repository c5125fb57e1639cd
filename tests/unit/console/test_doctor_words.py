from __future__ import annotations

from capture.findings import Finding, Severity
from console.commands.doctor import statements_of


def test_the_sql_of_solutions_is_told_once_and_what_is_no_sql_is_not() -> None:
    findings = [
        Finding(Severity.PROBLEM, "a", "why", "Run `alter role x replication;` (or `grant rds_replication to x;`)."),
        Finding(Severity.WARNING, "b", "why", "Run `alter role x replication;`, or set `source.tables`."),
        Finding(Severity.OK, "c", "fine", "Run `select pg_log_standby_snapshot();` at the primary."),
    ]

    assert statements_of(findings) == ["alter role x replication;", "grant rds_replication to x;"]
