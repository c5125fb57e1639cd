"""All of the contract in one class: inherit it, give it a fixture `place`, and pytest runs every test at that place.

    class TestMine(DestinationContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> Place:
            return MyPlace(tmp_path)

The tests ask for a fixture `spark`, which `pytest_plugins = ["destination_contract.plugin"]` brings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apply_spark.destination import Destination
from destination_contract.alterations import AlterationsContract
from destination_contract.changes import ChangesContract
from destination_contract.copies import CopiesContract
from destination_contract.every_type import TypesContract
from destination_contract.odd_names import NamesContract
from destination_contract.place import Place
from destination_contract.progress import ProgressContract


class DestinationContract(
    CopiesContract, ChangesContract, ProgressContract, NamesContract, TypesContract, AlterationsContract
):
    """What a destination promises that keeps rows."""

    @pytest.fixture
    def destination(self, place: Place) -> Iterator[Destination]:
        opened = place.opened()
        opened.startup()
        yield opened
        opened.shutdown()
