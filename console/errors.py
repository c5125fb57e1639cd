"""What can go wrong between processes and people.

PenstockError
|-- ConfigError        (schemas)  a file, a key, a value
|-- StageFailed        a child of `penstock run` ended; has its exit code
|-- CommandRefused     a command makes no sense for a table as it is
|-- NotYetThere        `penstock wait` waited long enough
'-- NotEqual           source and destination differ
"""

from __future__ import annotations

from schemas.errors import PenstockError


class StageFailed(PenstockError):
    """A stage that `run` or `demo` started has ended."""

    solution = "Look at its log, which stands above."

    def __init__(self, reason: str, *, exit_code: int = 1, solution: str | None = None) -> None:
        super().__init__(reason, solution=solution)
        self.exit_code = exit_code


class CommandRefused(PenstockError):
    """What was asked of a table makes no sense at any destination."""

    solution = "Run `penstock status`: it has the phase of each table, and why one is held."


class NotYetThere(PenstockError):
    """A destination does not have what was waited for."""

    solution = "Run `penstock status`; if it moves, wait longer with --timeout."


class NotEqual(PenstockError):
    """A destination does not hold what the source holds."""

    solution = "This is a defect of penstock: please report it; the folder of --keep holds all that is needed."
