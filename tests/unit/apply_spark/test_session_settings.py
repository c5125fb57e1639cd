"""What Spark is started with: a user's word, the destination's, and our own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from apply_spark.config import ApplyConfig, ApplyTuning, DestinationConfig, SparkRuntime
from apply_spark.session import _handed_over, session_settings
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName


def settings(runtime: SparkRuntime = SparkRuntime(), **chosen: str) -> dict[str, str]:  # noqa: B008 -- a constant
    return session_settings(
        ApplyConfig(
            pipeline=PipelineName("shop"),
            name=DestinationName("lake"),
            destination=DestinationConfig(type="memory"),
            kafka=KafkaConfig(bootstrap_servers="none:1"),
            tuning=ApplyTuning(spark={f"spark.{name.replace('_', '.')}": value for name, value in chosen.items()}),
            runtime=runtime,
        )
    )


def test_what_a_user_sets_goes_before_the_destination_and_that_before_our_own() -> None:
    found = settings(
        SparkRuntime(settings={"spark.speculation": "destination", "spark.ui.enabled": "destination"}),
        ui_enabled="user",
    )

    assert (found["spark.speculation"], found["spark.ui.enabled"]) == ("destination", "user")
    assert found["spark.sql.caseSensitive"] == "true"


def test_jars_are_added_to_those_of_the_connectors() -> None:
    runtime = SparkRuntime(jars=("kafka.jar", "avro.jar"), settings={"spark.jars": "its.jar"})

    assert settings(runtime, jars="mine.jar,other.jar")["spark.jars"] == "kafka.jar,avro.jar,its.jar,mine.jar,other.jar"
    assert settings(SparkRuntime(jars=("kafka.jar",)))["spark.jars"] == "kafka.jar"


def test_the_java_options_of_the_driver_are_not_those_of_executors() -> None:
    found = settings(SparkRuntime(java_options="-XX:SharedArchiveFile=classes.jsa"), driver_extraJavaOptions="-Xss4m")

    assert found["spark.driver.extraJavaOptions"].endswith(" -XX:SharedArchiveFile=classes.jsa -Xss4m")
    assert [name for name, value in found.items() if "classes.jsa" in value] == ["spark.driver.extraJavaOptions"]


def test_java_is_told_of_one_collector_ours_unless_another_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)

    assert _collectors(settings()) == ["-XX:+UseParallelGC"]
    assert _collectors(settings(driver_extraJavaOptions="-Xss4m -XX:+UseG1GC")) == ["-XX:+UseG1GC"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    assert _collectors(settings()) == []


def _collectors(found: dict[str, str]) -> list[str]:
    return [each for each in found["spark.driver.extraJavaOptions"].split() if each.endswith("GC")]


def test_settings_reach_the_jvm_in_a_file_of_its_user_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    given = {"spark.a": 'quoted "x" \\ = : # \n', "spark.hadoop.key": "s3cr3t ß 🐘"}

    with _handed_over(given):
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        file = Path(arguments.split()[2])
        mode, lines = stat.S_IMODE(file.stat().st_mode), file.read_text(encoding="ascii").splitlines()

    assert arguments == f"--load-spark-defaults --properties-file {file} --verbose pyspark-shell"
    assert mode == 0o600
    assert dict(_read_as_java(line) for line in lines) == given
    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    with _handed_over(given):
        assert os.environ["PYSPARK_SUBMIT_ARGS"].endswith(" pyspark-shell")
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def _read_as_java(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    units = [bytes.fromhex(part.replace("\\u", "")) for part in (key, value)]
    return units[0].decode("utf-16-be"), units[1].decode("utf-16-be")
