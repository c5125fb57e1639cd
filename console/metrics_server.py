"""Prometheus metrics of one stage, served on a port for as long as the stage runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from schemas.errors import ConfigError


@contextmanager
def serving_metrics(port: int | None, key: str) -> Iterator[None]:
    """Nothing is served without a port. A port that is taken is an error that names the key."""
    if port is None:
        yield
        return
    try:
        server, thread = start_http_server(port)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served on port {port}: {error.strerror}.",
            solution=f"Set `{key}` to a free port; each stage on a host needs its own.",
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
