"""The page made from a result, the result as a file, and what a run is held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.latency import Commit, Probe
from benchmarks.measurement import Measurement
from benchmarks.report import rendered
from benchmarks.result import Result, committed
from benchmarks.sizes import FULL, QUICK
from benchmarks.targets import verdicts
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, LogId
from schemas.lsn import Lsn

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
RESULT = Result(
    commit="0123456789ab",
    started=1_760_000_000.0,
    machine={
        "cpu": "a CPU",
        "cores": 2,
        "memory_bytes": 8 * 2**30,
        "system": "Linux",
        "load_at_start": [0.1, 0.2, 0.3],
    },
    versions={"python": "3.11"},
    scale=1.0,
    cases={
        "limit/copy_workers": [Measurement(1_000_000, 2.0), Measurement(1_000_000, 2.5)],
        "copy/markers": [Measurement(1_000_000, 4.0, {"copy workers": 3.0}), Measurement(1_000_000, 4.0)],
        "reader/tcp/blocking/backlog": [Measurement(1_500_000, 15.0, {"client": 6.0, "walsender": 15.0})],
        "drain/tcp/backlog": [Measurement(1_500_000, 20.0, {"capture": 9.0}, {"capture": 90_000_000})],
        "drain/tcp/inserts": [Measurement(1_000_000, 10.0, {"capture": 4.0})],
        "drain/tcp/one_row": [Measurement(200_000, 5.0, {"capture": 4.0})],
        "apply/tiny": [Measurement(10, 10.0, figures={"interval": 0.4, "emitted_to_applied_p50": 0.6})],
        "latency/1000": [
            Measurement(20_000, 20.0, figures={"p50": 1.0, "p95": 2.0, "p99": 5.0, "worst": 6.0, "achieved": 1000.0})
        ],
        "memory/one_transaction": [Measurement(1_000_000, 9.0, memory={"capture": 80_000_000})],
    },
)


def block(name: str) -> str:
    return f"before\n<!-- {name}: made by `make bench` -->\nold\n<!-- end -->\nafter"


def test_a_block_is_made_anew_and_what_is_around_it_stays() -> None:
    text = rendered(block("drain"), RESULT, ["drain", "latency"])

    assert text.startswith("before\n<!-- drain: made by `make bench` -->\n")
    assert text.endswith("<!-- end -->\nafter")
    assert "old" not in text
    assert "| **capture to Kafka, tcp** | 75.0k (75.0k) | capture 6.0 |" in text
    assert "![drain](images/drain.png)" in text
    assert "latency.png" not in text


def test_rendering_twice_gives_the_same_page() -> None:
    once = rendered(PAGE.read_text(), RESULT)

    assert rendered(once, RESULT) == once


def test_every_block_of_the_page_can_be_made_even_from_an_empty_result() -> None:
    text = rendered(PAGE.read_text(), replace(RESULT, cases={}))

    assert text.count("<!-- end -->") == PAGE.read_text().count("made by `make bench` -->")


def test_a_block_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(KeyError):
        rendered(block("unheard_of"), RESULT)


def test_a_scaled_run_says_so_on_the_page() -> None:
    assert "not a full run" in rendered(block("run"), replace(RESULT, scale=0.05))
    assert "not a full run" not in rendered(block("run"), RESULT)


def test_targets_are_judged_by_the_median() -> None:
    found = {verdict.name: verdict for verdict in verdicts(RESULT.cases)}

    assert not found["drain/tcp/backlog : best bare reader"].met
    assert found["copy/markers : COPY discarded, as many connections"].met
    assert found["capture's CPU a change, inserts, tcp, us"].met
    assert not found["capture's CPU a one-row transaction, tcp, us"].met
    assert found["commit to visible at 1,000/s, p50, s"].met
    assert not found["commit to visible at 1,000/s, p99, s"].met


def test_a_result_comes_back_from_its_file(tmp_path: Path) -> None:
    RESULT.save(tmp_path / "a.json")

    assert Result.load(tmp_path / "a.json") == RESULT


def test_the_newest_result_of_a_folder_is_the_committed_one(tmp_path: Path) -> None:
    RESULT.save(tmp_path / "z.json")
    replace(RESULT, started=RESULT.started + 1, commit="newer").with_quick(RESULT).save(tmp_path / "a.json")

    newest = committed(tmp_path)

    assert newest is not None
    assert newest.commit == "newer"
    assert newest.quick["drain/tcp/backlog : best bare reader"] == 0.75
    assert committed(tmp_path / "none.json") is None


def test_a_reader_that_sees_less_than_was_claimed_before_is_a_contradiction() -> None:
    commits = [Commit(1.0, Lsn(100), 10), Commit(2.0, Lsn(200), 20)]
    told = [Feedback(DestinationName("lake"), LogId("log"), Lsn(200), 0, 3_000_000)]

    assert Probe([(2.9, 0), (3.1, 20), (3.2, 25)]).contradictions(commits, told) == 0
    assert Probe([(3.1, 19)]).contradictions(commits, told) == 1


def test_scaling_keeps_every_case_and_adds_none() -> None:
    small, quick = FULL.scaled(0.001), QUICK.scaled(0.5)

    assert small.copy_rows == 2_000
    assert small.wide_rows == 50
    assert small.rounds == FULL.rounds
    assert quick.wide_rows == 0
