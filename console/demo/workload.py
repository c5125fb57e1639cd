"""The life of the shop: a seeded stream of transactions at a bounded rate, until it is told to stop."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import LiteralString, Self

import psycopg
import structlog

from console.demo.shop import (
    FIRST_CUSTOMERS,
    FIRST_PRODUCTS,
    NEW_CUSTOMER,
    NEW_PRODUCT,
    long_text,
    new_customer,
    new_product,
)

TRANSACTIONS_PER_SECOND = 25
_MOST_ITEMS = 5
_MOST_EVENTS = 12

log = structlog.get_logger(__name__)

_SOME_CUSTOMER: LiteralString = "select id from customers order by id offset %s limit 1"
_SOME_PRODUCT: LiteralString = "select sku, price from products order by sku offset %s limit 1"


class Shop:
    """What may happen in the shop, each as one transaction. The same seed gives the same life."""

    def __init__(self, connection: psycopg.Connection, chance: random.Random) -> None:
        self._connection = connection
        self._chance = chance
        self._next_customer = FIRST_CUSTOMERS
        self._next_product = FIRST_PRODUCTS
        self._happenings: dict[str, tuple[int, Callable[[], None]]] = {
            "order placed": (240, self._place_order),
            "order moved on": (144, self._move_order_on),
            "customer changed": (96, self._change_customer),
            "product changed": (96, self._change_product),
            "events": (112, self._events),
            "customer joined": (40, self._join),
            "order cancelled": (32, self._cancel_order),
            "product added": (16, self._add_product),
            "product renamed": (16, self._rename_product),
            "description rewritten": (16, self._rewrite_description),
            "customer left": (16, self._leave),
            "customer got a new number": (8, self._renumber_customer),
            "events truncated": (3, self._truncate_events),
        }

    def one_transaction(self) -> str:
        """Let one thing happen; return its name."""
        names = list(self._happenings)
        weights = [weight for weight, _ in self._happenings.values()]
        name = self._chance.choices(names, weights)[0]
        with self._connection.transaction():
            self._happenings[name][1]()
        return name

    def _do(self, statement: LiteralString, *values: object) -> tuple[object, ...] | None:
        cursor = self._connection.execute(statement, values)
        return cursor.fetchone() if cursor.description is not None else None

    def _customer(self) -> object:
        row = self._do(_SOME_CUSTOMER, self._chance.randrange(FIRST_CUSTOMERS // 2))
        return row[0] if row is not None else None

    def _product(self) -> tuple[object, ...]:
        row = self._do(_SOME_PRODUCT, self._chance.randrange(FIRST_PRODUCTS // 2))
        assert row is not None  # noqa: S101 -- products are never deleted
        return row

    def _place_order(self) -> None:
        row = self._do(
            "insert into orders (customer_id, total, note) values (%s, 0, %s) returning id",
            self._customer(),
            self._chance.choice([None, "", "leave it with the neighbour"]),
        )
        order = row[0] if row is not None else None
        for line in range(1, 1 + self._chance.randint(1, _MOST_ITEMS)):
            sku, price = self._product()
            quantity = self._chance.randint(1, 4)
            self._do("insert into order_items values (%s, %s, %s, %s, %s)", order, line, sku, quantity, price)
            self._do("update products set stock = stock - %s where sku = %s", quantity, sku)
        self._do(
            "update orders set total = (select sum(quantity * price) from order_items where order_id = id) "
            "where id = %s",
            order,
        )
        self._do(
            "update customers c set balance = c.balance - o.total from orders o "
            "where o.id = %s and c.id = o.customer_id",
            order,
        )
        self._do("insert into events (kind, payload) values ('order', jsonb_build_object('order', %s::bigint))", order)

    def _move_order_on(self) -> None:
        status = self._chance.choice(["paid", "packed", "shipped", "returned"])
        self._do(
            "update orders set status = %s, shipped_on = case when %s = 'shipped' then current_date end "
            "where id = (select id from orders order by id desc offset %s limit 1)",
            status,
            status,
            self._chance.randrange(200),
        )

    def _change_customer(self) -> None:
        self._do(
            "update customers set city = %s, preferences = preferences || %s::jsonb where id = %s",
            self._chance.choice([None, "", "Genève", "Reykjavík"]),
            json.dumps({"seen": self._chance.randint(1, 1000)}),
            self._customer(),
        )

    def _change_product(self) -> None:
        """Does not touch the long description: Postgres sends no value for it."""
        self._do(
            "update products set price = round(price * %s::numeric, 2), stock = stock + %s where sku = %s",
            self._chance.choice([0.9, 1.0, 1.1]),
            self._chance.randint(0, 50),
            self._product()[0],
        )

    def _events(self) -> None:
        kind = self._chance.choice(["visit", "search", "basket"])
        rows = [
            (kind, json.dumps({"page": self._chance.randint(0, 9)}))
            for _ in range(self._chance.randint(1, _MOST_EVENTS))
        ]
        with self._connection.cursor() as cursor:
            cursor.executemany("insert into events (kind, payload) values (%s, %s)", rows)

    def _join(self) -> None:
        self._do(NEW_CUSTOMER, *new_customer(self._chance, self._next_customer))
        self._next_customer += 1

    def _leave(self) -> None:
        self._do(
            "delete from customers where id = (select c.id from customers c "
            "where not exists (select from orders o where o.customer_id = c.id) order by id desc limit 1)"
        )

    def _cancel_order(self) -> None:
        self._do(
            "delete from orders where id = (select id from orders order by id desc offset %s limit 1)",
            self._chance.randrange(300),
        )

    def _add_product(self) -> None:
        self._do(NEW_PRODUCT, *new_product(self._chance, self._next_product))
        self._next_product += 1

    def _rename_product(self) -> None:
        """A new key: the long description is not sent, it lies under the old key; order_items follow by cascade."""
        self._do(
            "update products set sku = sku || '-' || %s where sku = %s and length(sku) < 40",
            f"{self._chance.getrandbits(16):04x}",
            self._product()[0],
        )

    def _rewrite_description(self) -> None:
        self._do("update products set description = %s where sku = %s", long_text(self._chance), self._product()[0])

    def _renumber_customer(self) -> None:
        self._do("update customers set id = -id where id = %s and id > 0", self._customer())

    def _truncate_events(self) -> None:
        self._do("truncate events")


class Workload:
    """The shop's life in a thread of its own. `with` ends it."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._seed = seed
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shop-workload")
        self._life: Future[None] | None = None
        self.happened: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._life = self._pool.submit(self._live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raises what ended the shop's life, if anything did."""
        if self._life is not None and self._life.done():
            self._life.result()

    def stop(self) -> None:
        """Returns when the last transaction is committed."""
        self._stop.set()
        if self._life is not None:
            self._life.result()

    def _live(self) -> None:
        # Not cryptography: the same seed must give the same life.
        chance = random.Random(self._seed)  # noqa: S311
        with psycopg.connect(self._dsn, autocommit=True, application_name="shop") as connection:
            shop = Shop(connection, chance)
            while not self._stop.wait(chance.expovariate(TRANSACTIONS_PER_SECOND)):
                self.happened[shop.one_transaction()] += 1
        log.info("shop closed", transaction_count=self.happened.total())
