"""Tables and columns have the names of the source, whatever they are."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Destination
from apply_spark.errors import TableFailed
from destination_contract.batches import a_batch, a_progress, bag_changes, changes, copied, fill, gone, upsert
from destination_contract.place import Place
from destination_contract.tables import a_column, a_table
from schemas.envelope import avro_name
from schemas.identifiers import TableName
from schemas.table import TableSchema

ODD_NAMES = (
    *("Mixed Case", 'quo"te', "a'b", "dot.ted", "größe", "日本", "1st", "_x20_", "select", "rowid", "range", "id"),
    *("row", "key", "base", "deleted", "missing", "net", "copy", "c0", "k0", "b0", "t", "s", "staged", "batch"),
    *("back\\slash", "`tick`", 'x"; drop table orders; --', "x'); drop table orders; --", "/* open", "$$", "%s %(a)s"),
    *("{a}", "new\nline", "tab\t", " around ", "null", "user", "order"),
    *("caf\u00e9", "cafe\u0301", "\u05e9\u05dc\u05d5\u05dd", "\u202eturned", "🐘"),
    *("x" * 63, "x" * 62 + "y", "ß" * 31 + "x"),
)
"""What SQL, Avro, a log or a destination's own statements could stumble over. No name in Postgres is longer."""
_FEW_NAMES = ("from", "row", "dot.ted")
HOSTILE = TableName(
    """sch"ema'; drop schema "public" cascade; -- \\`$$""", 't\u00e0bl\u0065\u0301\n"quoted"\\\'`; --\u202e'
)


class NamesContract:
    """Names that are hard to quote, and names that a destination could take for its own."""

    @pytest.mark.parametrize(
        ("name", "names"),
        [
            (TableName('Odd "schema".x', "My Tàble"), _FEW_NAMES),
            (TableName("select", "table"), _FEW_NAMES),
            (HOSTILE, ODD_NAMES),
        ],
        ids=["odd", "reserved", "hostile"],
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

    def test_names_that_differ_in_case_only_are_kept_apart_or_the_table_is_stopped(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        columns = a_column("id", key=True), a_column("note")
        first, second = (a_table(*columns, name=TableName("public", name)) for name in ("orders", "Orders"))
        twins = a_table(*columns, a_column("NOTE"), name=TableName("public", "twins"))

        fill(destination, spark, first, ("a", "first"))
        for table, row in ((second, ("b", "second")), (twins, ("c", "note", "NOTE"))):
            stopped = _stopped(destination, spark, table, row, beside=first)
            assert stopped is None or "case" in stopped.reason
            assert stopped is not None or place.rows(table) == [row]

        assert place.rows(first) == [("a", "first")]


def _stopped(
    destination: Destination, spark: SparkSession, table: TableSchema, row: tuple[str, ...], *, beside: TableSchema
) -> TableFailed | None:
    """Fills a table beside another one, unless the destination refuses it."""
    try:
        destination.drop_table_for_copy(table, a_progress(10, beside, table))
        destination.write_table_rows(table, copied(spark, table, [row]), a_progress(11, beside, table))
    except TableFailed as error:
        return error
    return None
