"""The promises of the protocol over every small history, over random long ones, and over none of its rules.

`make test` explores for seconds, `make test-model` for PENSTOCK_TEST_MODEL_SECONDS each; PENSTOCK_TEST_SEED begins
random walks elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.model import scopes
from tests.model.defects import DEFECTS, Defect
from tests.model.explorer import Explored, breadth_first, shortened, walks
from tests.model.small_servers import small_servers
from tests.model.world import LEVEL, Scope, Step, World

SECONDS = float(os.environ.get("PENSTOCK_TEST_MODEL_SECONDS", "4"))
SEED = int(os.environ.get("PENSTOCK_TEST_SEED", "0"))
_LENGTH = 90
_DEEP = 60
_PATIENCE = 20.0
"""Seconds of CPU in which a defect must be found; nearly all take less than one."""

COMMITTED: tuple[Step, ...] = (("commit", "update a"), ("read", ""), ("cut", ""))


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_servers():
        yield


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", scopes.SMALL)
def test_every_small_history_keeps_all_promises(name: str, record_property: pytest.RecordProperty) -> None:
    scope, prologue = scopes.SMALL[name]

    explored = breadth_first(scope, _DEEP, SECONDS, prologue)

    _tell(explored, record_property)
    assert explored.found is None, str(explored.found)


@pytest.mark.timeout(3600)
def test_long_random_histories_keep_all_promises(record_property: pytest.RecordProperty) -> None:
    explored = walks(scopes.ALL, range(SEED, SEED + 10**9), _LENGTH, 1.5 * SECONDS)

    _tell(explored, record_property)
    assert explored.found is None, str(shortened(explored.found))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_deliberate_defect_is_found(defect: Defect) -> None:
    with defect.made():
        if defect.prologue:
            explored = breadth_first(defect.scopes[0], _DEEP, _PATIENCE, defect.prologue)
        else:
            explored = walks(list(defect.scopes), range(10**9), _LENGTH, _PATIENCE)

    assert explored.found is not None


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        pytest.param(
            scopes.TOLD,
            (
                *(LEVEL, *COMMITTED, ("take", "0"), ("apply taken over", "0")),
                *(*COMMITTED, ("take", "0"), ("tell", "0"), ("take", "1"), ("tell", "1"), ("acknowledge",)),
                *(*COMMITTED, ("take", "1"), ("tell", "1"), ("thawed tell", "0"), ("acknowledge",)),
            ),
            id="a frozen apply tells what it had before",
        ),
        pytest.param(
            scopes.TOLD,
            (
                *(LEVEL, *2 * (("other WAL",), ("keepalive", ""), ("cut", ""))),
                *(("take", "0"), ("tell", "0"), ("take", "1"), ("tell", "1"), ("acknowledge",)),
                *(("apply crashes", "0"), ("apply starts", "0"), ("take one", "0"), ("tell", "0")),
                *(*COMMITTED, ("take", "1"), ("tell", "1"), ("acknowledge",)),
            ),
            id="an apply that starts again tells empty intervals once more",
        ),
        pytest.param(
            scopes.TOLD,
            (
                *(LEVEL, *COMMITTED, *COMMITTED, ("take", "1"), ("tell", "1")),
                *(("take one", "0"), ("tell", "0"), ("acknowledge",)),
                *(("crash",), ("start",), ("check",), ("open",), ("acknowledge",)),
            ),
            id="capture starts again while one destination is ahead",
        ),
        pytest.param(
            scopes.DESTINATIONS,
            (
                *(LEVEL, ("commit", "update a, insert b"), ("read", ""), ("read", ""), ("cut", "")),
                *(("take and die", "0", "1"), *COMMITTED, ("apply starts", "0"), ("take", "0"), ("tell", "0")),
            ),
            id="a destination passes the table that a crash left ahead",
        ),
    ],
)
def test_what_the_model_found_once_stays_mended(scope: Scope, steps: tuple[Step, ...]) -> None:
    world = World(scope)

    for step in steps:
        assert step == LEVEL or step in world.steps()
        world.do(step)

    world.settle()


def _tell(explored: Explored, record_property: pytest.RecordProperty) -> None:
    record_property("explored", repr(explored))
    print(explored)  # noqa: T201 -- shown with -s, and where the test fails
