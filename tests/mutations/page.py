"""The table of docs/mutations.md, made from the list; the rest of the page is written by hand."""

from __future__ import annotations

from tests.mutations.promises import MODEL, MUTATIONS

PAGE = "docs/mutations.md"
_BEGIN, _END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
_PROMISES = {
    1: "1. Nothing is lost, nothing is doubled",
    2: "2. One moment of the source",
    3: "3. Any number of destinations",
    4: "4. One table never stops the others",
    5: "5. WAL is released by policy",
    6: "6. Every value of every type",
    7: "7. What is not to be shown",
    0: "Upgrades",
}


def rendered(page: str) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{_table()}\n\n{_END}{after}"


def _table() -> str:
    lines = ["| promise | what is done wrong | where | the test that fails |", "|---|---|---|---|"]
    for promise, name in _PROMISES.items():
        for each in MUTATIONS:
            if each.promise == promise:
                path, _, test = each.test.partition("::")
                told = f"[{test.partition('[')[0] or path.rpartition('/')[2]}](../{path})"
                lines.append(f"| {name} | {each.what} | [{each.file}](../{each.file}) | {told} |")
        for defect, broken in MODEL.items():
            if broken == promise:
                lines.append(f"| {name} | {defect} | [the model](../tests/model/defects.py) | every history |")
    return "\n".join(lines)
