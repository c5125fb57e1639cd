"""Array literals of one dimension, with NULLs, quotes and escapes, to lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from schemas.pg_types.pg_type import PgType, ValueNotCarried

_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def array_of(element: PgType, oid: int) -> PgType:
    return PgType(
        oid=oid,
        array_oid=None,
        name=f"{element.name}[]",
        parse=_parser(element.parse),
        avro={"type": "array", "items": ["null", element.avro]},
    )


def _parser(parse_item: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def parse(text: str) -> list[Any]:
        if text == "{}":
            return []
        if text.startswith(("[", "{{")):
            raise ValueNotCarried(
                "An array has more than one dimension, or does not begin at index 1.",
                solution="Leave the column out of the publication, or store the array as jsonb.",
            )
        return [_item(quoted, plain, parse_item) for quoted, plain in _ITEM.findall(text[1:-1])]

    return parse


def _item(quoted: str, plain: str, parse_item: Callable[[str], Any]) -> Any:  # noqa: ANN401 -- any element type
    if plain:
        return None if plain == "NULL" else parse_item(plain)
    return parse_item(_ESCAPE.sub(r"\1", quoted))
