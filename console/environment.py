"""Environment variables as settings: `PENSTOCK_SOURCE__DSN` is `source.dsn`, two underscores a step.

A variable that begins with PENSTOCK_ and is neither a key nor reserved is a mistake, so that a misspelt one is noticed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from console.logs import LogFormat, format_for_this_terminal
from schemas.errors import ConfigError
from schemas.settings import as_model, closest, printable, section_type

PREFIX = "PENSTOCK_"
LOG_FORMAT = "PENSTOCK_LOG_FORMAT"
RESERVED = {
    LOG_FORMAT: "`json` or `text`; left out: text on a terminal, JSON lines elsewhere.",
    "PENSTOCK_STACK": "`native`, `docker` or `auto`: where the servers of the demo and of the tests run.",
    "PENSTOCK_IVY_SETTINGS": "An ivysettings.xml for the download of jars, behind a mirror or in a closed network.",
    "PENSTOCK_KERNEL": "`reference`: Python transcodes, Spark decodes, even where the compiled kernels are installed.",
}
_FOR_TESTS = "PENSTOCK_TEST_"


@dataclass(frozen=True)
class Variable:
    """A variable that set a key."""

    name: str
    key: str


@dataclass(frozen=True)
class Overridden:
    """The file's data with the environment laid over it."""

    data: dict[str, Any]
    variables: tuple[Variable, ...]
    mistakes: tuple[str, ...]


def log_format(environment: Mapping[str, str]) -> LogFormat:
    wanted = environment.get(LOG_FORMAT, "").strip().lower()
    if not wanted:
        return format_for_this_terminal()
    try:
        return LogFormat(wanted)
    except ValueError:
        raise ConfigError(
            f"{LOG_FORMAT} is neither json nor text.", solution=f"Set {LOG_FORMAT} to json or text, or unset it."
        ) from None


def overrides(environment: Mapping[str, str], model: type[BaseModel], data: Mapping[str, Any]) -> Overridden:
    merged: dict[str, Any] = copy.deepcopy(dict(data))
    used: list[Variable] = []
    mistakes: list[str] = []
    known = _known_variables(model, data)
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in RESERVED or name.startswith(_FOR_TESTS):
            continue
        path = known.get(name) or _further_option(name, data)
        if path is None:
            near = closest(name, [*known, *RESERVED])
            mistakes.append(printable(f"unknown variable {name}{f'; did you mean {near}?' if near else ''}"))
            continue
        try:
            value = _value(environment[name], path, model)
        except ValueError:
            mistakes.append(f"{name}: must be a JSON object of strings")
            continue
        _put(merged, path, value)
        used.append(Variable(name, ".".join(path)))
    return Overridden(merged, tuple(used), tuple(mistakes))


def forget_settings(environment: MutableMapping[str, str]) -> None:
    """Takes out what is read by now: a process that is started from here on, such as Spark's JVM, has no use for it."""
    for name in list(environment):
        if name.startswith(PREFIX) and name not in RESERVED and not name.startswith(_FOR_TESTS):
            del environment[name]


def variable_name(path: tuple[str, ...]) -> str:
    return PREFIX + "__".join(path).upper().replace("-", "_")


def _known_variables(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for section, field in model.model_fields.items():
        inner = section_type(field.annotation)
        keys = as_model(inner)
        if keys is not None:
            paths += [(section, key) for key in keys.model_fields]
            continue
        written = data.get(section)
        named = as_model(get_args(inner)[1]) if get_origin(inner) is dict else None
        if named is not None and isinstance(written, Mapping):
            for name, options in written.items():
                keys_here = {*named.model_fields, *(options if isinstance(options, Mapping) else ())}
                paths += [(section, name, key) for key in sorted(keys_here)]
    return {variable_name(path): path for path in paths}


def _further_option(name: str, data: Mapping[str, Any]) -> tuple[str, ...] | None:
    """An option of a destination that the file names: whether it exists, the destination decides."""
    destinations = data.get("destinations")
    if not isinstance(destinations, Mapping):
        return None
    for destination in destinations:
        prefix = variable_name(("destinations", destination)) + "__"
        option = name.removeprefix(prefix)
        if option not in (name, ""):
            return ("destinations", destination, *option.lower().split("__"))
    return None


def _value(text: str, path: tuple[str, ...], model: type[BaseModel]) -> str | dict[str, str]:
    inner = section_type(model.model_fields[path[0]].annotation)
    section = as_model(get_args(inner)[1]) if get_origin(inner) is dict else as_model(inner)
    field = section.model_fields.get(path[-1]) if section is not None else None
    if field is None or get_origin(field.annotation) is not dict:
        return text
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 -- one kind of mistake, one kind of error
    return value


def _put(data: dict[str, Any], path: tuple[str, ...], value: str | dict[str, str]) -> None:
    for step in path[:-1]:
        inner = data.setdefault(step, {})
        if not isinstance(inner, dict):
            return  # the file has a value where a section must be; that mistake is reported
        data = inner
    before = data.get(path[-1])
    data[path[-1]] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
