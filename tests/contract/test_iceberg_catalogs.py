"""The kinds of Iceberg catalogs: each keeps the promises, and each has options of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

from apply_spark.destination import Batch
from apply_spark.destinations import iceberg_plans
from apply_spark.destinations.iceberg import IcebergDestination
from apply_spark.destinations.iceberg_table import Catalog, Transaction
from apply_spark.errors import DestinationTaken
from console.local_stack.postgres import LocalPostgres
from schemas.errors import ConfigError
from tests.contract.destination_places import EVENTS, LAKE, ORDERS, IcebergPlace, PostgresPlace, a_progress
from tests.contract.test_iceberg_destination import a_swap_and_a_removal, at, once_before, two_tables
from tests.support.rest_catalog import rest_catalog

pytestmark = pytest.mark.further


def lives_through_a_crash(place: IcebergPlace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on the catalog: tables that are made, plans, and a commit that is sent when another apply has taken
    over."""
    lake = place.opened()
    assert lake.startup() is None
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    successor, found = place.opened(), []

    def between() -> None:
        once_before(monkeypatch, Transaction, "commit", lambda: found.append(successor.startup()))

    at(monkeypatch, "iceberg.committed", between)
    with pytest.raises(DestinationTaken):
        lake.write_events(batch)

    assert found == [before.with_tables(batch.progress.tables[ORDERS.name])]
    assert place.rows(EVENTS) == [("x", 1), ("x", 1)]
    successor.write_events(Batch(batch.tables[1:], batch.progress))
    monkeypatch.setattr(iceberg_plans, "_EXPIRE_EVERY", 2)
    for number in range(4):
        successor.save_progress(a_progress(101 + number, ORDERS, EVENTS))
    plans = Catalog(spark, place.name).table("penstock", place.name)
    assert plans is not None
    assert len(list(plans._table.snapshots())) <= 2
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert place.rows(EVENTS) == [("x", 1)]
    assert place.opened().startup() == a_progress(104, ORDERS, EVENTS)


def test_a_jdbc_catalog_on_postgres_keeps_the_promises(
    tmp_path: Path, spark: SparkSession, postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = conninfo_to_dict(PostgresPlace(postgres).dsn)
    database = f"jdbc:postgresql://{dsn['host']}:{dsn['port']}/{dsn['dbname']}"
    uri = f"{database}?user={dsn['user']}&password={dsn['password']}"
    place = IcebergPlace(spark, catalog="jdbc", uri=uri, warehouse=str(tmp_path / "lake"))

    lives_through_a_crash(place, spark, monkeypatch)


def test_a_rest_catalog_keeps_the_promises(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rest_catalog(spark, tmp_path) as address:
        lives_through_a_crash(IcebergPlace(spark, catalog="rest", uri=address), spark, monkeypatch)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"catalog": "jdbc", "warehouse": "w"}, "a jdbc catalog needs uri"),
        ({"catalog": "hadoop", "uri": "secret"}, "a hadoop catalog needs warehouse"),
        ({"catalog": "glue", "properties": {"credential": "secret"}}, "destinations.lake.catalog"),
    ],
)
def test_options_that_do_not_go_together_are_refused_and_no_secret_is_told(
    options: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        IcebergDestination(LAKE, options)

    assert "secret" not in caught.value.reason
