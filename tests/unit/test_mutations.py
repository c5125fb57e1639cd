"""The list of mutations is about the code as it is; `make test-mutations` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.defects import DEFECTS
from tests.mutations.mutation import Mutation
from tests.mutations.page import PAGE, rendered
from tests.mutations.promises import MODEL, MUTATIONS

ROOT = Path(__file__).parents[2]
PROMISES = range(1, 8)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_a_mutation_has_one_place_and_a_test(mutation: Mutation) -> None:
    path, _, name = mutation.test.partition("::")

    assert mutation.places() == 1, f"{mutation.file} has another text now: write the mutation anew"
    assert f"def {name.partition('[')[0]}" in (ROOT / path).read_text()


def test_every_promise_is_broken_by_three_mutations_at_least() -> None:
    assert [promise for promise in PROMISES if sum(each.promise == promise for each in MUTATIONS) < 3] == []


def test_every_defect_of_the_model_is_listed_with_its_promise() -> None:
    assert set(MODEL) == {defect.name for defect in DEFECTS}


def test_the_page_has_every_mutation() -> None:
    page = (ROOT / PAGE).read_text()

    assert rendered(page) == page, "run `python -m tests.mutations --page`"
