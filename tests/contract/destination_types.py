"""Samples of every type, as single destinations hold and print them."""

from __future__ import annotations

from datetime import date

from destination_contract.place import held_at
from destination_contract.samples import (
    ARRAYS,
    NUMERIC_10_2,
    NUMERIC_50_2,
    SAMPLES,
    Sample,
    a_table_of,
    arrays_of,
    comparable,
    from_kafka,
)
from schemas.pg_types.registry import pg_type

__all__ = [
    "ARRAYS",
    "ARRAYS_OF_CLICKHOUSE",
    "ARRAYS_OF_SPARK",
    "NUMERIC_10_2",
    "OF_CLICKHOUSE",
    "OF_SPARK",
    "SAMPLES",
    "Sample",
    "a_table_of",
    "comparable",
    "from_kafka",
    "held_at",
    "is_of_clickhouse",
    "is_of_parquet",
    "is_of_spark",
    "shown_by_duckdb",
]

DATE, TIMESTAMP, TIMESTAMPTZ = 1082, 1114, 1184
_SHOWN_BY_DUCKDB = {
    (16, "t"): "true",
    (16, "f"): "false",
    (700, "NaN"): "nan",
    (700, "-Infinity"): "-inf",
    (701, "NaN"): "nan",
    (701, "Infinity"): "inf",
    (701, "-0"): "-0.0",
    (17, "\\x00ff4100"): "\\x00\\xFFA\\x00",
    (1082, "4713-11-24 BC"): "4713-11-24 (BC)",
    (1114, "4713-11-24 00:00:00 BC"): "4713-11-24 (BC) 00:00:00",
    (1184, "10000-01-01 00:00:00+14"): "9999-12-31 10:00:00+00",
    (1184, "0044-03-15 12:00:00+00 BC"): "0044-03-15 (BC) 12:00:00+00",
}
"""What DuckDB prints otherwise than Postgres."""


def shown_by_duckdb(sample: Sample) -> str:
    return _SHOWN_BY_DUCKDB.get((sample.type_oid, sample.text), sample.text)


def _is_within(first: date, last: date, sample: Sample) -> bool:
    """Whether it is a date or a moment between these, or of another type."""
    epoch = date(1970, 1, 1).toordinal()
    begin, end = first.toordinal() - epoch, last.toordinal() + 1 - epoch
    unit = {DATE: 1, TIMESTAMP: 86_400_000_000, TIMESTAMPTZ: 86_400_000_000}.get(sample.type_oid)
    return unit is None or begin * unit <= pg_type(sample.type_oid).parse(sample.text) < end * unit


def is_of_spark(sample: Sample) -> bool:
    """Delta and Iceberg have the years 1 to 9999."""
    return _is_within(date.min, date.max, sample)


def is_of_clickhouse(sample: Sample) -> bool:
    """It has the years 1900 to 2299, decimals of 76 digits, and no NaN among them."""
    return _is_within(_FIRST, _LAST, sample) and sample.modifier != NUMERIC_50_2


def is_of_parquet(sample: Sample) -> bool:
    return "infinity" not in sample.text and sample.modifier != NUMERIC_50_2


OF_SPARK = tuple(sample for sample in SAMPLES if is_of_spark(sample))
ARRAYS_OF_SPARK = arrays_of(OF_SPARK)
_FIRST, _LAST = date(1900, 1, 1), date(2299, 12, 31)
OF_CLICKHOUSE = (
    *(sample for sample in SAMPLES if is_of_clickhouse(sample)),
    Sample(1700, "-" + "9" * 48 + ".99", modifier=NUMERIC_50_2),
    Sample(DATE, str(_FIRST)),
    Sample(DATE, str(_LAST)),
    Sample(TIMESTAMP, "1900-01-01 00:00:00"),
    Sample(TIMESTAMPTZ, "2299-12-31 23:59:59.999999+00"),
)
ARRAYS_OF_CLICKHOUSE = arrays_of(OF_CLICKHOUSE)
