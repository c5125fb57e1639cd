"""Findings about the server's part: a standby, a slot that shall outlive its server, transactions from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from capture.config import CaptureConfig, Failover, Origins
from capture.errors import StandbyRefused
from capture.findings import Catalog, Finding, Severity, one
from capture.identity import DECODES_ON_STANDBY_SINCE
from capture.waiting import ASK_THE_PRIMARY

_VERSION = 10_000
_ORIGIN_SINCE = 16
_FAILOVER_SINCE = 17
_STANDBY_SETTINGS = (
    "at each standby sync_replication_slots and hot_standby_feedback are on, primary_slot_name is set, and "
    "primary_conninfo names a dbname"
)


def standby_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    row = one(
        connection,
        "select pg_is_in_recovery() as standby, current_setting('hot_standby_feedback')::boolean as feedback",
    )
    if not row["standby"]:
        return
    version = connection.info.server_version // _VERSION
    primary = "Name the primary in `source.dsn`"
    if version < DECODES_ON_STANDBY_SINCE:
        reason = f"The server is a standby, and logical decoding on a standby needs Postgres 16; this is {version}."
        yield Finding(Severity.PROBLEM, "standby", reason, f"{primary}.", StandbyRefused)
    elif config.source.tables:
        reason = "The server is a standby, where no publication can be made, and `source.tables` asks for one."
        yield Finding(
            Severity.PROBLEM,
            "standby",
            reason,
            f"{primary}, or leave `source.tables` out and make the publication at the primary.",
            StandbyRefused,
        )
    elif config.source.failover is Failover.SLOT:
        reason = "The server is a standby, and only slots of a primary can be kept in step by others."
        yield Finding(
            Severity.PROBLEM, "standby", reason, f"{primary}, or leave `source.failover` out.", StandbyRefused
        )
    elif not row["feedback"]:
        yield Finding(
            Severity.WARNING,
            "standby",
            "The server is a standby without hot_standby_feedback: its primary may remove rows that the slot and a "
            "copy still need, which takes the slot away and ends the copy.",
            "Run `alter system set hot_standby_feedback = on;` and `select pg_reload_conf();` at the standby.",
        )
    else:
        yield Finding(
            Severity.OK,
            "standby",
            "The server is a standby. A new slot, and each copy, waits until its primary writes down which "
            "transactions run.",
            ASK_THE_PRIMARY,
        )


def origin_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    if config.source.origin is Origins.ANY:
        return
    version = connection.info.server_version // _VERSION
    if version < _ORIGIN_SINCE:
        reason = f"`source.origin` is `none`, which needs Postgres 16; this is {version}."
        yield Finding(Severity.PROBLEM, "origin", reason, "Leave `source.origin` out, or use a newer server.")
    else:
        reason = "What was replicated to this server from elsewhere is not streamed; a copy has it all the same."
        yield Finding(Severity.OK, "origin", reason)


def failover_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    if config.source.failover is Failover.NONE:
        return
    version = connection.info.server_version // _VERSION
    if version < _FAILOVER_SINCE:
        reason = f"`source.failover` is `slot`, which needs Postgres 17; this is {version}."
        yield Finding(Severity.PROBLEM, "failover", reason, "Leave `source.failover` out, or use a newer server.")
        return
    names = one(connection, "select current_setting('synchronized_standby_slots', true) as names")["names"]
    if names:
        reason = f"Capture never goes ahead of the standbys of {names}."
        yield Finding(Severity.OK, "failover", reason, f"See that {_STANDBY_SETTINGS}.")
    else:
        yield Finding(
            Severity.WARNING,
            "failover",
            "synchronized_standby_slots is empty: capture may go ahead of a standby, and could then not go on at it "
            "after a promotion.",
            "Run `alter system set synchronized_standby_slots = 'SLOT_OF_THE_STANDBY';` and "
            f"`select pg_reload_conf();`. See that {_STANDBY_SETTINGS}.",
        )
