"""docs/reference/destinations.md says of each destination what its code says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest
from pydantic import BaseModel

from apply_spark.destinations.duckdb_types import DuckDbType, duckdb_type
from apply_spark.destinations.registry import installed
from apply_spark.destinations.spark_types import SparkType, spark_type
from console.local_stack import jars
from schemas.pg_types.registry import SCALARS
from schemas.table import Column

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "destinations.md").read_text()
OWN = {name: entry for name, entry in installed().items() if entry.dist is not None and entry.dist.name == "penstock"}
COLUMNS = 7


def rows() -> Iterator[list[str]]:
    """The cells of the table, one row a destination."""
    table = PAGE.partition("| type |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


ROWS = {cells[0].strip("` "): cells for cells in rows()}


def test_every_destination_has_one_row_and_each_row_says_something_about_everything() -> None:
    named = [cells[0].strip("` ") for cells in rows()]

    assert sorted(named) == sorted(OWN)
    assert named == sorted(named)
    assert {name: len(cells) for name, cells in ROWS.items() if len(cells) != COLUMNS or not all(cells[:-1])} == {}


@pytest.mark.parametrize("entry", OWN.values(), ids=OWN)
def test_every_option_of_a_destination_is_in_its_section(entry: EntryPoint) -> None:
    options = {
        field
        for name, model in inspect.getmembers(inspect.getmodule(entry.load()), inspect.isclass)
        if name.endswith("Options") and issubclass(model, BaseModel)
        for field in model.model_fields
    }
    section = PAGE.partition(f"\n## `{entry.name}`\n")[2].partition("\n## ")[0]

    assert [option for option in options if f"\n{option} = " not in section] == []


@pytest.mark.parametrize(("name", "held_type"), [("duckdb", duckdb_type), ("delta", spark_type)])
def test_all_that_its_types_have_no_place_for_is_told(
    name: str, held_type: Callable[[Column], DuckDbType | SparkType]
) -> None:
    numeric = Column("c", 1700, "numeric", (10 << 16 | 2) + 4)
    columns = [numeric, Column("c", 1009, "text[]"), *(Column("c", known.oid, known.name) for known in SCALARS)]

    untold = {held_type(column).unheld for column in columns if held_type(column).unheld not in ROWS[name][4]}

    assert untold == set()


def test_engines_have_the_versions_that_are_installed_in_tests() -> None:
    artifacts = json.loads(_ARTIFACTS.read_text())
    delta = next(each["rev"] for each in artifacts["delta"] if "delta-spark" in each["name"])
    iceberg = next(each["rev"] for each in artifacts["iceberg"] if "iceberg-spark" in each["name"])

    assert ROWS["iceberg"][-1].startswith(f"Iceberg {iceberg} on Spark {version('pyspark')},")
    assert ROWS["delta"][-1].startswith(f"Delta {delta} on Spark {version('pyspark')},")
    assert ROWS["duckdb"][-1] == f"DuckDB {version('duckdb')}"
    assert f"DuckDB {version('duckdb')}" in ROWS["ducklake"][-1]


_ARTIFACTS = Path(jars.__file__).with_name("artifacts.json")
