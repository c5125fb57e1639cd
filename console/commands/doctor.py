"""`penstock doctor`: everything that can be checked before the start, with what a DBA must run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
import typer
from rich.table import Table

from apply_spark.config import DestinationConfig
from capture.config import CaptureConfig, SourceConfig
from capture.findings import Catalog, Finding, Severity
from capture.preflight import connect, kafka_findings, registry_findings, source_findings
from capture.publication import published_tables
from capture.published_facts import TableFacts, table_facts
from capture.transcode.choose import kernel_path
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, Config, load
from console.output import human_bytes, stdout, table, words
from schemas.connections import KafkaConfig
from schemas.errors import ConfigError, DestinationError, SourceError
from schemas.identifiers import DestinationName, PublicationName
from schemas.table import TableSchema

T = TypeVar("T")
_STATEMENT = re.compile(r"`((?:alter|create|grant|select) [^`]+;)`")
_OF_OTHERS = stat.S_IRGRP | stat.S_IROTH
_SECRET = re.compile(
    r"""://[^\s:/@'"]*:[^\s/@'"]+@ | (password|passwd|secret|salt|credential|token)[\w.]*["']?\s*=""",
    re.IGNORECASE | re.VERBOSE,
)
"""An address with a password in it, or a key that is called like one."""
_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}


def doctor(*, config: ConfigFile = DEFAULT_FILE) -> None:
    """Check source, broker and destinations; print what must be done. Exit code 1 if anything would not work."""
    pipeline = load(config)
    findings = list(all_findings(pipeline))
    report = table("", "what", "finding", "solution")
    for finding in findings:
        report.add_row(
            words(finding.severity.value, style=_STYLES[finding.severity]),
            words(finding.subject),
            words(finding.reason),
            words(finding.solution),
        )
    stdout().print(report)
    facts = _published(pipeline.source)
    if facts:
        stdout().print()
        stdout().print(tables_in_words(facts))
    statements = statements_of(findings)
    if statements:
        stdout().print("\nSQL that would help; what is in capitals is to be replaced:")
        stdout().print(*statements, sep="\n", markup=False)
    if any(finding.severity is Severity.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _published(source: SourceConfig) -> list[TableFacts]:
    return _asked(source, table_facts)


def _published_shapes(source: SourceConfig) -> list[TableSchema]:
    return [table.schema for table in _asked(source, published_tables)]


def _asked(source: SourceConfig, ask: Callable[[Catalog, PublicationName], list[T]]) -> list[T]:
    try:
        with connect(source) as connection:
            return ask(connection, source.publication)
    except (SourceError, psycopg.Error):
        return []  # the findings say why


def tables_in_words(facts: list[TableFacts]) -> Table:
    """What will be copied, how rows are told apart, and what is left out."""
    made = table("table", "identity", "key", "rows", "to copy", "left out", right=["rows", "to copy"], title="tables")
    for each in facts:
        left_out = [*each.left_out, *([f"rows unless {each.row_filter}"] if each.row_filter else [])]
        made.add_row(
            words(str(each.table)),
            words(each.identity_in_words),
            words(", ".join(each.key)),
            f"about {each.rows:,}" if each.rows is not None else "not known",
            human_bytes(each.bytes),
            words(", ".join(left_out)),
        )
    rows = sum(each.rows or 0 for each in facts)
    made.add_row(f"{len(facts)} tables", "", "", f"about {rows:,}", human_bytes(sum(each.bytes for each in facts)), "")
    return made


def statements_of(findings: list[Finding]) -> list[str]:
    """The SQL of all solutions that are not there for information, once each."""
    wanted = [finding.solution for finding in findings if finding.severity is not Severity.OK]
    return list(dict.fromkeys(statement for solution in wanted for statement in _STATEMENT.findall(solution)))


def _secret_findings(path: Path) -> Iterator[Finding]:
    """Whoever may read the file has the secrets that it holds."""
    if path.stat().st_mode & _OF_OTHERS and _SECRET.search(path.read_text(encoding="utf-8")):
        yield Finding(
            Severity.WARNING,
            "secrets",
            f"{path} holds a secret, and other users of this host may read it.",
            f"Run `chmod 600 {path}`, or leave the secret out and set its variable.",
        )


def all_findings(config: Config) -> Iterator[Finding]:
    yield from _secret_findings(config.path)
    yield from source_findings(_for_source(config))
    if config.settings.kafka is not None:
        yield from kafka_findings(config.settings.kafka)
        yield from registry_findings(config.settings.kafka)
    else:
        yield Finding(Severity.OK, "kafka", "None is named; `penstock run` brings an embedded broker.")
    yield from _kernel_findings()
    published = _published_shapes(config.source)
    for name, destination in config.destinations.items():
        yield from _destination_findings(name, destination)
        yield from _shown_findings(name, destination, published)


def _kernel_findings() -> Iterator[Finding]:
    from apply_spark.arrow_decode import is_installed  # noqa: PLC0415 -- brings Spark

    kernels = (
        ("kernel", kernel_path() is not None, "Rows are transcoded by the compiled kernel.", "capture"),
        ("decoder", is_installed(), "Records are decoded by the compiled decoder.", "apply"),
    )
    for subject, installed, fine, stage in kernels:
        if installed:
            yield Finding(Severity.OK, subject, fine)
            continue
        yield Finding(
            Severity.WARNING,
            subject,
            f"The compiled {subject} is not installed: {stage} runs on the reference path, at a fraction of the speed.",
            "Install a C compiler, then install penstock again (in a checkout: `make build-kernel`).",
        )


def _for_source(config: Config) -> CaptureConfig:
    """What the checks of the source need; they do not ask the broker, which may be embedded and not run yet."""
    kafka = config.settings.kafka or KafkaConfig(bootstrap_servers="embedded")
    return CaptureConfig(pipeline=config.pipeline, source=config.source, kafka=kafka, state_path="")


def _destination_findings(name: DestinationName, destination: DestinationConfig) -> Iterator[Finding]:
    subject = f"destination {name}"
    mistake = _option_mistake(name, destination)
    path = destination.options.get("path")
    if mistake is not None:
        yield Finding(Severity.PROBLEM, subject, mistake.reason, mistake.solution, ConfigError)
    elif isinstance(path, str) and "://" not in path:
        yield _file_finding(subject, Path(path))
    else:
        yield Finding(Severity.OK, subject, f"Its options are as {destination.type} wants them.")


def _shown_findings(
    name: DestinationName, destination: DestinationConfig, published: list[TableSchema]
) -> Iterator[Finding]:
    if published:
        from console.shown_findings import shown_findings  # noqa: PLC0415 -- brings Spark

        yield from shown_findings(name, destination, published)


def _option_mistake(name: DestinationName, destination: DestinationConfig) -> ConfigError | None:
    """What the destination itself refuses; it is built, but not started."""
    from apply_spark.destinations.registry import make_destination  # noqa: PLC0415 -- brings Spark

    try:
        make_destination(name, destination)
    except ConfigError as error:
        return error
    return None


def _file_finding(subject: str, path: Path) -> Finding:
    folder = path.parent
    if path.exists():
        if path.is_file() and os.access(path, os.R_OK | os.W_OK) and os.access(folder, os.W_OK):
            return Finding(Severity.OK, subject, f"{path} can be written.")
        reason = f"{path} cannot be written by this user."
        return Finding(
            Severity.PROBLEM,
            subject,
            reason,
            f"Run `chmod u+rw {path}` as its owner, or name another file.",
            DestinationError,
        )
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Finding(Severity.OK, subject, f"{path} will be created.")
    return Finding(
        Severity.PROBLEM,
        subject,
        f"{path} cannot be created: {folder} is not a folder that this user may write.",
        f"Run `mkdir -p {folder}`, or name another file.",
        DestinationError,
    )
