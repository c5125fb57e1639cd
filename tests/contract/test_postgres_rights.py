"""A role that has exactly the rights of docs/how-to/grant-rights.md at a Postgres destination: it can do all that apply
must, and each of them is needed and named where it is missing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from apply_spark.destinations.postgres import PostgresDestination
from console.local_stack.postgres import LocalPostgres
from schemas.errors import DestinationError
from tests.contract.destination_places import LAKE, ORDERS, PostgresPlace, a_batch, changes, fill, gone, upsert
from tests.support.granted import PASSWORD, granted

pytestmark = pytest.mark.further


@dataclass(frozen=True)
class Place:
    """A database that lets nobody in but a role of its own."""

    admin: PostgresPlace
    role: str

    @property
    def dsn(self) -> str:
        return make_conninfo(self.admin.dsn, user=self.role, password=PASSWORD)

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.admin.dsn, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())

    def write(self, spark: SparkSession) -> None:
        """All kinds of writing: a new mirror, a copy, changes, one of them a row that was sent in part."""
        lake = PostgresDestination(LAKE, {"dsn": self.dsn})
        try:
            lake.startup()
            fill(lake, spark, ORDERS, (1, "a", 1), (2, "b", 2))
            batch = changes(spark, ORDERS, gone(2), upsert(1, None, 10, missing=["note"], base=(1,)))
            lake.write_events(a_batch(batch))
        finally:
            lake.shutdown()

    def refused(self, spark: SparkSession) -> DestinationError:
        with pytest.raises(DestinationError) as caught:
            self.write(spark)
        return caught.value


@pytest.fixture
def place(postgres: LocalPostgres) -> Iterator[Place]:
    admin, role = PostgresPlace(postgres), f"a{secrets.token_hex(4)}"
    name = psycopg.conninfo.conninfo_to_dict(admin.dsn)["dbname"]
    made = Place(admin, role)
    made.run(
        f"revoke all on database {name} from public",
        "revoke all on schema public from public",
        *granted("A Postgres destination", penstock_apply=role, warehouse=str(name)),
    )
    yield made
    made.run(f"drop owned by {role}", f"drop role {role}")


def test_it_writes_and_each_right_is_needed_and_told_by_its_statement(place: Place, spark: SparkSession) -> None:
    place.write(spark)
    assert place.admin.query(sql.SQL("select * from orders")) == [(1, "a", 10)]

    for taken, given, told in (
        ("revoke connect on database {db} from {role}", "grant connect on database {db} to {role}", "grant connect"),
        ("revoke temporary on database {db} from {role}", "grant temporary on database {db} to {role}", "temporary"),
        (
            "drop table orders; revoke create on schema public from {role}",
            "grant create on schema public to {role}",
            'grant usage, create on schema "public" to ROLE;',
        ),
        (
            "alter schema penstock owner to current_user",
            "alter schema penstock owner to {role}",
            "alter schema penstock owner to ROLE;",
        ),
    ):
        names = {"db": psycopg.conninfo.conninfo_to_dict(place.admin.dsn)["dbname"], "role": place.role}
        place.run(*taken.format(**names).split("; "))
        error = place.refused(spark)
        assert told in error.solution, error.reason
        assert "permission denied" in error.reason
        assert PASSWORD not in error.reason + error.solution
        place.run(given.format(**names))
        place.write(spark)


def test_where_it_may_make_schemas_it_needs_none(place: Place, spark: SparkSession) -> None:
    name = psycopg.conninfo.conninfo_to_dict(place.admin.dsn)["dbname"]
    place.run("drop schema penstock", "drop schema public")
    place.run(f"grant connect, create, temporary on database {name} to {place.role}")

    place.write(spark)

    assert place.admin.query(sql.SQL("select * from public.orders")) == [(1, "a", 10)]
