from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pydantic import ByteSize
from typer.testing import CliRunner, Result

from capture.config import CaptureConfig, Failover, Origins, PartialPublish, SourceConfig
from capture.errors import PartlyPublished, PublicationMissing
from capture.findings import Finding, Severity
from capture.preflight import connect, preflight, require, source_findings
from capture.published_facts import table_facts
from console.cli import app
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.connections import KafkaConfig
from schemas.errors import LogError, SourceError
from schemas.identifiers import PipelineName, PublicationName
from tests.support.postgres_version import since

PASSWORD = "s3cr3t-word"  # noqa: S105 -- looked for in every message
NOBODY = "127.0.0.1:9"


@dataclass(frozen=True)
class Database:
    """A database of its own, with a role that may do nothing yet."""

    name: str
    owner: str
    dsn: str
    role: str

    def run(self, statement: str) -> None:
        with psycopg.connect(self.owner, autocommit=True) as connection:
            connection.execute(statement.format(role=self.role).encode())


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[Database]:
    name = f"doctor_{uuid.uuid4().hex[:8]}"
    role = f"{name}_role"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        connection.execute(
            sql.SQL("create role {} login password {}").format(sql.Identifier(role), sql.Literal(PASSWORD))
        )
    owner = postgres.dsn(name)
    dsn = psycopg.conninfo.make_conninfo(owner, user=role, password=PASSWORD)
    yield Database(name, owner, dsn, role)
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", (name,)
        )
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def config_for(dsn: str, kafka: str = NOBODY) -> CaptureConfig:
    return CaptureConfig(
        pipeline=PipelineName("doctor"),
        source=SourceConfig.model_validate({"dsn": dsn, "publication": PublicationName("shop_pub")}),
        kafka=KafkaConfig(bootstrap_servers=kafka),
        state_path="unused.sqlite",
    )


def found(dsn: str) -> dict[str, Finding]:
    """Findings of the source by subject, the worst of each."""
    rank = [Severity.OK, Severity.WARNING, Severity.PROBLEM]
    return {
        finding.subject: finding
        for finding in sorted(source_findings(config_for(dsn)), key=lambda finding: rank.index(finding.severity))
    }


def problems(dsn: str) -> dict[str, Finding]:
    return {subject: each for subject, each in found(dsn).items() if each.severity is Severity.PROBLEM}


def doctor(folder: Path, dsn: str, kafka: str = NOBODY) -> Result:
    path = folder / "penstock.toml"
    path.write_text(
        f"""
        pipeline.name = "doctor"
        source.dsn = "{dsn}"
        source.publication = "shop_pub"
        kafka.bootstrap_servers = "{kafka}"
        destinations.lake.type = "memory"
        destinations.lake.columns."*.*.misspelt" = "hash"
        """
    )
    return CliRunner().invoke(app(), ["doctor", "-c", str(path)])


def test_a_source_that_is_ready_has_no_problem(database: Database) -> None:
    database.run("create table orders (id int primary key); create publication shop_pub for table orders")

    findings = found(database.owner)

    assert [each for each in findings.values() if each.severity is Severity.PROBLEM] == []
    assert findings["publication"].reason == "Publication shop_pub has 1 tables."
    assert findings["tables"].severity is Severity.OK


@pytest.mark.parametrize(
    ("change", "reason", "solution"),
    [
        ({"password": "wrong"}, "password authentication failed", "Correct user and password"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist', "Correct the database"),
        ({"port": "9"}, "Connection refused", "Start the server"),
        ({"host": "no-such-host.invalid"}, "resolve", "Correct the host"),
    ],
)
def test_a_wrong_dsn_is_told_without_its_password(
    database: Database, change: dict[str, str], reason: str, solution: str
) -> None:
    dsn = psycopg.conninfo.make_conninfo(database.dsn, **change)

    finding = problems(dsn)["connection"]

    assert reason in finding.reason
    assert solution in finding.solution
    assert PASSWORD not in finding.reason + finding.solution
    assert "wrong" not in finding.reason


def test_text_that_is_no_dsn_is_not_repeated() -> None:
    finding = problems(f"{PASSWORD} is my password")["connection"]

    assert finding.reason == "source.dsn is not a connection string."


def test_a_missing_publication_stops_the_start_with_the_sql_that_creates_it(database: Database) -> None:
    with pytest.raises(PublicationMissing) as caught:
        require(source_findings(config_for(database.owner)))

    assert caught.value.reason == f"There is no publication shop_pub in database {database.name}."
    assert 'create publication "shop_pub" for table' in caught.value.solution


def test_a_publication_without_tables_is_a_warning(database: Database) -> None:
    database.run("create publication shop_pub")

    assert found(database.owner)["publication"].severity is Severity.WARNING


def test_a_role_that_may_nothing_is_told_what_to_grant(database: Database) -> None:
    database.run('create schema "Shop"; create table "Shop"."All Orders" (id int primary key)')
    database.run('create publication shop_pub for table "Shop"."All Orders"')

    found_problems = problems(database.dsn)

    assert f'alter role "{database.role}" replication' in found_problems["role"].solution
    solutions = [
        each.solution for each in source_findings(config_for(database.dsn)) if each.subject == "Shop.All Orders"
    ]
    assert solutions == [
        f'Run `grant usage on schema "Shop" to "{database.role}";`.',
        f'Run `grant select on "Shop"."All Orders" to "{database.role}";`.',
    ]


def test_what_was_granted_is_no_problem_any_more(database: Database) -> None:
    database.run("create table orders (id int primary key, note text); create publication shop_pub for table orders")
    database.run("alter role {role} replication; grant select (id, note) on orders to {role}")

    assert problems(database.dsn) == {}


def test_row_security_that_would_hide_rows_from_a_copy_is_a_problem(database: Database) -> None:
    database.run("create table orders (id int primary key); create publication shop_pub for table orders")
    database.run("alter table orders enable row level security; grant select on orders to {role}")

    assert "a copy would miss them" in problems(database.dsn)["public.orders"].reason


def test_a_table_without_a_replica_identity_is_a_warning_with_both_ways_out(database: Database) -> None:
    database.run("create table events (at timestamptz); create publication shop_pub for table events")

    finding = found(database.owner)["public.events"]

    assert finding.severity is Severity.WARNING
    assert 'alter table "public"."events" add primary key' in finding.solution
    assert 'alter table "public"."events" replica identity full' in finding.solution


def test_a_table_without_a_key_that_publishes_only_inserts_is_fine(database: Database) -> None:
    database.run("create table events (at timestamptz)")
    database.run("create publication shop_pub for table events with (publish = 'insert, truncate')")

    assert "public.events" not in found(database.owner)


def test_a_slot_of_another_plugin_is_a_problem(database: Database) -> None:
    database.run("select pg_create_logical_replication_slot('penstock_doctor', 'test_decoding')")

    assert "belongs to plugin test_decoding" in problems(database.owner)["slot"].reason


def test_wal_level_replica_is_a_problem_with_the_sql_that_changes_it(tmp_path: Path) -> None:
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with LocalPostgres(settings=settings) as server:
        found_problems = problems(server.dsn())
        result = doctor(tmp_path, server.dsn())

    assert "wal_level is replica" in found_problems["wal_level"].reason
    assert "alter system set wal_level = logical" in found_problems["wal_level"].solution
    assert "1 of max_replication_slots are free; capture needs 2" in found_problems["max_replication_slots"].reason
    assert result.exit_code == 1
    assert "wal_level is replica" in result.stdout


def test_an_unreachable_broker_is_a_problem(database: Database) -> None:
    database.run("create table orders (id int primary key); create publication shop_pub for table orders")

    with pytest.raises(LogError, match="No Kafka broker answered"):
        require(preflight(config_for(database.owner)))


def test_doctor_prints_a_table_and_ends_with_0_when_nothing_is_wrong(
    database: Database, kafka: LocalKafka, tmp_path: Path
) -> None:
    database.run("create table orders (id int primary key); create publication shop_pub for table orders")

    result = doctor(tmp_path, database.owner, kafka.bootstrap_servers)

    assert result.exit_code == 0, result.output
    assert "Publication shop_pub has 1 tables." in result.stdout
    assert "max_slot_wal_keep_size" in result.stdout
    assert "misspelt" in result.stdout, "a column that a destination is to hide"


def test_a_problem_is_raised_with_its_own_reason_and_solution() -> None:
    with pytest.raises(SourceError) as caught:
        require([Finding(Severity.WARNING, "a", "b", "c"), Finding(Severity.PROBLEM, "d", "e", "f")])

    assert (caught.value.reason, caught.value.solution) == ("e", "f")


def test_a_publication_that_withholds_operations_is_a_problem_unless_it_is_allowed(database: Database) -> None:
    database.run("create table orders (id int primary key)")
    database.run("create publication shop_pub for table orders with (publish = 'insert, truncate')")

    with pytest.raises(PartlyPublished) as caught:
        require(source_findings(config_for(database.owner)))

    assert "does not publish update and delete" in caught.value.reason
    assert "set (publish = 'insert, update, delete, truncate')" in caught.value.solution
    config = config_for(database.owner)
    source = config.source.model_copy(update={"partial_publish": PartialPublish.ALLOW})
    require(source_findings(config.model_copy(update={"source": source})))


def test_partitions_that_do_not_have_the_identity_of_their_root_are_named(database: Database) -> None:
    database.run("create table full_root (id int primary key) partition by range (id)")
    database.run("alter table full_root replica identity full")
    database.run("create table full_leaf partition of full_root for values from (0) to (9)")
    database.run("create table other_root (id int primary key, n int not null) partition by range (id)")
    database.run("create unique index other_index on other_root (id, n)")
    database.run("alter table other_root replica identity using index other_index")
    database.run("create table other_leaf partition of other_root for values from (0) to (9)")
    database.run("create table no_key (id int) partition by range (id)")
    database.run("alter table no_key replica identity full")
    database.run("create table no_key_leaf partition of no_key for values from (0) to (9)")
    database.run("create publication shop_pub for all tables with (publish_via_partition_root)")

    findings = found(database.owner)

    assert findings["public.full_root"].severity is Severity.WARNING
    assert findings["public.other_root"].severity is Severity.PROBLEM
    assert "Partition public.other_leaf has another replica identity" in findings["public.other_root"].reason
    assert 'alter table "public"."other_leaf" replica identity full' in findings["public.other_root"].solution
    assert "Partition public.no_key_leaf of table public.no_key has no replica identity" in (
        findings["public.no_key"].reason
    )


def test_a_key_that_is_checked_later_is_no_replica_identity(database: Database) -> None:
    database.run("create table orders (id int primary key deferrable)")
    database.run("create publication shop_pub for table orders")

    assert "has no replica identity" in found(database.owner)["public.orders"].reason


def test_our_own_tables_are_not_counted(database: Database) -> None:
    database.run("create schema penstock; create table penstock.heartbeat (at timestamptz)")
    database.run("create publication shop_pub for all tables")

    findings = found(database.owner)

    assert findings["publication"].severity is Severity.WARNING
    assert "penstock.heartbeat" not in findings


def test_doctor_lists_every_table_with_its_identity_key_size_and_what_is_left_out(
    database: Database, kafka: LocalKafka, tmp_path: Path
) -> None:
    database.run("create table orders (id int, line int, total int generated always as (id * 2) stored)")
    database.run(
        "alter table orders add primary key (line, id); insert into orders select i, i from generate_series(1, 5000) i"
    )
    database.run("create table whole (a text); alter table whole replica identity full")
    database.run("create table by_index (id int not null, unique (id)); analyze orders")
    database.run("alter table by_index replica identity using index by_index_id_key")
    database.run("create publication shop_pub for table orders, whole, by_index")

    with connect(config_for(database.owner).source) as connection:
        facts = {str(each.table): each for each in table_facts(connection, PublicationName("shop_pub"))}
    result = doctor(tmp_path, database.owner, kafka.bootstrap_servers)

    orders = facts["public.orders"]
    assert (orders.identity_in_words, orders.key, orders.rows) == ("primary key", ("line", "id"), 5000)
    assert orders.bytes > 5000 * 32
    assert orders.left_out == ("total",)
    assert facts["public.whole"].identity_in_words == "full"
    assert facts["public.by_index"].identity_in_words == "index by_index_id_key"
    assert facts["public.by_index"].key == ("id",)
    assert re.search(r"public.orders +│ primary key +│ line, id +│ +about 5,000 │ +\d+ kB │ total", result.stdout)
    assert "3 tables" in result.stdout


def test_doctor_repeats_the_sql_of_all_solutions_in_one_place(
    database: Database, kafka: LocalKafka, tmp_path: Path
) -> None:
    database.run("create table orders (id int); create publication shop_pub for table orders")

    lines = doctor(tmp_path, database.dsn, kafka.bootstrap_servers).stdout.splitlines()

    assert f'grant select on "public"."orders" to "{database.role}";' in lines
    assert f'alter role "{database.role}" replication;' in lines
    assert 'alter table "public"."orders" replica identity full;' in lines


def test_unlogged_tables_that_a_publication_would_have_are_named(database: Database) -> None:
    database.run("create unlogged table scratch (id int primary key); create table orders (id int primary key)")
    database.run("create publication shop_pub for all tables")

    finding = found(database.owner)["public.scratch"]

    assert finding.severity is Severity.WARNING
    assert "writes no WAL" in finding.reason
    assert 'alter table "public"."scratch" set logged' in finding.solution


@since(15, "column lists")
def test_a_column_list_without_the_identity_is_a_warning(database: Database) -> None:
    database.run("create table orders (id int primary key, a text, b text)")
    database.run("create publication shop_pub for table orders (a)")

    finding = found(database.owner)["public.orders"]

    assert "leaves out id, which its replica identity has" in finding.reason


def test_rows_larger_than_a_record_may_be_are_a_warning(database: Database) -> None:
    database.run("create table files (id int primary key, content text)")
    database.run("alter table files alter content set storage external")
    database.run("insert into files select i, repeat('x', 100000) from generate_series(1, 10) i; analyze files")
    database.run("create publication shop_pub for table files")
    config = config_for(database.owner)
    small = config.kafka.model_copy(update={"max_record": ByteSize(50_000)})

    findings = list(source_findings(config.model_copy(update={"kafka": small})))

    assert [each.solution for each in findings if each.subject == "public.files"] == ["Raise `kafka.max_record`."]


def test_what_the_version_of_the_server_cannot_do_is_told(database: Database, postgres: LocalPostgres) -> None:
    database.run("create table orders (id int primary key); create publication shop_pub for table orders")
    config = config_for(database.owner)
    source = config.source.model_copy(update={"origin": Origins.NONE, "failover": Failover.SLOT})

    findings = {each.subject: each for each in source_findings(config.model_copy(update={"source": source}))}

    assert findings["origin"].severity is (Severity.OK if postgres.version >= 16 else Severity.PROBLEM)
    assert findings["failover"].severity is (Severity.WARNING if postgres.version >= 17 else Severity.PROBLEM)
    wanted = "synchronized_standby_slots" if postgres.version >= 17 else "Leave `source.failover` out"
    assert wanted in findings["failover"].solution
