"""Every type that penstock knows, with values that are hard to hold: as Postgres prints them, and as DuckDB does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 -- Spark's own convention

from apply_spark.decode import decoded_copy
from apply_spark.rows import Rows, SparkRows
from capture.transcode.reference import Transcoder, snapshot_origin
from schemas.envelope import Op, envelope_schema
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.pg_types.pg_type import PgType
from schemas.pg_types.registry import SCALARS, TYPES, pg_type
from schemas.table import Column, TableSchema
from stores.schema_topic import RegisteredSchema
from tests.contract.destination_places import ClickHousePlace, DeltaPlace, ParquetPlace, Place
from tests.support.builders import INT8, a_column, a_table
from tests.support.frames import a_frame

DATE, TIMESTAMP, TIMESTAMPTZ = 1082, 1114, 1184
NUMERIC_10_2 = (10 << 16 | 2) + 4
NUMERIC_50_2 = (50 << 16 | 2) + 4


class Sample(NamedTuple):
    """A value of a type; where DuckDB prints it otherwise than Postgres, `shown` says how."""

    type_oid: int
    text: str
    shown: str = ""
    modifier: int = -1

    @property
    def duckdb(self) -> str:
        return self.shown or self.text


SAMPLES = (
    Sample(16, "t", "true"),
    Sample(16, "f", "false"),
    Sample(21, "-32768"),
    Sample(23, "-2147483648"),
    Sample(20, "-9223372036854775808"),
    Sample(26, "4294967295"),
    Sample(700, "NaN", "nan"),
    Sample(700, "-Infinity", "-inf"),
    Sample(700, "1.1754944e-38", "1.1754944e-38"),
    Sample(701, "NaN", "nan"),
    Sample(701, "Infinity", "inf"),
    Sample(701, "5e-324"),
    Sample(701, "0.1"),
    Sample(701, "-0", "-0.0"),
    Sample(1700, "12345678.90", modifier=NUMERIC_10_2),
    Sample(1700, "-0.01", modifier=NUMERIC_10_2),
    Sample(1700, "NaN", modifier=NUMERIC_50_2),
    Sample(1700, "NaN"),
    Sample(1700, "-Infinity"),
    Sample(1700, "0.1000"),
    Sample(1700, "1" + "0" * 100 + ".5"),
    Sample(25, ""),
    Sample(25, "NULL"),
    Sample(25, "äöü \U0001f600 'quoted' \"twice\" \\ \n\t"),
    Sample(1043, "x"),
    Sample(1042, "ab   "),
    Sample(18, "c"),
    Sample(19, "a_name"),
    Sample(114, '{"b" :  1, "a": [null, 1e400, 12345678901234567890123]}'),
    Sample(114, '"\\u0000"'),
    Sample(3802, '{"a": {}}'),
    Sample(3802, "null"),
    Sample(2950, "00000000-0000-0000-0000-0000000000ff"),
    Sample(2950, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    Sample(1186, "-1 years -2 mons +3 days -04:05:06.789"),
    Sample(1266, "24:00:00-15:59"),
    Sample(17, "\\x00ff4100", "\\x00\\xFFA\\x00"),
    Sample(1082, "infinity"),
    Sample(1082, "-infinity"),
    Sample(1082, "4713-11-24 BC", "4713-11-24 (BC)"),
    Sample(1082, "0001-01-01"),
    Sample(1082, "5874897-12-31"),
    Sample(1083, "24:00:00"),
    Sample(1083, "23:59:59.999999"),
    Sample(1083, "00:00:00"),
    Sample(1114, "infinity"),
    Sample(1114, "-infinity"),
    Sample(1114, "4713-11-24 00:00:00 BC", "4713-11-24 (BC) 00:00:00"),
    Sample(1114, "294247-01-10 04:00:54.775806"),
    Sample(1114, "1969-12-31 23:59:59.999999"),
    Sample(1184, "infinity"),
    Sample(1184, "-infinity"),
    Sample(1184, "10000-01-01 00:00:00+14", "9999-12-31 10:00:00+00"),
    Sample(1184, "12345-06-07 08:09:10.5+00"),
    Sample(1184, "0044-03-15 12:00:00+00 BC", "0044-03-15 (BC) 12:00:00+00"),
    Sample(603, "(2,2),(1,1)"),
    Sample(999_999, "(1,2)"),
)
"""The last two stand for all types that are carried as their text, and for those that are not known."""


def _an_array(element: PgType, samples: tuple[Sample, ...]) -> Sample:
    """All samples of an element type in one array, with a NULL among them."""
    assert element.array_oid is not None
    elements = [sample for sample in samples if sample.type_oid == element.oid and sample.modifier == -1]
    items = element.delimiter.join('"' + each.text.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in elements)
    return Sample(element.array_oid, f"{{NULL{element.delimiter}{items}}}")


ARRAYS = tuple(_an_array(each, SAMPLES) for each in SCALARS if each.oid in {sample.type_oid for sample in SAMPLES})


def _is_within(first: date, last: date, sample: Sample) -> bool:
    """Whether it is a date or a moment between these, or of another type."""
    epoch = date(1970, 1, 1).toordinal()
    begin, end = first.toordinal() - epoch, last.toordinal() + 1 - epoch
    unit = {DATE: 1, TIMESTAMP: 86_400_000_000, TIMESTAMPTZ: 86_400_000_000}.get(sample.type_oid)
    return unit is None or begin * unit <= pg_type(sample.type_oid).parse(sample.text) < end * unit


def _arrays_of(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    return tuple(_an_array(TYPES[array.type_oid].element or TYPES[25], samples) for array in ARRAYS)


OF_DELTA = tuple(sample for sample in SAMPLES if _is_within(date.min, date.max, sample))
ARRAYS_OF_DELTA = _arrays_of(OF_DELTA)
_FIRST, _LAST = date(1900, 1, 1), date(2299, 12, 31)
OF_CLICKHOUSE = (
    *(each for each in SAMPLES if _is_within(_FIRST, _LAST, each) and each.modifier != NUMERIC_50_2),
    Sample(1700, "-" + "9" * 48 + ".99", modifier=NUMERIC_50_2),  # it has decimals of 76 digits, and no NaN among them
    Sample(DATE, str(_FIRST)),
    Sample(DATE, str(_LAST)),
    Sample(TIMESTAMP, "1900-01-01 00:00:00"),
    Sample(TIMESTAMPTZ, "2299-12-31 23:59:59.999999+00"),
)
ARRAYS_OF_CLICKHOUSE = _arrays_of(OF_CLICKHOUSE)
OF_PARQUET = tuple(each for each in SAMPLES if "infinity" not in each.text and each.modifier != NUMERIC_50_2)
ARRAYS_OF_PARQUET = _arrays_of(OF_PARQUET)


def held_at(place: Place, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Those samples of all that the place holds."""
    match place:
        case DeltaPlace():
            held = OF_DELTA, ARRAYS_OF_DELTA
        case ClickHousePlace():
            held = OF_CLICKHOUSE, ARRAYS_OF_CLICKHOUSE
        case ParquetPlace():
            held = OF_PARQUET, ARRAYS_OF_PARQUET
        case _:
            return samples
    return held[0] if samples is SAMPLES else held[1]


def a_table_of(samples: tuple[Sample, ...], *, key: bool) -> TableSchema:
    """One column a sample, and a number in front."""
    columns = [
        Column(f"c{number}", each.type_oid, pg_type(each.type_oid).name, each.modifier)
        for number, each in enumerate(samples)
    ]
    return a_table(a_column("id", INT8, key=key), *columns, name=TableName("public", "types"))


def from_kafka(spark: SparkSession, table: TableSchema, *rows: Sequence[str | None]) -> Rows:
    """The rows as capture writes them to a copy topic and apply reads them there."""
    registered = RegisteredSchema(SchemaId(5), envelope_schema(PipelineName("tests"), table), table)
    transcoder = Transcoder(PipelineName("tests"), "shop", table, (registered.id, None), Epoch(1))
    origin = snapshot_origin(Lsn(1), 0)
    images = [tuple(None if text is None else text.encode() for text in row) for row in rows]
    records = [("topic", transcoder.value(Op.READ, None, image, origin)) for image in images]
    raw = a_frame(spark, records, T.StructType().add("topic", "string").add("value", "binary"))
    return SparkRows(decoded_copy(raw, "topic", registered))


def comparable(values: Sequence[Any]) -> list[Any]:
    """NaN is not equal to itself; its name is."""
    return ["NaN" if isinstance(value, float) and math.isnan(value) else repr(value) for value in values]
