"""Raw records to Arrow in this process, by the compiled decoder: the same rows as `decode.py` has Spark make.

`PENSTOCK_KERNEL=reference` leaves all decoding to Spark, as does an installation without the extension.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import SparkSession

from apply_spark.avro_plan import Damaged, Node, plan
from apply_spark.errors import RecordDamaged
from apply_spark.read import OffsetRange, raw_records
from schemas.connections import KafkaConfig
from schemas.identifiers import SchemaId
from schemas.wire import HEADER_BYTES, header
from stores.kafka_log import KafkaLog
from stores.schema_topic import RegisteredSchema

if TYPE_CHECKING:
    from apply_spark.avro_decoder import AvroDecoder

_KERNEL = "PENSTOCK_KERNEL"
_REFERENCE = "reference"
_FEW_RECORDS, _FEW_TOPICS, _FEW_BYTES = 1000, 10, 1024**2

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


def raw_here(spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[str, OffsetRange]) -> dict[str, RawRecords]:
    """The records of each topic. Spark's plan is the same for any tables, so it is compiled once."""
    raw = raw_records(spark, kafka, ranges)
    if len(ranges) == 1:
        return {
            topic: RawRecords(topic, range_, raw.select("value").toArrow()["value"].chunks)
            for topic, range_ in ranges.items()
        }
    found = {topic: RawRecords(topic, range_, []) for topic, range_ in ranges.items()}
    for batch in raw.toArrow().to_batches():
        topics = batch["topic"].unique().to_pylist()
        for topic in topics:  # one, since a task reads one partition
            mine = batch if len(topics) == 1 else batch.filter(pc.equal(batch["topic"], topic))
            found[topic].values.append(mine["value"])
    return found


def are_few(ranges: Mapping[str, OffsetRange], size: int) -> bool:
    """Whether records of so many bytes are read faster here than by a Spark job, which takes a tenth of a second."""
    records = sum(range_.end - range_.start for range_ in ranges.values())
    return records <= _FEW_RECORDS and len(ranges) <= _FEW_TOPICS and size <= _FEW_BYTES


def few_here(log: KafkaLog, ranges: Mapping[str, OffsetRange]) -> dict[str, RawRecords]:
    """The same as `raw_here`, without Spark."""
    found = {}
    for topic, range_ in ranges.items():
        values = [record.value for record in log.read(topic, *range_)]
        found[topic] = RawRecords(topic, range_, [pa.array(values, pa.binary())])
    return found


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
