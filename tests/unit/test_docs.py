"""The pages point at files and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_TEST = re.compile(r"`(test_\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    dead = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert dead == []


def test_every_promise_names_tests_that_exist() -> None:
    lines = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    lists = [line for line in lines if line.startswith(("- [tests/", "- [destination_contract/"))]

    missing = [
        (test, link)
        for line in lists
        for link in _LINK.findall(line)
        for test in _TEST.findall(line)
        if f"def {test}(" not in (ROOT / "docs" / link).read_text()
    ]

    assert lists
    assert missing == []
