"""Checks before the start. A capture configuration in, findings out; each problem names the SQL or key that solves it.

Nothing is changed and no row is read. A slot that is in use is a warning only: a dead capture's walsender may hold it
for a moment, and `doctor` may be asked beside a running pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from capture.config import CaptureConfig, OnLostSlot, SourceConfig
from capture.errors import SlotLost, SourceUnreachable, StandbyRefused, source_error
from capture.findings import Finding, Severity
from capture.findings import one as _one
from capture.findings import text as _text
from capture.loss_findings import loss_findings
from capture.published_findings import publication_findings, table_findings
from capture.server_findings import failover_findings, origin_findings, standby_findings
from capture.setup_source import ddl_findings
from capture.slots import slot_taken_away
from schemas.connections import KafkaConfig
from schemas.errors import LogError, SourceError
from schemas.identifiers import OWN_SCHEMA, PublicationName, TableName, slot_name
from schemas.settings import without_passwords
from stores.kafka_log import KafkaLog
from stores.patient_session import PatientSession
from stores.schema_registry import SchemaRegistry

OLDEST, NEWEST = 14, 18
_CONNECT_SECONDS = 10
_KAFKA_PATIENCE = timedelta(seconds=10)


def preflight(config: CaptureConfig) -> list[Finding]:
    """Everything that can be known before the start, in the order in which it would fail."""
    return [*source_findings(config), *kafka_findings(config.kafka), *registry_findings(config.kafka)]


def require(findings: Iterable[Finding]) -> None:
    """Raises the first problem."""
    for finding in findings:
        if finding.severity is Severity.PROBLEM:
            raise finding.error(finding.reason, solution=finding.solution)


def connect(source: SourceConfig) -> psycopg.Connection[dict[str, Any]]:
    """A plain session for reading the catalog; raises SourceUnreachable without secrets."""
    dsn = source.dsn.get_secret_value()
    try:
        told = make_conninfo(dsn, connect_timeout=_CONNECT_SECONDS, application_name="penstock")
        return PatientSession.opened(told, source.patience.total_seconds(), autocommit=True, row_factory=dict_row)
    except (psycopg.ProgrammingError, ValueError):  # ValueError: letters that no connection string has
        # Its message repeats the part of the DSN that it does not understand, which may be the password.
        raise SourceError(
            "source.dsn is not a connection string.",
            solution="Write `postgresql://USER:PASSWORD@HOST:5432/DATABASE` or `host=HOST dbname=DATABASE user=USER`; "
            "in a URL, a special character in the password is written as % and two hex digits.",
        ) from None
    except psycopg.OperationalError as error:
        raise connection_failure(error, dsn) from None


def published_names(connection: psycopg.Connection[dict[str, Any]], publication: PublicationName) -> list[TableName]:
    query = (
        "select schemaname, tablename from pg_publication_tables where pubname = %s and schemaname <> %s order by 1, 2"
    )
    rows = connection.execute(query, (publication, OWN_SCHEMA)).fetchall()
    return [TableName(row["schemaname"], row["tablename"]) for row in rows]


# What libpq or the server says, and what helps. Connection errors have no SQLSTATE before a session exists.
# {role} and {database} are those of the DSN.
_HINTS: tuple[tuple[str, str], ...] = (
    ("password authentication failed", "Correct user and password in `source.dsn`, or in the password file."),
    ("no password supplied", "Put the password into `source.dsn`, or set PENSTOCK_SOURCE__DSN."),
    ("certificate verify failed|root certificate file", "Name its authority in `source.dsn`: `sslrootcert=FILE`."),
    ("does not match host name", "Write the host in `source.dsn` as the server's certificate does."),
    ("valid client certificate", "Name the user's certificate and key in `source.dsn`: `sslcert=FILE sslkey=FILE`."),
    ("private key file", "Correct `sslkey` in `source.dsn`, and run `chmod 600` on that file."),
    ("pg_hba.conf rejects .* no encryption", "Set `sslmode=verify-full` in `source.dsn`."),
    (r"no pg_hba\.conf entry", "Let this host in: add a line for it to pg_hba.conf, then `select pg_reload_conf();`."),
    ("^database .* does not exist", "Correct the database in `source.dsn`, or create it: `create database NAME;`."),
    ("permission denied for database", "Run `grant connect on database {database} to {role};`."),
    ("is not permitted to log in", "Run `alter role {role} login;`."),
    (
        "^role .* does not exist",
        "Correct the user in `source.dsn`, or create it: `create role NAME login replication password '...';`.",
    ),
    ("too many clients", "Raise max_connections, or close other sessions."),
    ("remaining connection slots", "Raise max_connections, or close other sessions."),
    ("could not translate host name", "Correct the host in `source.dsn`."),
    ("failed to resolve host", "Correct the host in `source.dsn`."),
    ("starting up", "Wait until the server has started."),
)


def connection_failure(error: psycopg.OperationalError, dsn: str) -> SourceError:
    """The one place where a failed connection becomes our error. Names host, database and user, never a secret."""
    said = _without(str(error), dsn)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # libpq begins with the address it tried and the word that matters stands at the end.
    told = lines[0].rpartition(" failed: ")[2].removeprefix("FATAL: ").strip() if lines else "no reason given"
    solution = next((hint for text, hint in _HINTS if re.search(text, told)), SourceUnreachable.solution)
    parts = conninfo_to_dict(dsn)
    role, database = str(parts.get("user") or "ROLE"), str(parts.get("dbname") or parts.get("user") or "DATABASE")
    names = {"role": sql.Identifier(role).as_string(), "database": sql.Identifier(database).as_string()}
    return SourceUnreachable(
        f"Postgres at {_address(dsn)} cannot be reached: {told}", solution=solution.format(**names)
    )


def _address(dsn: str) -> str:
    parts = conninfo_to_dict(dsn)
    if parts.get("service"):
        return f"service {parts['service']}"
    host = parts.get("host") or parts.get("hostaddr") or "the local socket"
    who = f" as user {parts['user']}" if parts.get("user") else ""
    return f"{host}:{parts.get('port') or 5432}, database {parts.get('dbname') or parts.get('user') or '?'}{who},"


def _without(text: str, dsn: str) -> str:
    password = conninfo_to_dict(dsn).get("password")
    hidden = text.replace(str(password), "***") if password else text
    return without_passwords(hidden)


def kafka_findings(kafka: KafkaConfig) -> Iterator[Finding]:
    try:
        with KafkaLog(kafka.model_copy(update={"patience": min(kafka.patience, _KAFKA_PATIENCE)})) as log:
            count, most = len(log.topics()), log.largest_request()
    except LogError as error:
        yield Finding(Severity.PROBLEM, "kafka", error.reason, error.solution, type(error))
        return
    yield Finding(Severity.OK, "kafka", f"{kafka.bootstrap_servers} answers and has {count} topics.")
    if most is not None and most < kafka.max_record:
        yield Finding(
            Severity.PROBLEM,
            "kafka",
            f"`kafka.max_record` is {int(kafka.max_record):,} bytes, and a broker takes no request above {most:,}: "
            "it would close the connection on such a record, again and again.",
            "Raise socket.request.max.bytes of every broker, or lower `kafka.max_record`.",
            LogError,
        )


def registry_findings(kafka: KafkaConfig) -> Iterator[Finding]:
    if kafka.schema_registry is None:
        return
    registry = SchemaRegistry(kafka.schema_registry)
    try:
        rule = registry.compatibility()
    except LogError as error:
        yield Finding(Severity.PROBLEM, "schema registry", error.reason, error.solution, type(error))
        return
    yield Finding(Severity.OK, "schema registry", f"{registry.address} answers.")
    if rule != "NONE":
        yield Finding(
            Severity.WARNING,
            "schema registry",
            f"{registry.address} has the rule {rule}: it may refuse a table whose column or key gets another type, and "
            "capture stops there, for all tables.",
            "Set the compatibility of the pipeline's subjects to NONE, or be ready to do so then.",
        )


def source_findings(config: CaptureConfig) -> Iterator[Finding]:
    try:
        connection = connect(config.source)
    except SourceError as error:
        yield Finding(Severity.PROBLEM, "connection", error.reason, error.solution, type(error))
        return
    with connection:
        version = connection.info.server_version // 10_000
        yield Finding(Severity.OK, "connection", f"Postgres {version} answers.")
        for check in _CHECKS:
            try:
                yield from check(connection, config)
            except psycopg.Error as error:
                raise source_error(error, "reading the catalog") from error


def _version(connection: psycopg.Connection[dict[str, Any]], _config: CaptureConfig) -> Iterator[Finding]:
    version = connection.info.server_version // 10_000
    if OLDEST <= version <= NEWEST:
        yield Finding(Severity.OK, "version", f"Postgres {version} is supported.")
    else:
        severity = Severity.PROBLEM if version < OLDEST else Severity.WARNING
        yield Finding(
            severity,
            "version",
            f"Postgres {version} is not one of {OLDEST} to {NEWEST}, with which penstock is tested.",
            f"Use a server of version {OLDEST} to {NEWEST}.",
        )


def _wal_level(connection: psycopg.Connection[dict[str, Any]], _config: CaptureConfig) -> Iterator[Finding]:
    level = _one(connection, "select current_setting('wal_level') as level")["level"]
    if level == "logical":
        yield Finding(Severity.OK, "wal_level", "wal_level is logical.")
    else:
        yield Finding(
            Severity.PROBLEM,
            "wal_level",
            f"wal_level is {level}; logical decoding needs logical.",
            "Run `alter system set wal_level = logical;` and restart the server "
            "(on RDS: set rds.logical_replication = 1 in the parameter group).",
        )


def _capacity(connection: psycopg.Connection[dict[str, Any]], config: CaptureConfig) -> Iterator[Finding]:
    slot = slot_name(config.pipeline)
    row = _one(
        connection,
        "select current_setting('max_replication_slots')::int - (select count(*) from pg_replication_slots) as slots, "
        "current_setting('max_wal_senders')::int - (select count(*) from pg_stat_replication) as senders, "
        "exists (select from pg_replication_slots where slot_name = %s) as present, "
        "exists (select from pg_replication_slots where slot_name = %s and active) as active",
        slot,
        slot,
    )
    # One of each for the stream, unless it has them already, and one for the snapshot of a copy.
    yield _free("max_replication_slots", row["slots"], needed=1 if row["present"] else 2)
    yield _free("max_wal_senders", row["senders"], needed=1 if row["active"] else 2)


def _free(setting: str, free: int, needed: int) -> Finding:
    if free >= needed:
        return Finding(Severity.OK, setting, f"{free} are free, {needed} needed.")
    return Finding(
        Severity.PROBLEM,
        setting,
        f"{free} of {setting} are free; capture needs {needed}: for its stream and for the snapshot of a copy.",
        f"Drop slots that nobody uses (`select pg_drop_replication_slot('NAME');`), or raise {setting} "
        f"(`alter system set {setting} = 20;`) and restart the server.",
    )


def _role(connection: psycopg.Connection[dict[str, Any]], _config: CaptureConfig) -> Iterator[Finding]:
    row = _one(
        connection,
        "select current_user as name, rolreplication or rolsuper or exists ("
        "select from pg_roles r where r.rolname = 'rds_replication' and pg_has_role(current_user, r.oid, 'member')"
        ") as may from pg_roles where rolname = current_user",
    )
    if row["may"]:
        yield Finding(Severity.OK, "role", f"Role {row['name']} may replicate.")
    else:
        yield Finding(
            Severity.PROBLEM,
            "role",
            f"Role {row['name']} may not replicate.",
            f"Run `{_text(connection, 'alter role {} replication;', row['name'])}` "
            f"(on RDS: `{_text(connection, 'grant rds_replication to {};', row['name'])}`).",
        )


def _slot(connection: psycopg.Connection[dict[str, Any]], config: CaptureConfig) -> Iterator[Finding]:
    name = slot_name(config.pipeline)
    row = connection.execute(
        "select plugin, database, active_pid, wal_status, database = current_database() as here, "
        "to_jsonb(s) ->> 'invalidation_reason' as invalidation, pg_is_in_recovery() "
        "and coalesce((to_jsonb(s) ->> 'synced')::boolean, false) as of_the_primary "
        "from pg_replication_slots s where slot_name = %s",
        (name,),
    ).fetchone()
    drop = f"select pg_drop_replication_slot('{name}');"
    if row is None:
        yield Finding(Severity.OK, "slot", f"Slot {name} does not exist yet; capture creates it.")
    elif row["plugin"] != "pgoutput" or not row["here"]:
        yield Finding(
            Severity.PROBLEM,
            "slot",
            f"Slot {name} belongs to plugin {row['plugin']} in database {row['database']}, not to this pipeline.",
            f"Give the pipeline another name, or run `{drop}` if nobody uses the slot.",
        )
    elif row["of_the_primary"]:
        yield Finding(
            Severity.PROBLEM,
            "slot",
            f"Slot {name} is the primary's, kept in step here: it can be read only after this standby is promoted.",
            "Name the primary in `source.dsn`, or give the pipeline another name.",
            StandbyRefused,
        )
    elif row["wal_status"] == "lost":
        lost = slot_taken_away(name, row["invalidation"])
        severity = Severity.PROBLEM if config.tuning.on_lost_slot is OnLostSlot.FAIL else Severity.WARNING
        yield Finding(severity, "slot", lost.reason, lost.solution, SlotLost)
    elif row["active_pid"] is not None:
        yield Finding(
            Severity.WARNING,
            "slot",
            f"Slot {name} is in use by process {row['active_pid']} of the server.",
            "If this pipeline runs, that is its capture; "
            f"if none runs, end it: `select pg_terminate_backend({row['active_pid']});`.",
        )
    else:
        yield Finding(Severity.OK, "slot", f"Slot {name} is there and free.")


def _wal_bound(connection: psycopg.Connection[dict[str, Any]], _config: CaptureConfig) -> Iterator[Finding]:
    bound = _one(connection, "select current_setting('max_slot_wal_keep_size') as bound")["bound"]
    if bound == "-1":
        yield Finding(
            Severity.WARNING,
            "max_slot_wal_keep_size",
            "WAL held by a slot is not bounded: a pipeline that stands still can fill the disk of the server.",
            "Run `alter system set max_slot_wal_keep_size = '50GB';` and `select pg_reload_conf();`, "
            "with a bound that fits the disk.",
        )
    else:
        yield Finding(Severity.OK, "max_slot_wal_keep_size", f"A slot holds at most {bound} of WAL.")


_CHECKS: tuple[Callable[[psycopg.Connection[dict[str, Any]], CaptureConfig], Iterator[Finding]], ...] = (
    _version,
    standby_findings,
    _wal_level,
    origin_findings,
    failover_findings,
    _role,
    _capacity,
    publication_findings,
    table_findings,
    loss_findings,
    _slot,
    _wal_bound,
    ddl_findings,
)
