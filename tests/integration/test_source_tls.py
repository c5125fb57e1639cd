"""Every way to get into a source that libpq knows, by the ordinary DSN: over TLS, to Kafka, by copy and by stream."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from capture.config import SourceConfig
from capture.errors import SourceUnreachable
from capture.preflight import connect
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.identifiers import PublicationName
from tests.support.certificates import Authority
from tests.support.pipeline import Pipeline

PASSWORD = "pass word:'\\"  # noqa: S105 -- of a server of this test
ROWS = 5_000


@dataclass(frozen=True)
class TlsServer:
    """A server that takes its two users over TLS only: one by password, one by client certificate."""

    postgres: LocalPostgres
    authority: Authority
    folder: Path

    def dsn(self, database: str, **settings: str) -> str:
        return make_conninfo(
            host="localhost",
            hostaddr="127.0.0.1",
            port=self.postgres.port,
            dbname=database,
            sslmode="verify-full",
            sslrootcert=str(self.authority.certificate),
            **settings,
        )


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    certificate, key = authority.sign("localhost")
    with LocalPostgres() as postgres:
        theirs = postgres.directory / "tls"
        theirs.mkdir()
        for name, file in (("ca", authority.certificate), ("crt", certificate), ("key", key)):
            (theirs / name).write_bytes(file.read_bytes())
            (theirs / name).chmod(0o600)
        rules = postgres.directory / "data" / "pg_hba.conf"
        rules.write_text(
            "hostssl all by_password 127.0.0.1/32 scram-sha-256\n"
            "hostssl all by_certificate 127.0.0.1/32 cert\n"
            "host all by_password,by_certificate all reject\n" + rules.read_text()
        )
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            for setting, name in (("ssl_ca_file", "ca"), ("ssl_cert_file", "crt"), ("ssl_key_file", "key")):
                admin.execute(f"alter system set {setting} = '{theirs / name}'")
            admin.execute("alter system set ssl = on")
            admin.execute("alter system set ssl_min_protocol_version = 'TLSv1.2'")
            admin.execute("create role by_certificate login replication")
            by_password = sql.SQL("create role by_password login replication password {}")
            admin.execute(by_password.format(sql.Literal(PASSWORD)))
        postgres.stop()
        postgres.start()  # which gives the files to the server's user
        yield TlsServer(postgres, authority, folder)


def the_way_in(tls: TlsServer, way: str, database: str, folder: Path) -> dict[str, str]:
    """The environment of a capture that takes this way: its DSN, and the files that libpq finds by variables."""
    match way:
        case "password":
            return {"PENSTOCK_SOURCE__DSN": tls.dsn(database, user="by_password", password=PASSWORD)}
        case "certificate":
            certificate, key = tls.authority.sign("by_certificate")
            dsn = tls.dsn(database, user="by_certificate", sslcert=str(certificate), sslkey=str(key))
            return {"PENSTOCK_SOURCE__DSN": dsn}
        case "password file":
            passwords = folder / "pgpass"
            escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
            passwords.write_text(f"localhost:{tls.postgres.port}:{database}:by_password:{escaped}\n")
            passwords.chmod(0o600)
            return {"PENSTOCK_SOURCE__DSN": tls.dsn(database, user="by_password"), "PGPASSFILE": str(passwords)}
        case "service file":
            services = folder / "services.conf"
            dsn = {"host": "localhost", "port": tls.postgres.port, "dbname": database, "user": "by_password"}
            dsn |= {"password": PASSWORD, "sslmode": "verify-full", "sslrootcert": tls.authority.certificate}
            services.write_text("[shop]\n" + "".join(f"{name}={value}\n" for name, value in dsn.items()))
            return {"PENSTOCK_SOURCE__DSN": "service=shop", "PGSERVICEFILE": str(services)}
        case _:
            raise AssertionError(way)


@pytest.mark.parametrize("way", ["password", "certificate", "password file", "service file"])
def test_copy_and_stream_are_exact_whatever_the_way_in(
    tls: TlsServer, kafka: LocalKafka, tmp_path: Path, way: str
) -> None:
    with Pipeline(f"t{secrets.token_hex(4)}", tls.postgres, kafka, None, tmp_path) as pipeline:
        pipeline.sql(
            "create table t (id bigint primary key, a text)",
            f"insert into t select i, repeat(md5(i::text), 1 + i % 7) from generate_series(1, {ROWS}) i",
            "update t set a = repeat('large', 300000) where id in (7, 4000)",
            "grant select on t to by_password, by_certificate",
        )
        pipeline.publish("t")

        pipeline.start_capture(**the_way_in(tls, way, pipeline.name, tmp_path))
        copied = pipeline.assert_captured()
        pipeline.sql(
            f"insert into t select {ROWS} + i, repeat(md5(i::text), 1 + i % 7) from generate_series(1, {ROWS}) i",
            f"update t set a = repeat('huge', 500000) where id = {ROWS} + 1",
            "delete from t where id % 3 = 0",
        )
        streamed = pipeline.assert_captured()

        encrypted = pipeline.source.execute(
            "select ssl from pg_stat_ssl join pg_replication_slots on pid = active_pid where slot_name = %s",
            [f"penstock_{pipeline.name}"],
        ).fetchone()
        log = (tmp_path / "capture0.log").read_text()

    assert encrypted == (True,)
    assert streamed.generation == copied.generation, "the changes came by the stream"
    assert PASSWORD not in log


def test_a_walsender_killed_under_tls_is_replaced(tls: TlsServer, kafka: LocalKafka, tmp_path: Path) -> None:
    with Pipeline(f"t{secrets.token_hex(4)}", tls.postgres, kafka, None, tmp_path) as pipeline:
        pipeline.sql("create table t (id bigint primary key, a text)", "grant select on t to by_password")
        pipeline.publish("t")
        pipeline.start_capture(**the_way_in(tls, "password", pipeline.name, tmp_path))
        pipeline.assert_captured()

        pipeline.sql("insert into t select i, 'before' from generate_series(1, 5000) i")
        pipeline.sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        pipeline.sql("insert into t select i, 'after' from generate_series(5001, 6000) i")
        pipeline.assert_captured()

        assert pipeline.capture is not None
        assert pipeline.capture.process.poll() is None


@pytest.mark.parametrize(
    ("change", "solution"),
    [
        ({"sslrootcert": "other.crt"}, "sslrootcert"),
        ({"host": "127.0.0.1"}, "certificate"),
        ({"sslrootcert": "missing.crt"}, "sslrootcert"),
        ({"user": "by_certificate"}, "sslcert"),
        ({"sslmode": "disable"}, "sslmode"),
    ],
)
def test_a_certificate_that_does_not_fit_is_refused_with_what_helps(
    tls: TlsServer, change: dict[str, str], solution: str
) -> None:
    Authority(tls.folder, "other")
    if "sslrootcert" in change:
        change = {"sslrootcert": str(tls.folder / change["sslrootcert"])}
    dsn = make_conninfo(tls.dsn("postgres", user="by_password", password=PASSWORD), **change)

    with pytest.raises(SourceUnreachable) as refused:
        connect(SourceConfig.model_validate({"dsn": dsn, "publication": PublicationName("p")}))

    assert solution in refused.value.solution
    assert PASSWORD not in refused.value.reason + refused.value.solution
