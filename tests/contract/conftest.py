"""Every place that the destinations' contract is tested at."""

from __future__ import annotations

import pytest

from tests.contract.destination_places import PLACES, Place, make_place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)
