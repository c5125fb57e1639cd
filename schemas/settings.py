"""Settings as people write them: durations with a unit, and mistakes told by key, never by value.

A value may be a secret, so nothing here repeats what was written; a key never is, so it is named and, where it is
nearly right, corrected.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD_IN_URL = re.compile(r"(\w+://[^\s:/@]*):[^\s/@]*@")
_PASSWORD_IN_PAIRS = re.compile(r"((?:password|passwd|secret)\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)


def parse_duration(text: str) -> timedelta:
    """`500ms`, `2s`, `5m`, `1h`, `7d`. Raises ValueError for everything else, ISO 8601 included."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a duration: write 500ms, 2s, 5m, 1h or 7d")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise ValueError("longer than any duration") from None


def without_passwords(text: str) -> str:
    """The text with every password of a URL or of `password=...` replaced by ***."""
    return _PASSWORD_IN_PAIRS.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1:***@", text))


def with_durations(data: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The same data, with durations read where the model has one; what cannot be read stays for pydantic to refuse."""
    return {key: _read(value, _field_type(model, key)) for key, value in data.items()}


def explain(error: ValidationError, model: type[BaseModel], where: str) -> list[str]:
    """Every mistake of a validation as one line that names its key; `where` is the key of the model itself, or empty.

    An unknown key comes with the known one that looks most like it: in its own section, else anywhere in the model."""
    return [printable(_line(detail, model, where)) for detail in error.errors(include_url=False, include_input=False)]


def checked(model: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """The data as the model wants it; raises ConfigError with every mistake there is."""
    try:
        return model.model_validate(with_durations(data, model))
    except ValidationError as error:
        mistakes = explain(error, model, where)
        known = ", ".join(model.model_fields) or "none"
    # Outside the except clause: pydantic's error repeats the values, which must not travel with ours.
    raise ConfigError(
        mistakes[0]
        if len(mistakes) == 1
        else "\n".join([f"[{where}] has {len(mistakes)} mistakes:", *(f"  - {each}" for each in mistakes)]),
        solution=f"Correct [{where}]; its keys are: {known}.",
    )


def closest(name: str, known: list[str]) -> str | None:
    """The known name that was most likely meant."""
    lowered = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def dotted(parts: tuple[str | int, ...]) -> str:
    """A key as TOML writes it, with quotes only where it needs them."""
    texts = [str(part) for part in parts if str(part)]
    return ".".join(text if _BARE_KEY.fullmatch(text) else f'"{text}"' for text in texts)


def printable(text: str) -> str:
    """What begins a line, moves a cursor or turns the direction of writing is told by its number."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def section_type(annotation: object) -> object:
    """What an annotation is about, without `| None`: a model, `dict[str, model]`, or any other type."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [argument for argument in get_args(annotation) if argument is not type(None)]
        return inner[0] if len(inner) == 1 else annotation
    return annotation


def as_model(annotation: object) -> type[BaseModel] | None:
    """The model, where the annotation is one."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _line(detail: ErrorDetails, model: type[BaseModel], where: str) -> str:
    location = detail["loc"]
    key = ".".join(filter(None, (where, dotted(location))))
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key {key}{_suggestion(location, model)}"
        case "missing":
            return f"missing key {key}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{key}: must be a section, [{key}]"
        case kind if kind.startswith("time_delta"):
            return f"{key}: must be a duration, such as 500ms, 2s, 5m, 1h, 7d or PT2S"
        case kind if kind.startswith("byte_size"):
            return f"{key}: must be a size, such as 64MB, 20GB or 1GiB"
        case _:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            return f"{key}: {message}"


def _suggestion(location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    name = str(location[-1])
    section = _model_at(model, location[:-1])
    near = closest(name, list(section.model_fields) if section is not None else [])
    if near is not None:
        return f"; did you mean {near}?"
    elsewhere = [path for path in _paths(model) if path[-1] == name]
    return f"; did you mean {dotted(elsewhere[0])}?" if elsewhere else ""


def _model_at(model: type[BaseModel], location: tuple[str | int, ...]) -> type[BaseModel] | None:
    now: object = model
    for part in location:
        section = as_model(now)
        now = _field_type(section, str(part)) if section is not None else _value_type(now)
    return as_model(now)


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (name,)
        section = as_model(section_type(field.annotation))
        if section is not None:
            yield from ((name, *path) for path in _paths(section))


def _field_type(model: type[BaseModel], key: str) -> object:
    field = model.model_fields.get(key)
    return section_type(field.annotation) if field is not None else None


def _value_type(annotation: object) -> object:
    if get_origin(annotation) is dict:
        return section_type(get_args(annotation)[1])
    return None


def _read(value: Any, annotation: object) -> Any:  # noqa: ANN401 -- TOML values
    section = as_model(annotation)
    if isinstance(value, Mapping):
        if section is not None:
            return with_durations(value, section)
        return {key: _read(inner, _value_type(annotation)) for key, inner in value.items()}
    if annotation is timedelta and isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            return value
    return value
