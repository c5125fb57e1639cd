"""Text, and what is carried as the text that Postgres prints: json, uuid, interval, timetz."""

from __future__ import annotations

from schemas.pg_types.pg_type import PgType

_UUID = {"type": "string", "logicalType": "uuid"}

TEXTS = (
    PgType(25, 1009, "text", str, "string"),
    PgType(1043, 1015, "varchar", str, "string"),
    PgType(1042, 1014, "bpchar", str, "string"),
    PgType(18, 1002, "char", str, "string"),
    PgType(19, 1003, "name", str, "string"),
    PgType(114, 199, "json", str, "string"),
    PgType(3802, 3807, "jsonb", str, "string"),
    PgType(2950, 2951, "uuid", str, _UUID),
    PgType(1186, 1187, "interval", str, "string"),
    PgType(1266, 1270, "timetz", str, "string"),
)
