"""A line of the code done wrong, the promise that it breaks, and the test that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutation:
    """`old` stands in `file` once; with `new` in its place, `test` must fail."""

    promise: int
    """Of docs/guarantees.md; 0: of docs/how-to."""
    what: str
    file: str
    old: str
    new: str
    test: str
    """Path and name, as pytest takes them."""

    def places(self, root: Path = ROOT) -> int:
        """How often `old` stands there; anything but 1 is a mistake of this list."""
        return (root / self.file).read_text().count(self.old)

    def mutated(self, root: Path) -> str:
        return (root / self.file).read_text().replace(self.old, self.new)
