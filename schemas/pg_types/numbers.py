"""Numbers and booleans. Numeric travels as text: no precision is lost, and NaN and Infinity have a place."""

from __future__ import annotations

from schemas.pg_types.pg_type import PgType


def _boolean(text: str) -> bool:
    return text == "t"


NUMBERS = (
    PgType(16, 1000, "bool", _boolean, "boolean"),
    PgType(21, 1005, "int2", int, "int"),
    PgType(23, 1007, "int4", int, "int"),
    PgType(20, 1016, "int8", int, "long"),
    PgType(26, 1028, "oid", int, "long"),
    PgType(700, 1021, "float4", float, "float"),
    PgType(701, 1022, "float8", float, "double"),
    PgType(
        1700,
        1231,
        "numeric",
        str,
        "string",
        "every digit, `NaN`, `Infinity` and `-Infinity`; `decimal(p, s)` in DuckDB and Delta where the column is "
        "`numeric(p, s)` and `p` at most 38, in ClickHouse at most 76",
    ),
)
