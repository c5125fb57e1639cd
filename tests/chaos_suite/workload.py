"""What is written at the source while faults happen: every kind of change, and transfers whose sum never changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import psycopg

from tests.chaos_suite.place import NAME, Place
from tests.chaos_suite.threads import Threads

ACCOUNTS, BALANCE = 100, 1_000
TABLES = ("left_accounts", "right_accounts", "transfers", "documents", "bag", "visitors", "archive")
SCHEMA = (
    "create table left_accounts (id int primary key, balance bigint not null)",
    "create table right_accounts (id int primary key, balance bigint not null)",
    "create table transfers (id bigint generated always as identity primary key, amount bigint not null)",
    f"insert into left_accounts select i, {BALANCE} from generate_series(1, {ACCOUNTS}) i",
    f"insert into right_accounts select i, {BALANCE} from generate_series(1, {ACCOUNTS}) i",
    "create table archive (id int primary key, note varchar(200), n int)",
    "insert into archive select i, repeat(md5(i::text), 4), 0 from generate_series(1, 6000) i",
    "create sequence document_ids",
    "create table documents (id bigint primary key, title text, body text, n int not null default 0)",
    "alter table documents alter column body set storage external",
    "insert into documents select nextval('document_ids'), 'first', repeat(note, 20), 0 from archive where id <= 200",
    "create table bag (what text, n int)",
    "alter table bag replica identity full",
    "create table visitors (id int primary key, at timestamptz, tags text[])",
    f"create publication {NAME} for table {', '.join(TABLES)}",
)
TOTALS = """
    select (select sum(balance) from public.left_accounts), (select sum(balance) from public.right_accounts),
           (select sum(amount) from public.transfers)
"""
"""Of one moment."""
_PAUSE = 0.03, 0.15
_DOCUMENTS_MOST, _TRANSFERS_MOST, _BAG_MOST = 1_500, 10_000, 2_000
_FOLDED = 0.02


def is_whole(left: int, right: int, moved: int | None) -> bool:
    """Whether these totals can be of one moment: no transfer is seen in halves."""
    return left + (moved or 0) == right - (moved or 0) == ACCOUNTS * BALANCE


class Writers(Threads):
    """Threads that write until the end of the block, whatever happens to the server."""

    def __init__(self, place: Place, seed: str) -> None:
        super().__init__()
        self._place = place
        self.rows = 0
        self._counted = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(step, Random(f"{seed} {step.__name__}")), name=step.__name__)  # noqa: S311 -- chance, not secrecy
            for step in (transfer, edit_documents, fill_bag, visit)
        ]

    def _write(self, step: Callable[[psycopg.Connection, Random], int], chance: Random) -> None:
        while not self._stop.is_set():
            try:
                with self._place.source_session() as session:
                    while not self._stop.is_set():
                        written = step(session, chance)
                        with self._counted:
                            self.rows += written
                        self._stop.wait(chance.uniform(*_PAUSE))
            except psycopg.Error:
                self._stop.wait(0.2)  # the server is away, or a lock was not to be had: again


def transfer(session: psycopg.Connection, chance: Random) -> int:
    """Several in one transaction, now and then many. What would become too long a list is made one transfer."""
    if chance.random() < _FOLDED:
        return _fold_transfers(session)
    count = chance.choice((1, 2, 5, 5, 200))
    with session.transaction():
        for _ in range(count):
            amount = chance.randint(-20, 20)
            session.execute(
                "update left_accounts set balance = balance - %s where id = %s", (amount, chance.randint(1, ACCOUNTS))
            )
            session.execute(
                "update right_accounts set balance = balance + %s where id = %s", (amount, chance.randint(1, ACCOUNTS))
            )
            session.execute("insert into transfers (amount) values (%s)", (amount,))
    return 3 * count


def _fold_transfers(session: psycopg.Connection) -> int:
    return session.execute(
        """
        with gone as (
            delete from transfers where (select count(*) from transfers) > %s returning amount
        )
        insert into transfers (amount) select sum(amount) from gone having count(*) > 0
        """,
        (_TRANSFERS_MOST,),
    ).rowcount


def edit_documents(session: psycopg.Connection, chance: Random) -> int:
    """The long bodies are seldom sent again: only where they are new."""
    some = "id in (select id from documents order by md5(id::text || %s) limit 5)"
    salt = str(chance.random())
    match chance.choice(("insert", "touch", "touch", "rewrite", "delete", "move", "crowd")):
        case "insert":
            return session.execute(
                "insert into documents (id, title, body) select nextval('document_ids'), %s, repeat(md5(%s), 90)"
                "  from generate_series(1, 8)",
                (salt, salt),
            ).rowcount
        case "touch":
            return session.execute(f"update documents set n = n + 1 where {some}".encode(), (salt,)).rowcount
        case "rewrite":
            return session.execute(
                f"update documents set body = repeat(md5(%s), 100) where {some}".encode(), (salt, salt)
            ).rowcount
        case "delete":
            return session.execute(f"delete from documents where {some}".encode(), (salt,)).rowcount
        case "move":
            return session.execute(
                f"update documents set id = nextval('document_ids') where {some}".encode(), (salt,)
            ).rowcount
        case _:
            return session.execute(
                "delete from documents where (select count(*) from documents) > %s and n %% 2 = 0", (_DOCUMENTS_MOST,)
            ).rowcount


def fill_bag(session: psycopg.Connection, chance: Random) -> int:
    """Rows that are alike."""
    match chance.choice(("insert", "insert", "update", "delete", "crowd")):
        case "insert":
            return session.execute(
                "insert into bag select 'same', %s from generate_series(1, 5)", (chance.randint(1, 5),)
            ).rowcount
        case "update":
            return session.execute(
                "update bag set n = n + 1 where ctid in (select ctid from bag where n = %s limit 3)",
                (chance.randint(1, 5),),
            ).rowcount
        case "delete":
            return session.execute("delete from bag where ctid in (select ctid from bag limit 4)").rowcount
        case _:
            return session.execute(
                "delete from bag where (select count(*) from bag) > %s and n %% 2 = 0", (_BAG_MOST,)
            ).rowcount


def visit(session: psycopg.Connection, chance: Random) -> int:
    """In the table that comes and goes, and in the one whose copy takes a while."""
    written = session.execute(
        "insert into visitors values (%s, now(), array['a', null]) on conflict (id) do update set at = now()",
        (chance.randint(1, 500),),
    ).rowcount
    first = chance.randint(1, 6_000)
    return (
        written
        + session.execute("update archive set n = n + 1 where id between %s and %s", (first, first + 5)).rowcount
    )
