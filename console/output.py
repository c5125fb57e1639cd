"""What people and programs read: tables, JSON, bytes and durations in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemas.settings import printable

_KILO = 1024
_BYTE_UNITS = ("kB", "MB", "GB", "TB", "PB")
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_LONG_UNITS = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s"))
_TENS = 10


def stdout() -> Console:
    """For results. Wide where nobody watches, so that a log or a pipe gets whole lines."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """For everything that is not the result."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def words(text: str, style: str = "") -> Text:
    """As it is, except for what would move the cursor of a terminal: a name of the source may hold anything."""
    return Text("\n".join(printable(line) for line in text.split("\n")), style=style)


def table(*columns: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    """An empty table; the columns named in `right` hold numbers."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def as_json(value: Any) -> str:  # noqa: ANN401 -- anything that JSON can hold
    return json.dumps(value, indent=2, default=str)


def human_bytes(count: int | None) -> str:
    """`12 B`, `3.4 kB`, `20 GB`: three digits at most, units of 1024."""
    if count is None:
        return "-"
    if abs(count) < _KILO:
        return f"{count} B"
    size = float(count)
    unit = "B"
    for unit in _BYTE_UNITS:  # noqa: B007 -- the last one is used after the loop
        size /= _KILO
        if abs(size) < 1000:  # noqa: PLR2004 -- three digits
            break
    return f"{size:.1f} {unit}" if abs(size) < _TENS else f"{size:.0f} {unit}"


def human_duration(duration: timedelta | float | None) -> str:
    """`250 ms`, `4.2 s`, `3 m 20 s`, `5 h 10 m`, `2 d 4 h`."""
    if duration is None:
        return "-"
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if abs(seconds) < _MINUTE:
        return f"{seconds * 1000:.0f} ms" if 0 < abs(seconds) < 1 else f"{seconds:.3g} s"
    whole = int(seconds)
    for unit, name, smaller, smaller_name in _LONG_UNITS:
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {smaller_name}"
    return f"{whole} s"
