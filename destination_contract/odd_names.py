"""Tables and columns have the names of the source, whatever they are."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Destination
from destination_contract.batches import a_batch, bag_changes, changes, fill, gone, upsert
from destination_contract.place import Place
from destination_contract.tables import a_column, a_table
from schemas.envelope import avro_name
from schemas.identifiers import TableName

ODD_NAMES = (
    *("Mixed Case", 'quo"te', "a'b", "dot.ted", "größe", "日本", "1st", "_x20_", "select", "rowid", "range", "id"),
    *("row", "key", "base", "deleted", "missing", "net", "copy", "c0", "k0", "b0", "t", "s", "staged", "batch"),
)
"""What SQL, Avro or a destination's own statements could stumble over."""


class NamesContract:
    """Names that are hard to quote, and names that a destination could take for its own."""

    @pytest.mark.parametrize(
        ("name", "names"),
        [
            (TableName('Odd "schema".x', "My Tàble"), ODD_NAMES),
            (TableName("select", "table"), ("from", "row", "dot.ted")),
        ],
        ids=["all", "reserved words"],
    )
    def test_odd_names_are_kept_as_they_are(
        self, place: Place, destination: Destination, spark: SparkSession, name: TableName, names: tuple[str, ...]
    ) -> None:
        columns = [a_column(odd, key=odd in ("row", "dot.ted")) for odd in names]
        odd = a_table(*columns, name=name)
        first, second = (tuple(f"{number} {column}" for column in names) for number in (1, 2))
        key = tuple(value for column, value in zip(columns, first, strict=True) if column.key)
        moved = tuple(value if column.key else None for column, value in zip(columns, second, strict=True))
        unsent = [avro_name(column.name) for column in columns if not column.key]

        fill(destination, spark, odd, first)
        destination.write_events(a_batch(changes(spark, odd, gone(*key), upsert(*moved, missing=unsent, base=key))))

        assert place.rows(odd) == [
            tuple(two if column.key else one for column, one, two in zip(columns, first, second, strict=True))
        ]

    def test_tables_called_as_something_of_an_engine_are_kept_apart_from_that(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        names = ["main.staged", "main.batch", "lake.lake", "temp.orders", "system.memory"]
        columns = a_column("id", key=True), a_column("note")
        tables = [a_table(*columns, name=TableName(*name.split("."))) for name in names]
        for number, table in enumerate(tables):
            fill(destination, spark, table, ("a", table.name.name), others=10 * number)

        written = [changes(spark, table, gone("a"), upsert("b", table.name.name)) for table in tables]
        destination.write_events(a_batch(*written))

        assert [place.rows(table) for table in tables] == [[("b", table.name.name)] for table in tables]

    def test_odd_names_of_a_table_without_a_key_are_kept_as_they_are(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        odd = a_table(*(a_column(name) for name in ODD_NAMES), name=TableName("public", "net"))
        first, second = (tuple(f"{number} {column}" for column in ODD_NAMES) for number in (1, 2))

        fill(destination, spark, odd, first)
        destination.write_events(a_batch(bag_changes(spark, odd, (first, -1), (second, 2))))

        assert place.rows(odd) == [second, second]
