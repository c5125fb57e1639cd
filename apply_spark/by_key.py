"""Records of one table, in this process, sorted by their keys and then by their positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from apply_spark.fold import keys_of
from schemas.envelope import avro_name
from schemas.table import TableSchema


@dataclass(frozen=True)
class ByKey:
    """Without truncates, in one chunk."""

    records: pa.Table
    keys: dict[str, pa.Array]
    """By the field of each column of the key."""
    is_first: np.ndarray
    """Of its key."""

    @classmethod
    def of(cls, records: pa.Table, schema: TableSchema) -> ByKey:
        """Of a table that has a key which can be compared: see `apply_spark.fold.is_simple`."""
        names = [f"k{index}" for index in range(len(schema.key))]
        records = pa.table([*keys_of(records, schema), *records.columns], [*names, *records.column_names])
        records = records.filter(pc.not_equal(records["op"], "t"))
        order = [(name, "ascending") for name in (*names, "commit_lsn", "ordinal")]
        records = records.sort_by(order).combine_chunks()
        keys = {avro_name(c.name): records[name].combine_chunks() for c, name in zip(schema.key, names, strict=True)}
        is_first = np.ones(records.num_rows, dtype=bool)
        for place, key in enumerate(keys.values()):
            differs = pc.not_equal(key.slice(1), key.slice(0, max(len(key) - 1, 0))).to_numpy(zero_copy_only=False)
            is_first[1:] = differs if place == 0 else is_first[1:] | differs
        return cls(records, keys, is_first)

    @property
    def is_last(self) -> np.ndarray:
        return np.append(self.is_first[1:], True)[: len(self.is_first)]

    def taken(self, places: np.ndarray) -> ByKey:
        """Some of the records, in this order; which is the first of its key is as before."""
        chosen = pa.array(places)
        keys = {field: key.take(chosen) for field, key in self.keys.items()}
        return ByKey(self.records.take(chosen), keys, self.is_first[places])

    def numbers(self, column: str) -> np.ndarray:
        return np.asarray(self.records[column].to_numpy())

    def has_op(self, op: str) -> np.ndarray:
        return np.asarray(pc.equal(self.records["op"], op).to_numpy())


def repeated_names(which: np.ndarray, names: list[str]) -> pa.Array:
    """A list for each row: the names where it is meant, none elsewhere."""
    ends = np.cumsum(which * len(names))
    offsets = pa.array(np.append(0, ends).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(names * int(which.sum()), pa.string()))
