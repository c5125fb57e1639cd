"""Which path writes a table's records: the compiled kernel where it is installed, else the reference path.

Both give the same bytes and the same errors; `PENSTOCK_KERNEL=reference` asks for the slow one.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from capture.transcode import pump, reference, sender
from capture.transcode.contract import Pump, Records, Sender, TableTranscoder
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.table import TableSchema

KERNEL = "PENSTOCK_KERNEL"
_REFERENCE = "reference"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Path:
    """The constructors of transcoders, pumps, batches and senders, which fit together."""

    transcoder: Callable[..., TableTranscoder]
    pump: Callable[..., Pump]
    batch: Callable[[], Records]
    sender: Callable[[Mapping[str, object]], Sender]


def transcoder(
    pipeline: PipelineName,
    database: str,
    table: TableSchema,
    ids: tuple[SchemaId, SchemaId | None],
    epoch: Epoch,
    now_ns: Callable[[], int] = time.time_ns,
) -> TableTranscoder:
    return chosen_path().transcoder(pipeline, database, table, ids, epoch, now_ns)


def chosen_path() -> Path:
    return _path(os.environ.get(KERNEL, ""))


def kernel_path() -> Path | None:
    """The compiled path; None where it is not installed."""
    try:
        from capture.transcode import (  # noqa: PLC0415 -- optional extensions
            kernel,
            kernel_batch,
            kernel_pump,
            kernel_sender,
        )
    except ImportError:
        return None
    return Path(kernel.KernelTranscoder, kernel_pump.KernelPump, kernel_batch.KernelBatch, kernel_sender.KernelSender)


REFERENCE_PATH = Path(reference.Transcoder, pump.Pump, sender.Batch, sender.Sender)


@functools.cache
def _path(wanted: str) -> Path:
    """Decided once a process, so that it is logged once."""
    if wanted == _REFERENCE:
        log.info("transcoding on the reference path", reason=f"{KERNEL} is {_REFERENCE}")
        return REFERENCE_PATH
    compiled = kernel_path()
    if compiled is None:
        log.warning("transcoding on the reference path", reason="the compiled kernel is not installed")
        return REFERENCE_PATH
    log.info("transcoding with the compiled kernel")
    return compiled
