"""PySpark finds the classes of its JVM by their names: one that has no package is looked for in every jar."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JVMView
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the JVM is asked for by name, from now on."""
    names: list[str] = []
    look = JVMView.__getattr__

    def told(view: JVMView, name: str) -> Any:  # noqa: ANN401 -- whatever it is
        names.append(name)
        return look(view, name)

    monkeypatch.setattr(JVMView, "__getattr__", told)
    return names


def test_neither_a_query_nor_an_exception_makes_the_jvm_look_in_every_jar(
    spark: SparkSession, asked: list[str]
) -> None:
    rows = spark.range(3).select((F.col("id") + F.lit(1)).alias("next"))

    assert [row.next for row in rows.collect()] == [1, 2, 3]
    with pytest.raises(AnalysisException):
        rows.select("nothing")

    assert [name for name in asked if "." not in name] == []


def test_columns_do_not_tell_the_jvm_where_they_were_written(spark: SparkSession, asked: list[str]) -> None:
    spark.range(1).select(F.col("id").cast("string")).collect()

    assert [name for name in asked if name.endswith("PySparkCurrentOrigin")] == []
