"""A COPY command in, records in batches out: many rows a call, and no more in memory than a batch or one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg

from capture.transcode.choose import chosen_path
from capture.transcode.contract import Records, TableTranscoder
from capture.transcode.reference import Origin
from capture.wire import Inbox, Wire

_PATIENCE_SECONDS = 1.0
_READY = b"Z"
_PASSED = frozenset((b"H", b"c", b"C", b"N", b"S", b"A"))
"""CopyOutResponse, CopyDone, CommandComplete, and what may come at any time: notices and settings."""


def copied_rows(
    wire: Wire, command: bytes, transcoder: TableTranscoder, origin: Origin, alive: Callable[[], None]
) -> Iterator[Records]:
    """The rows that COPY gives, each at the next ordinal. `alive` is called while Postgres makes us wait.

    A session that raised an error here is of no more use."""
    with closing(wire):
        wire.query(command)
        inbox = Inbox(wire)
        ended = False
        while not ended:
            if not inbox.receive(_PATIENCE_SECONDS):
                alive()
            records = chosen_path().batch()
            _read(inbox, transcoder, origin, records)
            while (kind := inbox.take_control()) is not None:
                ended = kind == _READY
                if not ended and kind not in _PASSED:
                    raise psycopg.OperationalError("unexpected message from the server during COPY")
                _read(inbox, transcoder, origin, records)
            if records:
                yield records


def _read(inbox: Inbox, transcoder: TableTranscoder, origin: Origin, records: Records) -> None:
    with inbox.unread() as unread:
        used = transcoder.copy_rows(unread, origin, records)
    inbox.use(used)
