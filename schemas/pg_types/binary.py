"""bytea, as `bytea_output = hex` prints it."""

from __future__ import annotations

from schemas.pg_types.pg_type import PgType


def _hex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


BINARIES = (PgType(17, 1001, "bytea", _hex, "bytes"),)
