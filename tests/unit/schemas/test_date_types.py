from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.pg_types.dates import parse_date, parse_time, parse_timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ZONES = st.integers(-57_599, 57_599).map(lambda seconds: timezone(timedelta(seconds=seconds)))


def _as_postgres_prints(moment: datetime) -> str:
    """ISO style: trailing zeros of the fraction and of the zone are left out."""
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    text = f"{moment:%Y}".rjust(4, "0") + f"-{moment:%m-%d %H:%M:%S}{fraction}"
    offset = moment.utcoffset()
    if offset is None:
        return text
    east = round(offset.total_seconds())
    minutes, seconds = divmod(abs(east), 60)
    hours, minutes = divmod(minutes, 60)
    zone = f"{hours:02}" + (f":{minutes:02}" if minutes or seconds else "") + (f":{seconds:02}" if seconds else "")
    return f"{text}{'-' if east < 0 else '+'}{zone}"


@given(st.dates())
def test_a_date_is_days_since_1970(day: date) -> None:
    assert parse_date(day.isoformat()) == day.toordinal() - EPOCH.date().toordinal()


@given(st.datetimes())
def test_a_timestamp_is_microseconds_since_1970(moment: datetime) -> None:
    expected = (moment.replace(tzinfo=UTC) - EPOCH) // MICROSECOND

    assert parse_timestamp(_as_postgres_prints(moment)) == expected


@given(st.datetimes(timezones=ZONES))
def test_a_timestamp_with_time_zone_is_microseconds_since_1970_in_utc(moment: datetime) -> None:
    assert parse_timestamp(_as_postgres_prints(moment)) == (moment - EPOCH) // MICROSECOND


@given(st.times())
def test_a_time_is_microseconds_since_midnight(moment: time) -> None:
    since = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond)

    assert parse_time(moment.isoformat()) == since // MICROSECOND


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("0001-01-01", -719_162),
        ("0001-12-31 BC", -719_163),
        ("0001-02-29 BC", -719_469),
        ("4714-11-24 BC", -2_440_588),
        ("10000-01-01", 2_932_897),
        ("5874897-12-31", 2_145_042_905),
        ("infinity", 2**31 - 1),
        ("-infinity", -(2**31)),
    ],
)
def test_dates_that_python_does_not_know_are_exact(text: str, days: int) -> None:
    assert parse_date(text) == days


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2024-02-29 12:00:00.5", 1_709_208_000_500_000),
        ("0044-03-15 12:00:00 BC", -63_517_780_800_000_000),
        ("0044-03-15 12:00:00+01 BC", -63_517_784_400_000_000),
        ("294247-01-10 04:00:54.775806", 2**63 - 2),
        ("294247-01-10 05:00:54.775806+01", 2**63 - 2),
        ("294247-01-10 04:00:54.775807", -(2**63) + 1),
        ("294247-01-10 03:00:54.775808-01", -(2**63) + 2),
        ("294276-12-31 23:59:59.999999", -(2**63) + 1 + 945_979_145_224_192),
        ("4714-11-24 00:00:00 BC", -2_440_588 * 86_400_000_000),
        ("1880-01-01 00:00:00+00:19:32", -2_840_141_972_000_000),
        ("2024-01-01 00:00:00-03:30", 1_704_079_800_000_000),
        ("2024-01-01 00:00:00+05:45", 1_704_046_500_000_000),
        ("infinity", 2**63 - 1),
        ("-infinity", -(2**63)),
    ],
)
def test_timestamps_at_the_edges_are_exact(text: str, microseconds: int) -> None:
    assert parse_timestamp(text) == microseconds


@pytest.mark.parametrize(
    "text",
    ["294277-01-01 00:00:00", "294276-12-31 23:00:00-01", "4714-11-23 23:59:59.999999 BC", "290309-01-01 00:00:00 BC"],
)
def test_a_timestamp_that_postgres_does_not_have_is_refused_since_it_would_read_as_another(text: str) -> None:
    with pytest.raises(ValueError, match="Postgres"):
        parse_timestamp(text)


def test_the_end_of_a_day_is_not_its_beginning() -> None:
    assert parse_time("24:00:00") == 86_400_000_000
    assert parse_time("00:00:00") == 0


@pytest.mark.parametrize("text", ["", "29/02/2024", "2024-02", "2024-02-29 AD", "2024-02-29\n", "Infinity"])
def test_another_date_style_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO"):
        parse_date(text)


@pytest.mark.parametrize("text", ["", "2024-02-29", "Thu Feb 29 12:00:00 2024", "2024-02-29T12:00:00", "12:00:00"])
def test_another_timestamp_style_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO"):
        parse_timestamp(text)


@pytest.mark.parametrize("text", ["", "12:00", "12:00:00+01", "12:00:00.1234567"])
def test_another_time_style_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO"):
        parse_time(text)
