"""How a destination is chosen and configured: mistakes are named by key, never by value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from apply_spark.config import DestinationConfig
from apply_spark.destinations.registry import installed, make_destination
from apply_spark.errors import DestinationNotInstalled
from schemas.errors import ConfigError
from tests.contract.destination_places import LAKE, NAMES


@pytest.mark.parametrize("kind", sorted({*NAMES, "stdout"}))
def test_an_unknown_option_is_refused_and_named(kind: str, tmp_path: Path) -> None:
    config = DestinationConfig.model_validate({"type": kind, "path": str(tmp_path / "x"), "colour": "red"})

    with pytest.raises(ConfigError, match=r"destinations\.lake\.colour") as caught:
        make_destination(LAKE, config)

    assert "red" not in caught.value.reason


def test_an_unknown_type_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'duckdb'") as caught:
        make_destination(LAKE, DestinationConfig(type="duckbd"))

    assert all(name in caught.value.solution for name in NAMES)


def test_every_place_of_this_suite_is_an_installed_destination() -> None:
    assert set(NAMES) <= set(installed())


def test_a_destination_whose_client_is_not_installed_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in [name for name in sys.modules if name.startswith("apply_spark.destinations.clickhouse")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "clickhouse_connect", None)

    with pytest.raises(DestinationNotInstalled, match="clickhouse_connect") as caught:
        make_destination(LAKE, DestinationConfig.model_validate({"type": "clickhouse", "dsn": "chdb://memory"}))

    assert "pip install 'penstock[clickhouse]'" in caught.value.solution
