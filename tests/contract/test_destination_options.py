"""How a destination is chosen and configured: mistakes are named by key, never by value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from apply_spark.config import DestinationConfig
from apply_spark.destinations.parquet_options import ParquetOptions
from apply_spark.destinations.registry import connector, installed, make_destination
from apply_spark.errors import DestinationNotInstalled
from schemas.errors import ConfigError
from tests.contract.destination_places import LAKE, NAMES


@pytest.mark.parametrize("kind", sorted({*NAMES, "stdout"}))
def test_an_unknown_option_is_refused_and_named(kind: str, tmp_path: Path) -> None:
    config = DestinationConfig.model_validate({"type": kind, "path": str(tmp_path / "x"), "colour": "red"})

    with pytest.raises(ConfigError, match=r"destinations\.lake\.colour") as caught:
        make_destination(LAKE, config)

    assert "red" not in caught.value.reason


def test_an_unknown_type_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'duckdb'") as caught:
        make_destination(LAKE, DestinationConfig(type="duckbd"))

    assert all(name in caught.value.solution for name in NAMES)


def test_every_place_of_this_suite_is_an_installed_destination() -> None:
    assert set(NAMES) <= set(installed())


def test_a_destination_whose_client_is_missing_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "apply_spark.destinations.ducklake")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    config = DestinationConfig(type="ducklake")

    for asked in (make_destination, connector):
        with pytest.raises(DestinationNotInstalled, match="known but not installed: module duckdb") as caught:
            asked(LAKE, config)

        assert caught.value.solution == "Run `pip install 'penstock[ducklake]'`."


def test_a_log_on_s3_whose_client_is_missing_names_the_extra_and_one_on_a_disk_does_not_need_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "apply_spark.destinations.parquet_s3", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)

    make_destination(LAKE, DestinationConfig.model_validate({"type": "parquet", "path": str(tmp_path)}))
    with pytest.raises(DestinationNotInstalled, match="boto3") as caught:
        make_destination(LAKE, DestinationConfig.model_validate({"type": "parquet", "path": "s3://bucket/log"}))

    assert caught.value.solution == "Run `pip install 'penstock[s3]'`."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": ""}, "path"),
        ({"path": "s3:///log"}, "path names no bucket"),
        ({"path": "gs://bucket/log"}, "must be a folder, or begin with s3://"),
        ({"path": "log", "region": "eu-central-1"}, "region is for a path that begins with s3://"),
        ({"path": "s3://bucket", "secret_access_key": "s3cr3t"}, "given together"),
        ({"path": "s3://bucket", "endpoint": "s3cr3t:9000"}, "endpoint"),
        ({"path": "s3://bucket", "addressing": "s3cr3t"}, "addressing"),
    ],
    ids=repr,
)
def test_options_of_a_log_that_do_not_go_together_are_refused_without_their_values(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        make_destination(LAKE, DestinationConfig.model_validate({"type": "parquet", **options}))

    assert "s3cr3t" not in caught.value.reason


@pytest.mark.parametrize(
    ("path", "bucket", "prefix"),
    [
        ("s3://shop", "shop", ""),
        ("s3://shop/", "shop", ""),
        ("s3://shop/a log//of/ours/", "shop", "a log/of/ours/"),
    ],
)
def test_an_address_on_s3_is_a_bucket_and_a_prefix(path: str, bucket: str, prefix: str) -> None:
    options = ParquetOptions(path=path)

    assert (options.bucket, options.prefix) == (bucket, prefix)
