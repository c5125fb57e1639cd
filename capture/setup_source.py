"""Event triggers at the source that tell of DDL, which Postgres does not publish: installed, removed, looked for.

They are a help, not a need. Without them a table's new shape is noticed at its next change, and a rewrite that leaves
the shape as it was, or a column that is dropped and added again, is not.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from importlib import resources
from typing import Any

import psycopg
from psycopg import errors

from capture.config import CaptureConfig
from capture.errors import TriggersRefused, source_error
from capture.findings import Catalog, Finding, Severity, one

_TRIGGERS = ("penstock_ddl", "penstock_drop", "penstock_rewrite")


class Setup(enum.Enum):
    """What is done to a source; the values are files beside this one."""

    INSTALL = "setup_source.sql"
    REMOVE = "remove_source.sql"

    @property
    def script(self) -> str:
        return resources.files("capture").joinpath(self.value).read_text()


def set_up(session: psycopg.Connection[Any], setup: Setup) -> None:
    """All of it or nothing; may be repeated. TriggersRefused: it takes a role that may make event triggers."""
    try:
        with session.transaction():
            session.execute(setup.script.encode())
    except errors.InsufficientPrivilege as error:
        option = " --remove" if setup is Setup.REMOVE else ""
        raise TriggersRefused(
            f"Role {session.info.user} may not change event triggers: {error.diag.message_primary}.",
            solution=f"Let a superuser run what `penstock setup-source{option} --print` prints. "
            "Pipelines work without it; a rewrite that keeps a table's shape then needs `penstock resync TABLE`.",
        ) from error
    except psycopg.Error as error:
        raise source_error(error, "setting up the source") from error


def ddl_findings(connection: Catalog, _config: CaptureConfig) -> Iterator[Finding]:
    """Never more than a word: everything but what the triggers tell works without them."""
    row = one(
        connection,
        "select count(*) as present from pg_event_trigger where evtname = any(%s) and evtenabled in ('O', 'A')",
        list(_TRIGGERS),
    )
    if row["present"] == len(_TRIGGERS):
        yield Finding(Severity.OK, "ddl", "Event triggers tell of DDL.")
    else:
        yield Finding(
            Severity.OK,
            "ddl",
            "No event triggers tell of DDL: a new shape is noticed at the next change of its table, and a rewrite that "
            "keeps the shape is not.",
            "If you want it otherwise, run `penstock setup-source`.",
        )
