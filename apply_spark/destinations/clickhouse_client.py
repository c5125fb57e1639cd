"""A session with ClickHouse, and what it refuses, told without its own messages: they may hold a value.

A server is reached by HTTP; an address `chdb:///folder` is an engine in this process, with its tables in that folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, Error, StreamFailureError
from urllib3.exceptions import HTTPError

from apply_spark.errors import DestinationAway, DestinationFull, NotHeld, NotPermitted, TableFailed
from schemas.errors import DestinationError
from schemas.identifiers import DestinationName, TableName

REFUSED = (ClickHouseError, StreamFailureError, HTTPError, OSError)
_SETTINGS = {
    "async_insert": "0",  # what is inserted is there
    "insert_deduplicate": "0",  # equal rows of two inserts are two rows
    "join_use_nulls": "0",
    "transform_null_in": "0",
    "cast_string_to_variant_use_inference": "0",  # text stays text
    "max_table_size_to_drop": "0",  # a mirror may be large, and a new copy replaces it
}
_SECONDS_FOR_A_STATEMENT = 1800
_NO_ROOM = {241: "memory", 243: "disk", 252: "parts"}
_DENIED = {497, 516, 291, 492}
_CHANGED = {16, 47, 60, 81}
"""No such column, identifier, table, database: refused before a row was written."""
_LOST = {159, 209, 210, 425, 999}


def connected(name: DestinationName, dsn: str) -> Client:
    further: dict[str, Any] = {}
    try:
        scheme = urlsplit(dsn).scheme
        if scheme in ("http", "https"):
            further = {"interface": scheme, "send_receive_timeout": _SECONDS_FOR_A_STATEMENT, "client_name": "penstock"}
        return clickhouse_connect.get_client(dsn=dsn, settings=dict(_SETTINGS), **further)
    except (*REFUSED, ValueError) as error:  # ValueError: no address
        raise DestinationAway(f"ClickHouse took no connection of destination {name} ({kind(error)}).") from None


@contextmanager
def told(name: DestinationName) -> Iterator[None]:
    """What is about the destination as a whole."""
    try:
        yield
    except REFUSED as error:
        if _is_about_the_server(error):
            raise _server_error(error) from None
        raise DestinationError(
            f"ClickHouse refuses to keep the progress of destination {name} ({kind(error)}).",
            solution="Let apply's user create databases and tables, and leave the database of penstock as it is.",
        ) from None


@contextmanager
def refusals(table: TableName) -> Iterator[None]:
    """What ClickHouse refuses to do with a table stops that table only; that it does not answer is about all."""
    try:
        yield
    except REFUSED as error:
        code = getattr(error, "code", None)
        if code in _NO_ROOM:
            full = DestinationFull(f"ClickHouse has no room for its rows: not enough {_NO_ROOM[code]}.")
            raise TableFailed(table, full) from None
        if code in _DENIED:
            denied = NotPermitted(f"ClickHouse does not let apply write its mirror ({kind(error)}).")
            raise TableFailed(table, denied) from None
        if _is_about_the_server(error):
            raise _server_error(error) from None
        raise TableFailed(
            table,
            NotHeld(
                f"ClickHouse refuses to write to its mirror ({kind(error)}): somebody dropped it or changed its shape.",
                solution="Undo that, and run `penstock rollback TABLE`; `penstock resync TABLE` makes the mirror anew.",
            ),
        ) from None


@contextmanager
def doing(table: TableName) -> Iterator[None]:
    """What was decided on is done. An error after which nobody knows how much of it was done is about all tables, for
    it must be done again as it was decided; the table is stopped only where nothing can have been."""
    try:
        with refusals(table):
            yield
    except TableFailed as failed:
        code = getattr(failed.__context__, "code", None)
        if code in _CHANGED | _DENIED:
            raise
        raise DestinationAway(
            f"ClickHouse did not take all rows of {table}: {failed.reason}",
            solution="Make room, or mend what the reason names; then start apply again. It goes on with these rows.",
        ) from None


def kind(error: BaseException) -> str:
    """What may be told of an error: its name at the server, or its class here."""
    name, code = getattr(error, "name", None), getattr(error, "code", None)
    return str(name or (f"error {code}" if code else type(error).__name__))


def _is_about_the_server(error: BaseException) -> bool:
    """It did not answer, or not in time. An error without a code is not the server's."""
    return not isinstance(error, Error) or error.code is None or error.code in _LOST


def _server_error(error: BaseException) -> DestinationAway:
    return DestinationAway(f"The connection to ClickHouse was lost ({kind(error)}).")
