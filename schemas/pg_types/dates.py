"""Dates and times, as `DateStyle = ISO` prints them, to days and microseconds since 1970.

Python's datetime ends at the year 9999 and knows no BC and no infinity, so the arithmetic is our own. The infinities
are the extreme integers; `24:00:00` is 86,400,000,000 microseconds.

Postgres counts from 2000 and so reaches 30 years further than 64 bits from 1970. The moments of those years go on at
the other end: after 2**63 - 2 come, past the two infinities, -2**63 + 1 and so on. Nothing else is there: Postgres
begins at TIMESTAMP_FIRST. So every moment has a long of its own, and one below TIMESTAMP_FIRST is not in the past.
"""

from __future__ import annotations

import re

from schemas.pg_types.pg_type import PgType

DATE_INFINITY = 2**31 - 1
DATE_MINUS_INFINITY = -(2**31)
TIMESTAMP_INFINITY = 2**63 - 1
TIMESTAMP_MINUS_INFINITY = -(2**63)
TIMESTAMP_FIRST = -210_866_803_200_000_000
"""4714-11-24 00:00:00 BC, where Postgres begins."""
_TIMESTAMP_END = 9_224_318_016_000_000_000
"""294277-01-01 00:00:00, which Postgres does not reach."""
_FAR = TIMESTAMP_MINUS_INFINITY + 1 - TIMESTAMP_INFINITY

_DAY = 86_400_000_000
_SECOND = 1_000_000
_YMD = r"(\d{4,})-(\d\d)-(\d\d)"
_HMS = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_ZONE = r"(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?"
_DATE = re.compile(rf"{_YMD}( BC)?")
_TIME = re.compile(_HMS)
_TIMESTAMP = re.compile(rf"{_YMD} {_HMS}{_ZONE}( BC)?")


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic Gregorian calendar, for any year (0 is 1 BC)."""
    shifted = year - (month <= 2)  # noqa: PLR2004 -- the year of this count begins in March
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1  # noqa: PLR2004
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _year(text: str, era: str | None) -> int:
    return 1 - int(text) if era else int(text)


def _microseconds(hour: str, minute: str, second: str, fraction: str | None) -> int:
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * _SECOND + (int(fraction.ljust(6, "0")) if fraction else 0)


def parse_date(text: str) -> int:
    if text == "infinity":
        return DATE_INFINITY
    if text == "-infinity":
        return DATE_MINUS_INFINITY
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("not a date in ISO style")
    return _days(_year(found[1], found[4]), int(found[2]), int(found[3]))


def parse_time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("not a time in ISO style")
    return _microseconds(found[1], found[2], found[3], found[4])


def parse_timestamp(text: str) -> int:
    if text == "infinity":
        return TIMESTAMP_INFINITY
    if text == "-infinity":
        return TIMESTAMP_MINUS_INFINITY
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("not a timestamp in ISO style")
    year, month, day, hour, minute, second, fraction, sign, zone_h, zone_m, zone_s, era = found.groups()
    local = _days(_year(year, era), int(month), int(day)) * _DAY + _microseconds(hour, minute, second, fraction)
    east = _microseconds(zone_h, zone_m or "0", zone_s or "0", None) if sign else 0
    since_1970 = local - east if sign == "+" else local + east
    if not TIMESTAMP_FIRST <= since_1970 < _TIMESTAMP_END:
        raise ValueError("not a timestamp that Postgres has")
    return since_1970 if since_1970 < TIMESTAMP_INFINITY else since_1970 + _FAR


_INFINITIES = "`infinity` and `-infinity` are the largest and the smallest {}"
_MOMENT = (
    f"microseconds since 1970; {_INFINITIES.format('long')}; "
    "from 294247-01-10 04:00:54.775807 on the count goes on at -2^63 + 1"
)
DATES = (
    PgType(
        1082,
        1182,
        "date",
        parse_date,
        {"type": "int", "logicalType": "date"},
        f"days since 1970; {_INFINITIES.format('int')}",
    ),
    PgType(
        1083,
        1183,
        "time",
        parse_time,
        {"type": "long", "logicalType": "time-micros"},
        "microseconds since midnight; `24:00:00` is 86400000000",
    ),
    PgType(
        1114,
        1115,
        "timestamp",
        parse_timestamp,
        {"type": "long", "logicalType": "local-timestamp-micros"},
        _MOMENT,
    ),
    PgType(
        1184,
        1185,
        "timestamptz",
        parse_timestamp,
        {"type": "long", "logicalType": "timestamp-micros"},
        f"in UTC; {_MOMENT}",
    ),
)
