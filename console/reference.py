"""The models of the configuration in, docs/reference/config.md out: `python -m console.reference`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from console.config import PenstockToml
from console.environment import RESERVED
from console.output import human_bytes
from schemas.settings import as_model, section_type

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "config.md"
_HEAD = """\
# Configuration

<!-- Made by `python -m console.reference` from the models; do not edit. -->

One TOML file, `penstock.toml` unless `-c FILE` names another. Unknown keys are refused, and every mistake is reported
in one go.

```toml
[pipeline]
name = "shop"

[source]
dsn = "postgresql://postgres@localhost:5432/shop"
publication = "shop_pub"

[destinations.lake]
type = "duckdb"
path = "shop.duckdb"
```

**Durations** are written `500ms`, `2s`, `5m`, `1h`, `7d`, or as ISO 8601 (`PT2S`); a bare number is seconds.
**Sizes** are written `64MB`, `20GB` (powers of 1000) or `64MiB`, `1GiB` (powers of 1024).
**Relative paths** of destinations (`path`) and of the state begin at the folder of the configuration file.

**Environment.** Every key has a variable that goes before the file: `PENSTOCK_`, the section, two underscores, the key,
so `source.dsn` is `PENSTOCK_SOURCE__DSN` and `destinations.lake.path` is `PENSTOCK_DESTINATIONS__LAKE__PATH` (the file
must name the destination). Where a value is a table of strings, the variable is a JSON object, laid over the file's:
`PENSTOCK_KAFKA__CLIENT='{"sasl.password": "..."}'`. A variable that begins with `PENSTOCK_` and is no key is refused,
except these:

"""
_KINDS = {str: "text", int: "number", bool: "true or false", timedelta: "duration", ByteSize: "size", Path: "path"}


def reference() -> str:
    """The whole page."""
    return _HEAD + "".join(_pages())


def _pages() -> Iterator[str]:
    yield "| variable | meaning |\n|---|---|\n"
    yield from (f"| `{name}` | {meaning} |\n" for name, meaning in RESERVED.items())
    for name, field in PenstockToml.model_fields.items():
        inner = section_type(field.annotation)
        named = get_origin(inner) is dict
        model = as_model(get_args(inner)[1] if named else inner)
        assert model is not None  # noqa: S101 -- the file consists of sections
        yield f"\n## `[{name}{'.NAME' if named else ''}]`\n\n{_first(model)}"
        yield f" {field.description}\n" if field.description else "\n"
        yield from _keys(model)


def _first(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _keys(model: type[BaseModel]) -> Iterator[str]:
    yield "\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {_kind(field)} | {_default(field)} | {field.description or ''} |\n"


def _kind(field: FieldInfo) -> str:
    inner = section_type(field.annotation)
    inner = getattr(inner, "__supertype__", inner)  # a NewType
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return ", ".join(f"`{choice.value}`" for choice in inner)
    if get_origin(inner) is dict:
        return "table of texts"
    return _KINDS.get(inner, "text") if isinstance(inner, type) else "text"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return _told(field.default)


def _told(value: Any) -> str:  # noqa: ANN401 -- the default of any key
    match value:
        case None | {}:
            return "none"
        case enum.Enum():
            return f"`{value.value}`"
        case timedelta():
            return f"`{_duration(value)}`"
        case ByteSize():
            return f"`{human_bytes(value).replace('.0', '').replace(' ', '').replace('B', 'iB').replace('k', 'K')}`"
        case _:
            return f"`{value}`"


def _duration(value: timedelta) -> str:
    """As it would be written: the largest unit in which it is whole."""
    milliseconds = value // timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
