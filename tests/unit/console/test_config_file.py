from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from apply_spark.config import SparkRuntime
from console.commands.run import start_stages
from console.config import Config, load
from console.stages import Stages
from schemas.acknowledge import Policy
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName
from stores.schema_registry import SchemaRegistry

SHOP = """
[pipeline]
name = "shop"

[source]
dsn = "postgresql://shop:s3cr3t-word@db.example:5432/shop"
publication = "shop_pub"

[kafka]
bootstrap_servers = "broker:9092"

[destinations.lake]
type = "duckdb"
path = "shop.duckdb"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str, **environment: str) -> Config:
    return load(written(folder, text), environment)


def refused(folder: Path, text: str, **environment: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **environment)
    return caught.value


def started(config: Config) -> list[str]:
    """What `penstock run` starts."""

    class Noted(Stages):
        names: ClassVar[list[str]] = []

        def start(self, name: str, arguments: list[str]) -> None:
            self.names.append(name)
            assert arguments[0] == name.split(maxsplit=1)[0]

    noted = Noted({})
    start_stages(noted, config)
    return noted.names


def test_the_smallest_file_is_enough(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP)

    assert config.pipeline == "shop"
    assert config.source.publication == "shop_pub"
    assert config.kafka.bootstrap_servers == "broker:9092"
    assert list(config.destinations) == ["lake"]


def test_capture_gets_its_own_section_and_the_names_of_the_destinations(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP + '[acknowledge]\npolicy = "kafka"\n[capture]\ncopy_workers = 7\n')

    capture = config.capture_config()

    assert capture.pipeline == "shop"
    assert capture.tuning.copy_workers == 7
    assert capture.acknowledge.policy is Policy.KAFKA
    assert capture.destinations == ("lake",)


def test_state_lies_beside_the_file_unless_it_is_named(tmp_path: Path) -> None:
    assert loaded(tmp_path, SHOP).capture_config().state_path == str(tmp_path / ".penstock" / "shop.sqlite")
    named = loaded(tmp_path, SHOP + '[state]\npath = "memory.sqlite"\n')
    assert named.capture_config().state_path == str(tmp_path / "memory.sqlite")


def test_apply_gets_one_destination_whose_relative_path_lies_beside_the_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP + '[apply]\ninterval_bytes = "1GB"\n')
    runtime = SparkRuntime(jars=("/jars/a.jar",), java_home="/java")

    apply = config.apply_config(DestinationName("lake"), runtime)

    assert apply.destination.type == "duckdb"
    assert apply.destination.options == {"path": str(tmp_path / "shop.duckdb")}
    assert apply.tuning.interval_bytes == 1_000_000_000
    assert apply.runtime == runtime


@pytest.mark.parametrize(
    ("written_as", "meant"),
    [
        ('"500ms"', timedelta(milliseconds=500)),
        ('"2s"', timedelta(seconds=2)),
        ('"5m"', timedelta(minutes=5)),
        ('"1.5h"', timedelta(minutes=90)),
        ('"7d"', timedelta(days=7)),
        ('"PT2S"', timedelta(seconds=2)),
    ],
)
def test_durations_have_units(tmp_path: Path, written_as: str, meant: timedelta) -> None:
    config = loaded(tmp_path, SHOP + f"[capture]\nidle_interval = {written_as}\n")

    assert config.settings.capture.idle_interval == meant


def test_a_section_below_kafka_may_hold_durations_and_sizes_too(tmp_path: Path) -> None:
    text = SHOP.replace("[destinations", 'retention = "3d"\nmax_record = "20MB"\n[destinations')

    config = loaded(tmp_path, text)

    assert config.kafka.retention == timedelta(days=3)
    assert config.kafka.max_record == 20_000_000


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    error = refused(tmp_path, SHOP.replace("publication =", "publicaton ="))

    assert "unknown key source.publicaton; did you mean publication?" in error.reason
    assert str(tmp_path / "penstock.toml") in error.reason


def test_a_key_in_the_wrong_section_is_sent_to_the_right_one(tmp_path: Path) -> None:
    error = refused(tmp_path, SHOP + "[acknowledge]\ncopy_workers = 3\n")

    assert "unknown key acknowledge.copy_workers; did you mean capture.copy_workers?" in error.reason


def test_an_unknown_section_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    error = refused(tmp_path, SHOP + "[aply]\n")

    assert "unknown key aply; did you mean apply?" in error.reason


def test_every_mistake_is_reported_in_one_go(tmp_path: Path) -> None:
    text = """
    [pipeline]
    name = "Shop"
    [source]
    dns = "postgresql://x"
    publication = "p"
    [capture]
    copy_workers = 0
    idle_interval = "soon"
    [apply]
    interval_bytes = "20 bananas"
    """

    error = refused(tmp_path, text)

    assert "has 6 mistakes" in error.reason
    assert "pipeline.name: 'Shop' is not a pipeline name" in error.reason
    assert "missing key source.dsn" in error.reason
    assert "unknown key source.dns; did you mean dsn?" in error.reason
    assert "capture.copy_workers: must be greater than or equal to 1" in error.reason
    assert "capture.idle_interval: must be a duration, such as 500ms" in error.reason
    assert "apply.interval_bytes: must be a size, such as 64MB" in error.reason


def test_a_destination_type_that_is_not_installed_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    error = refused(tmp_path, SHOP.replace('"duckdb"', '"duckbd"'))

    assert (
        "destinations.lake.type: no destination of the type duckbd is installed; did you mean duckdb?" in error.reason
    )


def test_bad_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, '[pipeline]\nname = "shop"\n[source\n')

    assert "is not TOML" in error.reason
    assert "line 3" in error.reason


def test_a_missing_file_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "nothing.toml", {})

    assert str(tmp_path / "nothing.toml") in caught.value.reason
    assert 'publication = "shop_pub"' in caught.value.solution


def test_no_password_is_ever_printed(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, SHOP.replace("[destinations", '[kafka.client]\n"sasl.password" = "s3cr3t-word"\n[destinations')
    )

    printed = f"{config!r} {config} {config.capture_config()!r} {config.kafka!r}"

    assert "s3cr3t-word" not in printed


def test_no_value_is_repeated_when_a_file_is_refused(tmp_path: Path) -> None:
    text = SHOP.replace('publication = "shop_pub"', "publication = 5").replace(
        "[kafka]", "[kafka]\nreplication_factor = 's3cr3t-word'"
    )

    error = refused(tmp_path, text)

    assert "s3cr3t-word" not in error.reason + error.solution


@pytest.mark.parametrize("address", ["registry:8081", "ftp://registry", "http:///subjects", "https://re gistry"])
def test_a_schema_registry_that_is_no_address_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    error = refused(tmp_path, SHOP.replace("[destinations", f'schema_registry = "{address}"\n[destinations'))

    assert "kafka.schema_registry" in error.reason
    assert "http://" in error.reason
    assert address not in f"{error.reason} {error.solution}"


def test_the_password_of_a_schema_registry_is_not_printed(tmp_path: Path) -> None:
    address = "https://shop:s3cr3t-word@registry.example/apis/ccompat/v7"
    config = loaded(tmp_path, SHOP, PENSTOCK_KAFKA__SCHEMA_REGISTRY=address)

    assert "s3cr3t-word" not in f"{config!r} {config.kafka!r} {config.settings!r}"
    assert config.kafka.schema_registry is not None
    assert SchemaRegistry(config.kafka.schema_registry).address == "https://registry.example/apis/ccompat/v7"


def test_without_kafka_and_without_a_running_broker_the_solution_is_to_run_one(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP.replace('[kafka]\nbootstrap_servers = "broker:9092"', ""))

    with pytest.raises(ConfigError) as caught:
        config.capture_config()

    assert "no embedded broker runs" in caught.value.reason
    assert "penstock run -c" in caught.value.solution


def test_the_only_destination_needs_no_name(tmp_path: Path) -> None:
    assert loaded(tmp_path, SHOP).destination_named(None) == "lake"


def test_one_of_several_destinations_must_be_named(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP + '[destinations.screen]\ntype = "stdout"\n')

    with pytest.raises(ConfigError, match="has 2 destinations"):
        config.destination_named(None)


def test_a_misspelt_destination_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no destination laek; did you mean lake"):
        loaded(tmp_path, SHOP).destination_named("laek")


def test_the_policy_bounded_has_its_bound(tmp_path: Path) -> None:
    config = loaded(tmp_path, SHOP + '[acknowledge]\npolicy = "bounded"\nmax_wal = "20GB"\n')

    acknowledge = config.capture_config().acknowledge

    assert (acknowledge.policy, acknowledge.max_wal) == (Policy.BOUNDED, 20_000_000_000)
    assert str(acknowledge) == "bounded, at most 20.0GB of WAL"


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ('policy = "bounded"', 'acknowledge: the policy bounded needs a bound; add max_wal, such as "20GB"'),
        ('max_wal = "1GB"', "acknowledge: max_wal does nothing with the policy destinations; did you mean bounded?"),
        ('policy = "kafka"\nmax_wal = "1GB"', "max_wal does nothing with the policy kafka; did you mean bounded?"),
        ('policy = "bounded"\nmax_wal = "much"', "acknowledge.max_wal: must be a size, such as 64MB, 20GB or 1GiB"),
        ('policy = "bounded"\nmax_wal = "0B"', "acknowledge.max_wal: must be greater than 0"),
    ],
)
def test_a_bound_and_a_policy_that_do_not_agree_are_refused(tmp_path: Path, section: str, told: str) -> None:
    assert told in refused(tmp_path, f"{SHOP}[acknowledge]\n{section}\n").reason


def test_the_bound_may_come_from_the_environment(tmp_path: Path) -> None:
    text = SHOP + '[acknowledge]\npolicy = "bounded"\n'

    assert loaded(tmp_path, text, PENSTOCK_ACKNOWLEDGE__MAX_WAL="64MiB").settings.acknowledge.max_wal == 64 * 1024**2


def test_a_destination_that_replay_fills_is_neither_started_nor_waited_for(tmp_path: Path) -> None:
    past = '[destinations.past]\ntype = "duckdb"\npath = "past.duckdb"\nfilled_by = "replay"\n'

    config = loaded(tmp_path, SHOP + past)

    assert list(config.destinations) == ["lake", "past"]
    assert config.live_destinations == ("lake",)
    assert config.capture_config().destinations == ("lake",)
    assert config.live_destination_named(None) == "lake"
    assert started(config) == ["capture", "apply lake"]
    assert "filled_by" not in config.destinations[DestinationName("past")].options
    with pytest.raises(ConfigError, match=r"destinations\.past is filled by replay"):
        config.live_destination_named("past")


ADOPTED = SHOP.replace("[source]", "[adopt]").replace(
    'dsn = "postgresql://shop:s3cr3t-word@db.example:5432/shop"\npublication = "shop_pub"',
    'topics = ["debezium.public.*", "!debezium.public.log"]\nschema_registry = "http://registry.example/"',
)


def test_topics_of_debezium_stand_in_the_place_of_a_source(tmp_path: Path) -> None:
    config = loaded(tmp_path, ADOPTED)

    assert config.adopt_config().adopt.topics == ("debezium.public.*", "!debezium.public.log")
    assert started(config) == ["adopt", "apply lake"]
    with pytest.raises(ConfigError, match=r"no \[source\]"):
        config.capture_config()


def test_a_pipeline_has_a_source_or_adopts_and_not_both(tmp_path: Path) -> None:
    source = '[source]\ndsn = "postgresql://db.example/shop"\npublication = "shop_pub"\n'

    assert "source, adopt: one pipeline has one of them" in refused(tmp_path, ADOPTED + source).reason
    assert "missing key source" in refused(tmp_path, '[pipeline]\nname = "shop"\n').reason
    with pytest.raises(ConfigError, match=r"no \[adopt\]"):
        loaded(tmp_path, SHOP).adopt_config()
