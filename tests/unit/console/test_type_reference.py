from __future__ import annotations

from console.type_reference import TARGET, reference
from schemas.pg_types.registry import SCALARS


def test_the_page_of_types_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == reference(), "run `python -m console.type_reference`"


def test_the_page_has_every_type_once() -> None:
    page = reference().partition("## Arrays")[0]

    assert [name for name in (known.name for known in SCALARS) if page.count(f"\n| `{name}` | ") != 1] == []
