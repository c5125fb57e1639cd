"""Log set-up for every process: fixed phrases and fields in, lines on stderr out. No line holds a password."""

from __future__ import annotations

import enum
import logging
import sys

import structlog
import structlog.tracebacks
from structlog.types import EventDict, Processor, WrappedLogger

from schemas.settings import without_passwords

_TRACES = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
"""What a function worked with may be a row, or a password."""


class LogFormat(enum.Enum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(enum.Enum):
    """From which importance on a line is written."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING


def format_for_this_terminal() -> LogFormat:
    return LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON


def set_up_logs(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> None:
    """Every logger of this process writes to stderr from now on, those of libraries as well."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            _hide_passwords,
            *_rendering(log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.value),
        # Looked up at each line: whoever replaces stderr for a while (a test, a progress view) gets it back unharmed.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()], force=True)


class _OfLibraries(logging.Handler):
    """Their lines as ours, without tracebacks: what they worked with may be a row."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(record.levelno, record.getMessage(), library=record.name)


def _rendering(log_format: LogFormat) -> list[Processor]:
    match log_format:
        case LogFormat.JSON:
            return [_TRACES, structlog.processors.JSONRenderer(default=str)]
        case LogFormat.TEXT:
            return [
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                )
            ]


def _hide_passwords(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = without_passwords(value)
    return event
