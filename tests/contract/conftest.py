"""Every place that the destinations' contract is tested at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apply_spark.destinations.postgres import PostgresDestination
from console.local_stack.postgres import LocalPostgres
from tests.contract.destination_places import LAKE, PLACES, Place, PostgresPlace, make_place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def postgres_place(postgres: LocalPostgres) -> PostgresPlace:
    return PostgresPlace(postgres)


@pytest.fixture
def postgres_lake(postgres_place: PostgresPlace) -> Iterator[PostgresDestination]:
    """A destination that is ours."""
    destination = PostgresDestination(LAKE, {"dsn": postgres_place.dsn})
    destination.startup()
    yield destination
    destination.shutdown()
