"""PySpark's server for counters, when the Java process that is connected to it ends: nothing is printed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from pyspark.accumulators import _start_update_server
from structlog.testing import capture_logs

from apply_spark.session import say_no_traceback
from tests.support.eventually import eventually

GREETING = "first"
NOTHING = struct.pack("!i", 0)


class Failures:
    """How often the server had to do with an error."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def port(failures: Failures, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    server = _start_update_server(GREETING, is_unix_domain_sock=False)
    say_no_traceback(server)
    told = server.handle_error

    def counted(request: socket.socket, client: tuple[str, int]) -> None:
        told(request, client)
        failures.count += 1

    monkeypatch.setattr(server, "handle_error", counted)
    yield server.server_address[1]
    server.shutdown()


def test_the_end_of_java_prints_nothing(port: int, failures: Failures, capfd: pytest.CaptureFixture[str]) -> None:
    with capture_logs() as logged:
        with socket.create_connection(("127.0.0.1", port)) as java:
            java.sendall(GREETING.encode() + NOTHING)
            assert java.recv(1) == b"\x01"
        eventually(lambda: failures.count, what="the end of the connection")

    assert capfd.readouterr().err == ""
    assert logged == []


def test_any_other_failure_is_told_by_its_kind(
    port: int, failures: Failures, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as logged, socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"wrong")
        eventually(lambda: failures.count, what="the refusal")

    assert capfd.readouterr().err == ""
    assert [(line["event"], line["error"]) for line in logged] == [("counters of Spark failed", "ValueError")]
