"""Tables and what happens to them, made inside Postgres from a seed: the same numbers give the same rows.

orders     10 columns, about 130 bytes a row, as a shop has them
mix        five tables; transactions in the manner of TPC-C's new-order and payment, about 13 changes each
tiny       six tables of one row each
wide       100 columns of five types
documents  values of a megabyte
"""

from __future__ import annotations

from typing import LiteralString

import psycopg

SEED = 20_260_401
ORDERS: LiteralString = "orders"
MIX_TABLES = ("district", "customer", "stock", "purchase", "purchase_line", "payment")
TINY_TABLES = ("tiny_1", "tiny_2", "tiny_3", "tiny_4", "tiny_5", "tiny_6")
WIDE: LiteralString = "wide"
DOCUMENTS: LiteralString = "documents"
MARK_BYTES = 8_000
"""A logical message of this size marks the end of a segment: longer than any row, so that a reader that only looks at
sizes finds it."""

_ORDERS: LiteralString = """
create table orders (
    id bigint primary key,
    customer_id integer not null,
    placed_at timestamptz not null,
    status text not null,
    currency text not null,
    amount numeric(12, 2) not null,
    items integer not null,
    express boolean not null,
    reference uuid not null,
    note text
);
create function an_order(i bigint, seed bigint) returns setof orders language sql immutable as $$
    select i, (abs(hashint8extended(i, seed) / 2) % 100000)::integer,
           timestamptz '2026-01-01' + i * interval '1.7 seconds',
           (array['new', 'paid', 'packed', 'shipped', 'delivered'])[1 + i % 5],
           (array['EUR', 'USD', 'GBP'])[1 + i % 3],
           ((abs(hashint8extended(i, seed + 1) / 2) % 1000000) / 100.0)::numeric(12, 2),
           (1 + i % 9)::integer, i % 10 = 0,
           md5(i::text)::uuid,
           case when i % 4 > 0 then 'leave it at the door of number ' || i end
$$;
create procedure insert_orders(first bigint, last bigint, step bigint, seed bigint) language plpgsql as $$
begin
    for start in first..last by step loop
        insert into orders
        select o.* from generate_series(start, least(start + step - 1, last)) i, an_order(i, seed) o;
        commit;
    end loop;
end $$;
create procedure update_orders(first bigint, last bigint, step bigint) language plpgsql as $$
begin
    for start in first..last by step loop
        update orders set status = 'returned', amount = amount + 1, express = not express
         where id between start and least(start + step - 1, last);
        commit;
    end loop;
end $$;
"""

_MIX: LiteralString = """
create table district (id integer primary key, name text, tax numeric(4, 4), ytd numeric(12, 2), next_order integer);
create table customer (id integer primary key, district_id integer, first text, last text, credit text,
    balance numeric(12, 2), paid numeric(12, 2), payments integer, since timestamptz, data text);
create table stock (item_id integer primary key, quantity integer, ytd integer, orders integer, data text);
create table purchase (district_id integer, id integer, customer_id integer, entered timestamptz, lines integer,
    primary key (district_id, id));
create table purchase_line (district_id integer, purchase_id integer, number integer, item_id integer,
    quantity integer, amount numeric(8, 2), info text, primary key (district_id, purchase_id, number));
create table payment (id bigint primary key, customer_id integer, district_id integer, paid_at timestamptz,
    amount numeric(8, 2), data text);
insert into district select i, 'district ' || i, 0.05, 0, 1 from generate_series(0, 19) i;
insert into customer select i, i % 20, 'first ' || i, 'last ' || i, 'GC', 0, 0, 0, '2026-01-01', repeat('c', 100)
  from generate_series(0, 2999) i;
insert into stock select i, 1000, 0, 0, repeat('s', 40) from generate_series(0, 9999) i;
create procedure mix(transactions integer, seed bigint, inout changes bigint) language plpgsql as $$
declare
    h bigint; d integer; n integer; k integer; touched integer;
begin
    changes := 0;
    for t in 1..transactions loop
        h := abs(hashint8extended(t, seed) / 2);
        d := h % 20;
        if h % 100 < 55 then
            k := 5 + h % 11;
            update district set next_order = next_order + 1 where id = d returning next_order into n;
            insert into purchase values (d, n, h % 3000, '2026-01-01'::timestamptz + t * interval '1 second', k);
            insert into purchase_line
            select d, n, i, (h / 7 + i * 131) % 10000, 1 + i % 10, 9.99 + i, 'line ' || i
              from generate_series(1, k) i;
            update stock set quantity = quantity - 1, orders = orders + 1
             where item_id in (select (h / 7 + i * 131) % 10000 from generate_series(1, k) i);
            get diagnostics touched = row_count;
            changes := changes + 2 + k + touched;
        else
            update district set ytd = ytd + 10 where id = d;
            update customer set balance = balance - 10, paid = paid + 10, payments = payments + 1
             where id = h % 3000;
            insert into payment
            values (t, h % 3000, d, '2026-01-01'::timestamptz + t * interval '1 second', 10, 'paid');
            changes := changes + 3;
        end if;
        commit;
    end loop;
end $$;
"""

_WIDE: LiteralString = """
do $$
declare
    kinds text[] := array['bigint', 'text', 'timestamptz', 'numeric(12, 2)', 'boolean'];
begin
    execute 'create table wide (id bigint primary key, '
        || (select string_agg(format('c%s %s', i, kinds[1 + i % 5]), ', ' order by i) from generate_series(1, 99) i)
        || ')';
    execute 'create procedure insert_wide(first bigint, last bigint, step bigint) language plpgsql as $body$ begin '
        || 'for start in first..last by step loop insert into wide select r, '
        || (select string_agg(
                format((array['r * %1$s', '''value '' || r', 'timestamptz ''2026-01-01'' + r * interval ''1 s''',
                              'r %% 1000 + 0.25', 'r %% %1$s = 0'])[1 + i % 5], i), ', ' order by i)
              from generate_series(1, 99) i)
        || ' from generate_series(start, least(start + step - 1, last)) r; commit; end loop; end $body$';
end $$;
"""

_DOCUMENTS: LiteralString = """
create table documents (id bigint primary key, body text);
alter table documents alter column body set storage external;
"""

_TINY: LiteralString = """
do $$ begin
    for i in 1..6 loop
        execute format('create table tiny_%s as select 1 as id, 0 as n', i);
        execute format('alter table tiny_%s add primary key (id)', i);
    end loop;
end $$;
"""

ONE_ROW: LiteralString = "update orders set items = items + 1 where id = 1"
SIX_TABLES: LiteralString = """
with a as (update tiny_1 set n = n + 1), b as (update tiny_2 set n = n + 1), c as (update tiny_3 set n = n + 1),
     d as (update tiny_4 set n = n + 1), e as (update tiny_5 set n = n + 1)
update tiny_6 set n = n + 1
"""
SCHEMAS: dict[str, LiteralString] = {
    "orders": _ORDERS,
    "mix": _MIX,
    "tiny": _TINY,
    "wide": _WIDE,
    "documents": _DOCUMENTS,
}


def make(session: psycopg.Connection, *names: str) -> None:
    """The tables and procedures of these workloads; rows only where updates need some to begin with."""
    for name in names:
        session.execute(SCHEMAS[name])


def insert_orders(session: psycopg.Connection, first: int, count: int, per_transaction: int) -> None:
    session.execute(
        "call insert_orders(%s, %s, %s, %s)", [first, first + count - 1, per_transaction, SEED], prepare=False
    )


def update_orders(session: psycopg.Connection, first: int, count: int, per_transaction: int) -> None:
    session.execute("call update_orders(%s, %s, %s)", [first, first + count - 1, per_transaction], prepare=False)


def insert_wide(session: psycopg.Connection, count: int, per_transaction: int) -> None:
    session.execute("call insert_wide(1, %s, %s)", [count, per_transaction], prepare=False)


def run_mix(session: psycopg.Connection, transactions: int) -> int:
    """How many row changes it made."""
    row = session.execute("call mix(%s, %s, 0)", [transactions, SEED], prepare=False).fetchone()
    return int(row[0]) if row else 0


def insert_documents(session: psycopg.Connection, count: int) -> None:
    """One transaction of values of a megabyte each."""
    session.execute(
        "insert into documents select i, repeat(md5(i::text), 32768) from generate_series(1, %s) i", [count]
    )


def mark(session: psycopg.Connection) -> None:
    session.execute("select pg_logical_emit_message(true, 'bench', repeat('x', %s))", [MARK_BYTES])
