"""Destinations are found by entry point, so that third parties add theirs without touching this package."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import Any

from apply_spark.config import DestinationConfig
from apply_spark.destination import Destination
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName

GROUP = "penstock.destinations"


def installed() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def make_destination(name: DestinationName, config: DestinationConfig) -> Destination:
    """Builds `[destinations.NAME]`; the destination itself refuses options that it does not know."""
    known = installed()
    if config.type not in known:
        close = difflib.get_close_matches(config.type, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"destinations.{name}.type is {config.type!r}; no such destination is installed.{hint}",
            solution=f"Use one of: {', '.join(sorted(known))}; or install the package that brings it.",
        )
    destination: Destination = known[config.type].load()(name, config.options)
    return destination
