"""Array literals, as Postgres prints them: to lists where a list says all, with NULLs, quotes and escapes.

An array of more than one dimension, or one that does not begin at index 1, stays the literal that it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from schemas.pg_types.pg_type import PgType

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def array_of(element: PgType, oid: int) -> PgType:
    return PgType(
        oid=oid,
        array_oid=None,
        name=f"{element.name}[]",
        parse=_parser(element),
        avro={"type": "array", "items": ["null", element.avro]},
        element=element,
    )


def _parser(element: PgType) -> Callable[[str], list[Any] | str]:
    delimiter = element.delimiter
    item = re.compile(rf'"((?:[^"\\]|\\.)*)"|([^{{}}"\\{re.escape(delimiter)}]+)', re.DOTALL)

    def parse(text: str) -> list[Any] | str:
        if text == "{}":
            return []
        if text.startswith(("[", "{{")):
            return text
        if not text.startswith("{"):
            raise ValueError("not an array literal")
        items: list[Any] = []
        end = 0
        while found := item.match(text, end + 1):
            quoted, plain = found.groups()
            if plain is None:
                items.append(element.parse(_ESCAPE.sub(r"\1", quoted)))
            else:
                items.append(None if plain == "NULL" else element.parse(plain))
            end = found.end()
            if not text.startswith(delimiter, end):
                break
        if text[end:] != "}":
            raise ValueError("not an array literal")
        return items

    return parse
