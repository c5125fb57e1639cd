"""Raw records to Arrow in this process, by the compiled decoder: the same rows as `decode.py` has Spark make.

`PENSTOCK_KERNEL=reference` leaves all decoding to Spark, as does an installation without the extension.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from apply_spark.avro_plan import Damaged, Node, plan
from apply_spark.errors import RecordDamaged
from apply_spark.read import OffsetRange
from schemas.connections import KafkaConfig
from schemas.identifiers import SchemaId
from schemas.wire import HEADER_BYTES, header
from stores.kafka_log import KafkaLog
from stores.schema_topic import RegisteredSchema

if TYPE_CHECKING:
    from apply_spark.avro_decoder import AvroDecoder

_KERNEL = "PENSTOCK_KERNEL"
_REFERENCE = "reference"

log = structlog.get_logger(__name__)


def is_chosen() -> bool:
    """Whether records are decoded here."""
    return _is_chosen(os.environ.get(_KERNEL, ""))


def is_installed() -> bool:
    try:
        from apply_spark import avro_decoder  # noqa: F401, PLC0415 -- an optional extension
    except ImportError:
        return False
    return True


@functools.cache
def _is_chosen(wanted: str) -> bool:
    """Decided once a process, so that it is logged once."""
    if wanted == _REFERENCE:
        log.info("decoding in Spark", reason=f"{_KERNEL} is {_REFERENCE}")
        return False
    if not is_installed():
        log.warning("decoding in Spark", reason="the compiled decoder is not installed")
        return False
    return True


@dataclass(frozen=True)
class RawRecords:
    """What lies in a range of a topic."""

    topic: str
    range: OffsetRange
    values: list[pa.BinaryArray]

    def __len__(self) -> int:
        return sum(len(array) for array in self.values)

    def heads(self) -> set[bytes | None]:
        """What the records begin with, where the header is; None: a record without a value."""
        heads = [pc.unique(pc.binary_slice(array, 0, HEADER_BYTES)) for array in self.values]
        return {head for some in heads for head in some.to_pylist()}


class ArrowDecoder:
    """Decodes what `reader` names of a record, by plans that it keeps. For one thread, whichever that is."""

    def __init__(self, kafka: KafkaConfig, reader: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._kafka = kafka
        self._reader = reader
        self._made: dict[SchemaId, AvroDecoder] = {}

    def records(self, raw: RawRecords, schema: RegisteredSchema) -> pa.ChunkedArray:
        """Those of the schema, as structs. RecordDamaged: one is not what the schema says."""
        decoder = self._made.get(schema.id)
        if decoder is None:
            decoder = _decoder(header(schema.id), plan(schema.avro, self._reader(schema.avro)))
            self._made[schema.id] = decoder
        return pa.chunked_array([self._decoded(decoder, raw, array) for array in raw.values], decoder.type)

    def _decoded(self, decoder: AvroDecoder, raw: RawRecords, array: pa.BinaryArray) -> pa.StructArray:
        try:
            return decoder.decode(array)
        except Damaged as damaged:
            value = array[damaged.row].as_py()
            with KafkaLog(self._kafka) as log:
                offset = next((each.offset for each in log.read(raw.topic, *raw.range) if each.value == value), None)
            raise RecordDamaged(f"Topic {raw.topic} has a damaged record at offset {offset}: {damaged}.") from None


def _decoder(schema_header: bytes, root: Node) -> AvroDecoder:
    from apply_spark.avro_decoder import AvroDecoder  # noqa: PLC0415 -- an optional extension

    return AvroDecoder(schema_header, root)
