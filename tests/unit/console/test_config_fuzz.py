"""Whatever stands in the file or in the environment: a configuration, or one ConfigError that names the key. Never
another error, and never a secret."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apply_spark.config import DestinationConfig, SparkRuntime
from apply_spark.destinations.registry import make_destination
from console.config import Config, load
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName

SECRET = "s3cr3t"  # noqa: S105 -- looked for in every message
DESTINATIONS: dict[str, dict[str, Any]] = {
    "clickhouse": {"dsn": f"https://u:{SECRET}@host:8443", "database": "{schema}", "own_database": "penstock"},
    "delta": {"path": "lake"},
    "duckdb": {"path": "lake.duckdb", "lock_timeout": "1s"},
    "ducklake": {"catalog": f"postgres:dbname=x password={SECRET}", "data_path": "files", "lock_timeout": "1s"},
    "iceberg": {"catalog": "rest", "uri": "https://host", "warehouse": "w", "properties": {"credential": SECRET}},
    "memory": {},
    "parquet": {"path": "log"},
    "postgres": {"dsn": f"postgresql://u:{SECRET}@host/db", "lock_timeout": "1s"},
    "stdout": {},
}
VALID: dict[str, Any] = {
    "pipeline": {"name": "shop"},
    "source": {
        "dsn": f"postgresql://shop:{SECRET}@db.example:5432/shop",
        "publication": "shop_pub",
        "tables": ["public.*", "!public.audit"],
        "partial_publish": "allow",
        "origin": "none",
        "failover": "slot",
    },
    "kafka": {
        "bootstrap_servers": "broker:9092",
        "client": {"sasl.username": "shop", "sasl.password": SECRET},
        "schema_registry": f"https://u:{SECRET}@registry:8081",
        "replication_factor": 3,
        "retention": "7d",
        "max_record": "64MB",
        "patience": "1m",
    },
    "acknowledge": {"policy": "bounded", "max_wal": "20GB"},
    "copies": {"mode": "copy and stream", "tables": ["*"]},
    "capture": {"copy_workers": 2, "copy_max_rate": "1MB", "idle_interval": "2s", "metrics_port": 9464},
    "apply": {"master": "local[2]", "interval_bytes": "1GB", "retry_first": "1s", "spark": {"spark.x": SECRET}},
    "state": {"path": "state.sqlite"},
    "destinations": {
        "lake": {
            "type": "duckdb",
            "path": "shop.duckdb",
            "mode": "history",
            "tables": ["*"],
            "rename": {"public": "shop"},
            "columns": {"*.*.email": "hash"},
            "salt": SECRET,
            "on_new_shape_of": {"public.*": "freeze"},
        }
    },
}
HARD = ("999999999999d", "1e9999", "9" * 400, "-5s", "PT", "P1Y", "٣s", "64 bananas", "~nobody-at-all/x", "a\0b", "://")
SCALARS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(HARD),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.booleans(),
    st.datetimes(),
    st.dates(),
    st.times(),
)
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def toml(value: Any) -> str:  # noqa: ANN401 -- whatever TOML can hold
    match value:
        case int():
            return str(value).lower()  # of a bool, too
        case float():
            return repr(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case str():
            plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
            return f'"{"".join(plain)}"'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case _:
            return f"{{{', '.join(f'{toml(key)} = {toml(each)}' for key, each in value.items())}}}"


def written(data: dict[str, Any]) -> str:
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in data.items())


def paths(data: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *below) for below in paths(value))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "penstock.toml"


def loaded(file: Path, text: str, environment: dict[str, str] | None = None) -> Config | ConfigError:
    """All that a command does with a configuration before it opens anything."""
    file.write_text(text, encoding="utf-8")
    found: Config | ConfigError
    try:
        found = load(file, environment or {})
        found.capture_config()
        for name in found.destinations:
            found.apply_config(name, SparkRuntime())
    except ConfigError as error:
        found = error
    told = found.reason + found.solution if isinstance(found, ConfigError) else f"{found!r} {found.settings!r}"
    assert SECRET not in told
    return found


def changed(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """VALID with another value at a place; None: without one."""
    data = copy.deepcopy(VALID)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


def test_what_is_mutated_here_is_a_configuration(file: Path) -> None:
    assert isinstance(loaded(file, written(VALID)), Config)


@settings(max_examples=120)
@given(st.sampled_from(list(paths(VALID))), st.none() | JUNK)
@example(("capture", "idle_interval"), "999999999999d")
@example(("kafka", "retention"), "9" * 400 + "d")
@example(("kafka", "schema_registry"), "http://[::1")
@example(("kafka", "max_record"), 2**80)
@example(("state", "path"), "~nobody-at-all/state")
@example(("destinations", "lake", "path"), "~nobody-at-all/lake")
@example(("destinations", "lake", "path"), "la\0ke")
def test_a_value_that_is_wrong_is_told_by_its_key(file: Path, path: tuple[str, ...], value: object) -> None:
    found = loaded(file, written(changed(path, value)))

    if isinstance(found, ConfigError):
        assert str(file) in found.reason
        assert any(key in found.reason for key in path), found.reason


@settings(max_examples=40)
@given(st.sampled_from([path[:-1] for path in paths(VALID)]), st.text(min_size=1, max_size=12), JUNK)
@example(("source",), "a\nerror: \x1b[2J", 1)
def test_a_key_that_nobody_knows_is_named_and_moves_no_cursor(
    file: Path, section: tuple[str, ...], key: str, value: object
) -> None:
    found = loaded(file, written(changed((*section, key), value)))

    if isinstance(found, ConfigError):
        lines = found.reason.splitlines()
        assert all(line.isprintable() for line in lines), found.reason
        assert all(line.startswith("  - ") for line in lines[1:]), found.reason


@settings(max_examples=60)
@given(st.data())
def test_text_that_is_cut_and_patched_is_read_or_refused(file: Path, data: st.DataObject) -> None:
    text = written(VALID)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))

    loaded(file, text[:start] + data.draw(st.text(max_size=10)) + text[end:])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = " + "9" * 5000, "number"),
        ("a = " + "[" * 100_000, "nested"),
        (".".join("a" * 3000) + " = 1", "nested"),
        ("[source]\ndsn = 'a'\n" + "\x00", "is not TOML"),
    ],
    ids=["a long number", "deep arrays", "deep tables", "a character 0"],
)
def test_text_that_python_itself_stumbles_over_is_refused(file: Path, text: str, told: str) -> None:
    found = loaded(file, text)

    assert isinstance(found, ConfigError)
    assert told in found.reason


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(["SOURCE__DSN", "KAFKA__CLIENT", "CAPTURE__COPY_WORKERS", "DESTINATIONS__LAKE__SALT", "APPLY"])
        | st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=20),
        st.text(max_size=20) | st.sampled_from(['{"a": "b"}', '{"a": 1}', "[" * 5000, "{}", "\udcff"]),
        max_size=3,
    )
)
def test_variables_are_taken_or_refused(file: Path, environment: dict[str, str]) -> None:
    loaded(file, written(VALID), {f"PENSTOCK_{name}": value for name, value in environment.items()})


OPTIONS = [(kind, option) for kind, options in DESTINATIONS.items() for option in ("unknown", *options)]


@settings(max_examples=120)
@given(st.sampled_from(OPTIONS), st.none() | JUNK)
@example(("postgres", "dsn"), f"{SECRET} is my password")
@example(("postgres", "dsn"), "postgresql://[")
@example(("duckdb", "lock_timeout"), "999999999999d")
def test_an_option_that_a_destination_cannot_use_is_told_by_its_key(chosen: tuple[str, str], value: object) -> None:
    kind, option = chosen
    options = {**DESTINATIONS[kind], option: value}
    config = DestinationConfig.model_validate(
        {"type": kind, **{name: each for name, each in options.items() if each is not None}}
    )

    refused: ConfigError | None = None
    try:
        make_destination(DestinationName("lake"), config)
    except ConfigError as error:
        refused = error

    assert refused is None or "destinations.lake" in refused.reason
    assert refused is None or SECRET not in refused.reason + refused.solution
