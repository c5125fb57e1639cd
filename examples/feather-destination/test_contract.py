"""The contract of destinations, at a folder of Feather files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from penstock_feather import read

from apply_spark.config import DestinationConfig
from apply_spark.destination import Destination
from apply_spark.destinations.registry import make_destination
from destination_contract.contract import DestinationContract
from schemas.identifiers import DestinationName
from schemas.table import TableSchema


class FeatherPlace:
    """A folder; the destination is made as apply makes it, by its entry point."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "lake"

    def opened(self) -> Destination:
        config = DestinationConfig.model_validate({"type": "feather", "path": str(self._folder)})
        return make_destination(DestinationName("lake"), config)

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        columns = read(self._folder, schema.name).columns
        return list(zip(*[column.to_pylist() for column in columns], strict=True))


class TestFeather(DestinationContract):
    """All of it."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> FeatherPlace:
        return FeatherPlace(tmp_path)
