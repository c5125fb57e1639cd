"""What lies on the copy topic of a table: which ranges were read, under which snapshots, and how many rows of each."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from apply_spark.arrow_decode import ArrowDecoder, RawRecords
from apply_spark.read import OffsetRange
from capture.table_sync.ranges import CopyRange
from schemas.envelope import reader_schema
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.topics import Topics
from schemas.wire import schema_id_of
from stores.schema_topic import SchemaTopic
from tests.support.pipeline import Pipeline
from tests.support.shared_log import shared_log

_ROWS_OF_A_RANGE = CopyRange(1).first_ordinal


class Reading(NamedTuple):
    """A range that was read, to its end or not."""

    snapshot: Lsn
    range: int


def readings(pipeline: Pipeline, table: str, generation: Lsn) -> Counter[Reading]:
    """How many rows each reading of a range left on the topic."""
    config = pipeline.config()
    topics = Topics(config.pipeline)
    topic = topics.copy(TableName("public", table), generation)
    with shared_log(config.kafka) as log:
        schemas = SchemaTopic(config.kafka, log, topics.schemas)
        values = [record.value for record in log.read_all(topic)]
        assert values[0] is not None
        schema = schemas.get(schema_id_of(values[0]))
    raw = RawRecords(topic, OffsetRange(0, len(values)), [pa.array(values, pa.binary())])
    source = pa.Table.from_struct_array(ArrowDecoder(config.kafka, reader_schema).records(raw, schema))["source"]
    positions = pa.Table.from_struct_array(source.combine_chunks())
    parts = positions["ordinal"].to_numpy() // _ROWS_OF_A_RANGE
    pairs, counts = np.unique(np.stack([positions["commit_lsn"].to_numpy(), parts]), axis=1, return_counts=True)
    return Counter({Reading(Lsn(lsn), int(part)): int(rows) for lsn, part, rows in zip(*pairs, counts, strict=True)})


def logged(pipeline: Pipeline, event: str, table: str) -> list[dict[str, Any]]:
    """What capture said of a table, in all of its lives."""
    logs = sorted(pipeline.folder.glob("capture*.log"), key=lambda log: (len(log.name), log.name))
    lines = [line for log in logs for line in log.read_text().splitlines() if f'"{event}"' in line]
    entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if entry["table"] == str(TableName("public", table))]
