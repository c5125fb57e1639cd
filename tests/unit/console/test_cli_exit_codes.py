from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from console.cli import app

BROKEN = """
[pipeline]
name = "shop"
[source]
dsn = "postgresql://shop:s3cr3t-word@db.example/shop"
publicaton = "shop_pub"
[destinations.lake]
type = "duckdb"
path = "shop.duckdb"
"""


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app(), arguments)


def test_help_lists_every_verb() -> None:
    result = penstock("--help")

    assert result.exit_code == 0
    verbs = (
        *("demo", "run", "capture", "adopt", "apply", "replay", "status", "doctor", "wait", "resync", "acknowledge"),
        "setup-source",
    )
    assert [verb for verb in verbs if verb not in result.stdout] == []


def test_the_version_is_printed() -> None:
    result = penstock("--version")

    assert result.exit_code == 0
    assert result.stdout.startswith("penstock 0.")


@pytest.mark.parametrize("verb", ["run", "capture", "apply", "status", "doctor"])
def test_a_missing_file_ends_each_verb_with_reason_and_solution(verb: str, tmp_path: Path) -> None:
    result = penstock(verb, "-c", str(tmp_path / "penstock.toml"))

    assert result.exit_code == 1
    assert result.stderr.startswith("error: There is no configuration file")
    assert "\nsolution: Write it" in result.stderr


def test_run_refuses_a_pipeline_whose_capture_ends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(BROKEN.replace("publicaton", "publication") + '[copies]\nmode = "copy only"\n')

    result = penstock("run", "-c", str(path))

    assert result.exit_code == 1
    assert "solution: Run `penstock capture`" in result.stderr


def test_an_unknown_key_is_told_with_its_suggestion_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(BROKEN)

    result = penstock("status", "-c", str(path))

    assert result.exit_code == 1
    assert "unknown key source.publicaton; did you mean publication?" in result.stderr
    assert "s3cr3t-word" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["statsu"],
        ["status", "--no-such-option"],
        ["wait"],
        ["wait", "--lsn", "not an lsn"],
        ["resync"],
        ["demo", "--seconds", "-1"],
    ],
)
def test_wrong_usage_has_exit_code_2(arguments: list[str]) -> None:
    assert penstock(*arguments).exit_code == 2


def test_a_failure_prints_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console.cli", "status", "-c", str(tmp_path / "penstock.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")


def imported(modules: set[str], by: str) -> str:
    code = f"import sys, console.cli; {by}; print(sorted({modules!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_help_imports_neither_spark_nor_duckdb() -> None:
    assert imported({"pyspark", "duckdb", "pandas", "pyarrow"}, by="console.cli.app()") == "[]"


def test_a_verb_imports_no_other_verb() -> None:
    others = {f"console.commands.{verb}" for verb in ("apply", "demo", "doctor", "run", "status")}

    assert imported(others, by="console.cli.app(['capture', '-c', 'doctor'])") == "[]"


WHOLE = BROKEN.replace("publicaton", "publication")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bounded"], "the policy bounded needs a bound"),
        (["kafka", "--max-wal", "1GB"], "max_wal does nothing with the policy kafka"),
        (["configured", "--max-wal", "1GB"], "--max-wal does nothing"),
        (["bounded", "--max-wal", "much"], "acknowledge.max_wal: must be a size"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_before_anybody_is_asked(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(WHOLE)

    result = penstock("acknowledge", *arguments, "-c", str(path))

    assert result.exit_code == 1
    assert told in result.stderr
    assert "solution: " in result.stderr


def test_an_unknown_policy_is_wrong_usage(tmp_path: Path) -> None:
    assert penstock("acknowledge", "everything", "-c", str(tmp_path / "penstock.toml")).exit_code == 2


@pytest.mark.parametrize("until", ["yesterday", "2026-11-17 10:00:00", "16/XYZ"])
def test_replay_refuses_an_end_that_is_not_clear(until: str, tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"

    result = penstock("replay", "-c", str(path), "--destination", "lake", "--until", until)

    assert result.exit_code == 2
    assert "2026-11-17" in result.stderr


def test_replay_up_to_a_moment_refuses_a_destination_that_apply_would_take_on(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(BROKEN.replace("publicaton", "publication"))

    result = penstock("replay", "-c", str(path), "--destination", "lake", "--until", "16/B374D848")

    assert result.exit_code == 1
    assert "destinations.lake is a live destination" in result.stderr
    assert 'solution: Write filled_by = "replay"' in result.stderr
