"""The statements of docs/how-to/grant-rights.md, with the names of a test."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "grant-rights.md"
PASSWORD = "change-me"  # noqa: S105 -- as the page has it


def granted(heading: str, **names: str) -> list[str]:
    """What the page has under a heading; `names`: the word of the page, and what stands for it."""
    block = re.compile(rf"^## {heading}\n.*?```sql\n(.*?)```", re.DOTALL | re.MULTILINE)
    found = block.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    text = found[1]
    for word, name in names.items():
        text = re.sub(rf"\b{word}\b", name, text)
    return [statement.strip() for statement in text.split(";") if statement.strip()]
