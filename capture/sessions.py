"""Plain sessions with the source, which none of capture's threads waits for without end."""

from __future__ import annotations

from capture.config import SourceConfig
from capture.replication_connection import session_dsn
from stores.patient_session import PatientSession


def plain_session(source: SourceConfig, **further: str) -> PatientSession:
    """Errors are psycopg's. `further`: settings of libpq that are said here."""
    dsn = session_dsn(source.dsn.get_secret_value(), **further)
    return PatientSession.opened(dsn, source.patience.total_seconds(), autocommit=True)
