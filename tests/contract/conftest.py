"""Every place that the destinations' contract is tested at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apply_spark.destination import Destination
from tests.contract.destination_places import PLACES, Place, make_place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def destination(place: Place) -> Iterator[Destination]:
    opened = place.opened()
    opened.startup()
    yield opened
    opened.shutdown()
