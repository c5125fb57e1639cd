"""Clients of the log that are kept between looks: to make one costs the broker and the test more than to look."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog

_KEPT: dict[tuple[int, str], KafkaLog] = {}
"""By thread, for a client is not safe for several, and by broker."""


@contextmanager
def shared_log(config: KafkaConfig) -> Iterator[KafkaLog]:
    """One that met an error is not used again."""
    place = threading.get_ident(), config.bootstrap_servers
    log = _KEPT.pop(place, None) or KafkaLog(config)
    yield log
    _KEPT[place] = log
