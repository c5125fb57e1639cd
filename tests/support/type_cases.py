"""A column of every type, with values at its edges as Postgres writes them, and how two clients read the same value."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg


@dataclass(frozen=True)
class Reading:
    """What each client is asked for, with `{}` for the value, and what becomes of DuckDB's answer."""

    postgres: str = "({})::text"
    duckdb: str = "cast({} as varchar)"
    told: Callable[[Any], str] = str


TEXT = Reading()
# A cast to text is not always what a client reads: it trims char(n), and adds to xml and inet.
PRINTED = Reading("case when {0} is not null then format('%s', {0}) end")
DECIMAL = Reading(duckdb="{}")  # DuckDB prints no zero before the point where there is no room for another digit
# DuckDB writes the era before the time of day.
_ERA_LAST = r"regexp_replace({}, '^(\S+) \(BC\)(.*)$', '\1\2 BC')"
MOMENT = Reading(duckdb=_ERA_LAST.format("cast({} as varchar)"))
# DuckDB holds a timestamptz exactly, but prints one of the far future a millisecond too late; not so a timestamp.
ZONED = Reading(
    duckdb=_ERA_LAST.format(
        "case when isfinite({0}) then cast(make_timestamp(epoch_us({0})) as varchar) || '+00'"
        " else cast({0} as varchar) end"
    )
)
BYTES = Reading("encode({}, 'hex')", "lower(hex({}))")
FLOAT4 = Reading("encode(float4send({}), 'hex')", "{}", lambda value: struct.pack(">f", value).hex())
FLOAT8 = Reading("encode(float8send({}), 'hex')", "{}", lambda value: struct.pack(">d", value).hex())


@dataclass(frozen=True)
class Case:
    """A type, and the values that a column of it takes one after the other."""

    type: str
    values: tuple[str, ...]
    reading: Reading = TEXT
    array: bool = False
    """It is read item by item, and a value is an expression, not a text."""

    def cast(self, value: str) -> str:
        quoted = value.replace("'", "''")
        return f"({value})::{self.type}" if self.array else f"'{quoted}'::{self.type}"

    def from_postgres(self, column: str) -> str:
        if not self.array:
            return self.reading.postgres.format(column)
        item = self.reading.postgres.format(f"({column})[i]")
        items = f"array(select {item} from generate_subscripts({column}, 1) i order by i)"
        return f"case when {column} is not null then {items} end"

    def from_duckdb(self, column: str) -> str:
        if not self.array:
            return self.reading.duckdb.format(column)
        return f"list_transform({column}, lambda item: {self.reading.duckdb.format('item')})"

    def told(self, value: Any) -> Any:  # noqa: ANN401 -- what DuckDB's client gives
        if isinstance(value, list):
            return [None if item is None else self.reading.told(item) for item in value]
        return None if value is None else self.reading.told(value)


def of(kind: str, *values: str, reading: Reading = TEXT) -> Case:
    return Case(kind, values, reading)


DIGITS = "1234567890" * 100
ODD_TEXT = "äöü \U0001f600 'one' \"two\" \\ \n\t\r {},; NULL"

SCALARS = (
    of("boolean", "t", "f"),
    of("smallint", "-32768", "32767"),
    of("integer", "-2147483648", "2147483647", "0"),
    of("bigint", "-9223372036854775808", "9223372036854775807"),
    of("oid", "0", "4294967295"),
    of("real", "NaN", "Infinity", "-Infinity", "-0", "1.17549435e-38", "3.4028235e38", "0.1", "1e-45", reading=FLOAT4),
    of("float8", "NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", reading=FLOAT8),
    of("numeric", "NaN", "Infinity", "-Infinity", DIGITS, f"-0.{DIGITS}", "0.1000", "0", "1e-16383"),
    of("numeric(10, 2)", "12345678.90", "-0.01", "0"),
    of("numeric(38, 38)", f"0.{'9' * 38}", f"-0.{'1' * 38}", reading=DECIMAL),
    of("numeric(1000, 500)", f"{'9' * 500}.{'1' * 500}", "NaN"),
    of("text", "", "NULL", ODD_TEXT, r"\N", r"\.", "\x01\x7f"),
    of("varchar(5)", "abc", ""),
    of("char(5)", "ab", "", reading=PRINTED),
    of('"char"', "c", "", "\\"),
    of("name", "a_name", ""),
    of("json", '{"b" :  1, "a": [null, 1e400, 12345678901234567890123]}', '"\\u0000"', "null"),
    of("jsonb", '{"b": 1, "a": {"": [1.0]}}', "null", '"\\"\\\\"'),
    of("jsonpath", '$."a"[*] ? (@ > 1)', "strict $"),
    of("uuid", "00000000-0000-0000-0000-0000000000ff", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    of("bytea", "\\x", "\\x00ff4100", "\\x5c78", reading=BYTES),
    of(
        *("date", "infinity", "-infinity", "4713-11-24 BC", "4714-11-24 BC", "0001-01-01", "0001-12-31 BC"),
        *("5874897-12-31", "2024-02-29", "1970-01-01"),
        reading=MOMENT,
    ),
    of("time", "24:00:00", "23:59:59.999999", "00:00:00", "12:34:56.7"),
    of("timetz", "24:00:00-15:59", "23:59:59.999999+15:59:59", "00:00:00+00", "12:34:56.7+05:30"),
    of(
        *("timestamp", "infinity", "-infinity", "4714-11-24 00:00:00 BC", "294247-01-10 04:00:54.775806"),
        *("1969-12-31 23:59:59.999999", "12345-06-07 08:09:10.5", "0044-03-15 12:00:00 BC", "2000-01-01 00:00:00"),
        reading=MOMENT,
    ),
    of(
        *("timestamptz", "infinity", "-infinity", "4714-11-24 00:00:00+00 BC", "294246-12-31 23:59:59.999999+00"),
        *(
            "1969-12-31 23:59:59.999999-08",
            "12345-06-07 08:09:10.5+05:30",
            "0044-03-15 12:00:00+00 BC",
            "294247-01-10 04:00:54.775806+00",
        ),
        reading=ZONED,
    ),
    of(
        *("interval", "-1 year -2 mons +3 days -04:05:06.789", "0", "178000000 years", "-178000000 years"),
        *("1 day 24:00:00.000001", "-2147483648 mons"),
    ),
    of("money", "-92233720368547758.08", "92233720368547758.07", "1234.5", "0"),
    of("bit(3)", "101", "000"),
    of("bit varying", "", "1" * 100),
    of("inet", "192.168.0.1/24", "::1", "2001:db8::ff00:42:8329/128", "0.0.0.0/0", reading=PRINTED),
    of("cidr", "10.0.0.0/8", "2001:db8::/32"),
    of("macaddr", "08:00:2b:01:02:03"),
    of("macaddr8", "08:00:2b:01:02:03:04:05"),
    of("tsvector", "'a':1A,3 'it''s':2B 'two words'", ""),
    of("tsquery", "'a' & !( 'b':*A <-> 'c d' )", ""),
    of("point", "(1.5,-0)", "(Infinity,NaN)"),
    of("lseg", "[(0,0),(1,1)]"),
    of("path", "((0,0),(1,1))", "[(0,0),(1,1),(2,0)]"),
    of("box", "(2,2),(1,1)", "(1e300,0.1),(0,0)"),
    of("polygon", "((0,0),(1,1),(2,0))"),
    of("line", "{1,-1,0}"),
    of("circle", "<(0.1,0),1e-300>"),
    of("int4range", "[1,5)", "empty", "(,)", "[1,]"),
    of("int8range", "[-9223372036854775808,9223372036854775807)", "empty"),
    of("numrange", "[0.10,1e10]", "(,NaN)", "empty"),
    of("tsrange", '["2024-01-01 00:00:00.5","4000-01-01")', "[-infinity,infinity]", "empty"),
    of("tstzrange", '["2024-01-01 00:00:00+05:30",)', "empty"),
    of("daterange", "[2024-01-01,2024-02-29)", "(,2024-01-01)", "empty"),
    of("int4multirange", "{[1,2),[5,9)}", "{}"),
    of("int8multirange", "{[1,2),[5,)}", "{}"),
    of("nummultirange", "{[0.10,1.5],(7,)}", "{}"),
    of("tsmultirange", '{["2024-01-01","2024-01-02 12:00")}', "{}"),
    of("tstzmultirange", '{["2024-01-01 00:00:00+01","2024-01-02")}', "{}"),
    of("datemultirange", "{[2024-01-01,2024-01-02),[2024-03-01,)}", "{}"),
    of("pg_lsn", "0/0", "FFFFFFFF/FFFFFFFF"),
    of("txid_snapshot", "10:20:10,14,15"),
    of("pg_snapshot", "10:20:10,14,15"),
    of("xid", "0", "4294967295"),
    of("xid8", "18446744073709551615"),
    of("cid", "4294967295"),
    of("tid", "(4294967295,65535)"),
    of("int2vector", "1 -2 3", ""),
    of("oidvector", "1 4294967295", ""),
    of("regclass", "pg_catalog.pg_class", 'public."Odd ""table"""', "public.scalars", "12345678"),
    of("regcollation", '"C"'),
    of("regconfig", "simple"),
    of("regdictionary", "simple"),
    of("regnamespace", "public"),
    of("regoper", "pg_catalog.||/"),
    of("regoperator", "+(integer,integer)"),
    of("regproc", "pg_catalog.now"),
    of("regprocedure", "length(text)", "0"),
    of("regrole", "postgres"),
    of("regtype", "integer", "public.mood", "timestamp with time zone[]"),
    of("aclitem", "postgres=arw/postgres"),
    of("refcursor", "a cursor"),
)
XML = of("xml", "<a b='c'>&lt;ä</a>", "<?xml version='1.0'?><a/>", "text only", reading=PRINTED)


def _base_type(name: str, *further: str) -> str:
    """As extensions make theirs, which are not part of the server: its values are what they are as text."""
    return f"""
        create type {name};
        create function {name}_in(cstring) returns {name} language internal immutable strict as 'textin';
        create function {name}_out({name}) returns cstring language internal immutable strict as 'textout';
        create type {name} ({", ".join([f"input = {name}_in", f"output = {name}_out", "like = text", *further])})
    """


MADE = (
    _base_type("vector"),
    _base_type("geometry", "delimiter = ':'"),
    "create extension hstore; create extension citext; create extension ltree; create extension cube",
    "create type mood as enum ('happy', 'so so', 'it''s \"odd\"', '')",
    "create type address as (street text, number int, tags text[])",
    "create type floatrange as range (subtype = float8, multirange_type_name = floatmultirange)",
    "create domain price as numeric(10, 2)",
    "create domain sale as price check (value >= 0)",
    "create domain label as text",
    "create domain born as date",
    "create domain numbers as int[]",
    "create domain prices as price[]",
    "create domain good_mood as mood",
    "create domain home as address",
    "create schema other",
    "create type other.\"Odd type\" as enum ('a,b')",
    'create table "Odd ""table""" (a int)',
)
MADE_SCALARS = (
    of("mood", "happy", "so so", 'it\'s "odd"', ""),
    of('other."Odd type"', "a,b"),
    of("address", '("Main ""st."", 1",7,"{a,""b c""}")', "(,,)"),
    of("floatrange", "[1.5,1e300)", "empty"),
    of("floatmultirange", "{[1.5,2],(3,)}"),
    of("price", "12345678.90", "-0.01"),
    of("sale", "0.10", "99999999.99"),
    of("label", "", ODD_TEXT),
    of("born", "infinity", "0044-03-15 BC", "5874897-12-31", reading=MOMENT),
    of("good_mood", "so so"),
    of("home", "(a,1,{})"),
    of("hstore", '"a"=>"1", "b c"=>NULL', ""),
    of("citext", "MiXed ä"),
    of("ltree", "top.science_1.x"),
    of("lquery", "*.a@.*"),
    of("cube", "(1, 2),(3, 4.5)", "(0)"),
    of("vector", "[1,-2.5,3e-05]", "[0]"),
    of("geometry", "0101000020E6100000000000000000F03F0000000000000040", "a:b"),
    of("information_schema.sql_identifier", "a name"),
)


def array_case(case: Case) -> Case:
    """Arrays of one dimension: none, only NULL, the values around a NULL."""
    items = [case.cast(value) for value in case.values]
    lists = ("array[]", "array[null]", f"array[{', '.join([*items, 'null', items[0]])}]")
    kind, _, modifier = case.type.partition("(")
    kind = f"{kind.strip()}({modifier}[]" if modifier else f"{kind}[]"
    return Case(kind, lists, case.reading, array=True)


LISTS_OF_LISTS = (
    Case("numbers", ("array[]::int[]", "array[1, null, 3]"), array=True),
    Case("prices", ("array[]::price[]", "array[0.10::price, null]"), array=True),
    Case("numbers[]", ("""'{"{1,NULL}",NULL,"{}","[0:1]={1,2}","{{1},{2}}"}'""",), array=True),
)
"""Domains over arrays, and an array of those: its items are literals."""


def completed(server: psycopg.Connection, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """With xml, where this server was built with it."""
    try:
        server.execute("select '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        return cases
    return (*cases, XML)
