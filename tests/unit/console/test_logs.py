"""What a log line never has: a password, or what a function worked with when it failed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from console.logs import LogFormat, set_up_logs


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    handlers = logging.root.handlers[:]
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers


@pytest.mark.parametrize("log_format", LogFormat)
def test_an_error_is_logged_without_the_values_of_its_functions(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs(log_format)
    log = structlog.get_logger("test")

    def failing(row: str) -> None:
        raise ValueError(len(row))

    try:
        failing("a private row")
    except ValueError:
        log.exception("it failed")
    logged = capsys.readouterr().err

    assert "it failed" in logged
    assert "failing" in logged, "where it was"
    assert "a private row" not in logged.replace('failing("a private row")', "")
    if log_format is LogFormat.JSON:
        json.loads(logged)


def test_a_password_in_a_field_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.JSON)

    structlog.get_logger("test").warning("away", dsn="postgresql://shop:s3cr3t@db/shop", said="password='s3 cr3t' x")
    logged = capsys.readouterr().err

    assert "s3" not in logged
    assert "shop:***@db" in logged


@pytest.mark.parametrize("log_format", LogFormat)
def test_what_a_library_logs_is_a_line_like_ours_without_a_traceback(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs(log_format)

    try:
        raise ValueError("a private row")
    except ValueError:
        logging.exception("sending failed")  # noqa: LOG015 -- as py4j does
    logging.getLogger("a.library").info("chatter")
    logged = capsys.readouterr().err

    assert logged.count("\n") == 1
    assert "sending failed" in logged
    assert "private" not in logged
