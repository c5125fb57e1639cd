"""A server that speaks S3, moto's, as a process of its own, with its objects in memory; and accidents of requests."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from typing import Any

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from pyarrow.fs import S3FileSystem
from urllib3 import HTTPResponse

from apply_spark.destinations.parquet_s3 import LogBucket
from console.local_stack.errors import ServerDidNotStart
from console.local_stack.processes import ServerCommand, ServerProcess, free_port, last_lines, listens

KEY_ID, SECRET = "AKIAPENSTOCK", "s3cr3t-of-s3"
REGION = "eu-central-1"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class S3Server:
    """Where it is; every key is let in, until it is told otherwise."""

    endpoint: str

    def made_bucket(self) -> str:
        bucket = f"penstock-{secrets.token_hex(4)}"
        self.client().create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        return bucket

    def client(self) -> Any:  # noqa: ANN401 -- boto3 makes its classes when it runs
        session = boto3.session.Session(KEY_ID, SECRET, region_name=REGION)
        return session.client("s3", endpoint_url=self.endpoint)

    def files(self) -> S3FileSystem:
        """Arrow's own client, as a reader has it."""
        return S3FileSystem(access_key=KEY_ID, secret_key=SECRET, region=REGION, endpoint_override=self.endpoint)

    @contextmanager
    def letting_nobody_in(self) -> Iterator[None]:
        """Whoever has no right by a policy of IAM, which is everybody."""
        self._let_in(0)
        try:
            yield
        finally:
            self._let_in(2**31)

    def _let_in(self, requests: int) -> None:
        told = urllib.request.Request(  # noqa: S310 -- our own server
            f"{self.endpoint}/moto-api/reset-auth", str(requests).encode(), {"Content-Type": "text/plain"}
        )
        with urllib.request.urlopen(told):  # noqa: S310 -- likewise
            pass


@contextmanager
def s3_server() -> Iterator[S3Server]:
    port = free_port()
    process = ServerProcess("s3", None)
    try:
        console = process.directory / "console.log"
        process.start(
            ServerCommand(
                argv=[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log=console,
                end_signal=signal.SIGKILL,
                end_seconds=10.0,
            )
        )
        until = time.monotonic() + _START_SECONDS
        while not listens(port):
            if time.monotonic() > until or not process.running():
                raise ServerDidNotStart(f"moto does not answer: {last_lines(console)}", solution="Look there.")
            time.sleep(0.05)
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.close()


def on_the_way(store: LogBucket, operation: str, happens: Callable[[AWSPreparedRequest], AWSResponse]) -> None:
    """Something happens to the next request of an operation instead of what should."""
    armed = [happens]
    _events(store).register(f"before-send.s3.{operation}", lambda request, **_: armed.pop()(request) if armed else None)


def lose_the_answer(request: AWSPreparedRequest) -> AWSResponse:
    """The server does what it is asked for, and the connection breaks before it can say so."""
    URLLib3Session().send(request)
    raise ConnectionClosedError(endpoint_url=request.url)


def be_in_conflict(request: AWSPreparedRequest) -> AWSResponse:
    """As S3 answers while another write of the same name is under way."""
    body = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"
    return AWSResponse(request.url, HTTPStatus.CONFLICT, {}, HTTPResponse(BytesIO(body), preload_content=False))


def ignore_conditions(store: LogBucket) -> None:
    """As servers do that do not know them."""
    _events(store).register("before-call.s3.PutObject", _without_condition)


def _without_condition(params: dict[str, Any], **_: object) -> None:
    params["headers"].pop("If-None-Match", None)


def _events(store: LogBucket) -> Any:  # noqa: ANN401 -- as above
    return store._client.meta.events
