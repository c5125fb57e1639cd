from __future__ import annotations

from console.reference import TARGET, reference


def test_the_reference_page_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == reference(), "run `python -m console.reference`"
