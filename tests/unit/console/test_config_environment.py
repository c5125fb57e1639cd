from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from console.config import Config, load
from console.environment import forget_settings
from schemas.errors import ConfigError

SHOP = """
[pipeline]
name = "shop"
[source]
dsn = "dbname=shop"
publication = "shop_pub"
[kafka]
bootstrap_servers = "broker:9092"
[kafka.client]
"security.protocol" = "SASL_SSL"
[destinations.lake]
type = "duckdb"
path = "shop.duckdb"
"""


def loaded(folder: Path, environment: dict[str, str], text: str = SHOP) -> Config:
    path = folder / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment)


def test_a_variable_goes_before_the_file(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "PENSTOCK_SOURCE__DSN": "dbname=other",
            "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": "elsewhere:9092",
            "PENSTOCK_CAPTURE__COPY_WORKERS": "9",
            "PENSTOCK_CAPTURE__IDLE_INTERVAL": "5m",
        },
    )

    assert config.source.dsn.get_secret_value() == "dbname=other"
    assert config.kafka.bootstrap_servers == "elsewhere:9092"
    assert config.settings.capture.copy_workers == 9
    assert config.settings.capture.idle_interval == timedelta(minutes=5)


def test_a_section_that_the_file_lacks_may_come_from_variables(tmp_path: Path) -> None:
    text = SHOP.replace('dsn = "dbname=shop"\n', "").replace('[kafka]\nbootstrap_servers = "broker:9092"\n', "")
    text = text.replace('[kafka.client]\n"security.protocol" = "SASL_SSL"\n', "")

    config = loaded(
        tmp_path, {"PENSTOCK_SOURCE__DSN": "dbname=x", "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": "here:9092"}, text
    )

    assert config.kafka.bootstrap_servers == "here:9092"


def test_options_of_a_destination_may_come_from_variables(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, {"PENSTOCK_DESTINATIONS__LAKE__PATH": "/data/x.duckdb", "PENSTOCK_DESTINATIONS__LAKE__MEMORY": "1GB"}
    )

    (lake,) = config.destinations.values()
    assert lake.options == {"path": "/data/x.duckdb", "memory": "1GB"}


def test_settings_with_dots_come_as_json_and_are_laid_over_the_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"PENSTOCK_KAFKA__CLIENT": '{"sasl.password": "x"}'})

    assert config.kafka.client == {"security.protocol": "SASL_SSL", "sasl.password": "x"}


def test_an_unknown_variable_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"PENSTOCK_SOURCE__DNS": "dbname=secret", "PENSTOCK_NONSENSE": "1"})

    assert "unknown variable PENSTOCK_SOURCE__DNS; did you mean PENSTOCK_SOURCE__DSN?" in caught.value.reason
    assert "unknown variable PENSTOCK_NONSENSE" in caught.value.reason
    assert "secret" not in caught.value.reason


def test_reserved_and_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    loaded(
        tmp_path,
        {
            "PENSTOCK_STACK": "native",
            "PENSTOCK_IVY_SETTINGS": "x.xml",
            "PENSTOCK_LOG_FORMAT": "json",
            "PENSTOCK_TEST_SEED": "1",
            "PATH": "/bin",
        },
    )


def test_a_mistake_in_a_variable_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"PENSTOCK_CAPTURE__COPY_WORKERS": "many"})

    assert "capture.copy_workers: must be a valid integer" in caught.value.reason
    assert "(set by PENSTOCK_CAPTURE__COPY_WORKERS)" in caught.value.reason
    assert "many" not in caught.value.reason


def test_settings_that_were_read_are_taken_out_and_nothing_else() -> None:
    environment = {"PENSTOCK_SOURCE__DSN": "x", "PENSTOCK_KERNEL": "y", "PENSTOCK_TEST_SEED": "1", "PATH": "z"}

    forget_settings(environment)

    assert environment == {"PENSTOCK_KERNEL": "y", "PENSTOCK_TEST_SEED": "1", "PATH": "z"}
