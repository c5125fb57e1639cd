"""Mode `history` where every row was sent whole: the same as `versions`, in this process, as Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from apply_spark.by_key import ByKey, repeated_names
from apply_spark.config import Mode
from apply_spark.modes import OPEN, VALID_FROM, VALID_FROM_LSN, VALID_TO_LSN, own_columns
from apply_spark.truncates import Truncate, is_before
from schemas.envelope import avro_name
from schemas.table import TableSchema


def versions_here(records: pa.Table, schema: TableSchema, truncates: Sequence[Truncate], held: int) -> pa.Table:
    """`held` is where the destination has the versions that were current before the interval."""
    found = ByKey.of(records, schema)
    key_numbers = np.cumsum(found.is_first) - 1
    existed = ~found.has_op("c")[found.is_first]
    last = np.flatnonzero(_is_last_of_transaction(found))
    changes, numbers = found.taken(last), key_numbers[last]
    is_first = np.diff(numbers, prepend=-1) > 0
    begins, (ends, end_times) = changes.numbers("commit_lsn"), _ends(changes, numbers, truncates)
    is_seen = ~changes.has_op("d") & (begins < ends)
    is_end = is_first & existed[numbers]
    is_taken = np.zeros(len(existed), dtype=bool)
    is_taken[numbers[(is_seen & (ends == held)) | (is_end & (begins == held))]] = True
    return pa.concat_tables(
        [
            _versions(_where(changes, is_seen), schema, ends[is_seen], end_times.filter(pa.array(is_seen))),
            _ended(_where(changes, is_end), schema, held),
            _gone(_where(changes, is_end & ~is_taken[numbers]), schema, held),
        ]
    )


def _is_last_of_transaction(found: ByKey) -> np.ndarray:
    lsn = found.numbers("commit_lsn")
    return np.asarray(found.is_last | np.append(lsn[1:] != lsn[:-1], True)[: len(lsn)])


def _ends(changes: ByKey, numbers: np.ndarray, truncates: Sequence[Truncate]) -> tuple[np.ndarray, pa.Array]:
    """Where each version ends, and when: at the next change of its key, or at a truncate before that."""
    lsn, count = changes.numbers("commit_lsn"), len(numbers)
    is_ended = np.append(numbers[1:] == numbers[:-1], False)[:count]
    following = np.minimum(np.arange(count) + 1, max(count - 1, 0))
    ends = np.where(is_ended, lsn[following], OPEN)
    times = changes.records["ts_us"].combine_chunks().take(pa.array(following, mask=~is_ended))
    for truncate in reversed(truncates):
        before = is_before(changes, truncate) & (truncate.lsn < ends)
        ends[before] = truncate.lsn
        times = pc.if_else(pa.array(before), pa.scalar(truncate.ts, pa.int64()), times)
    return ends, times


def _where(changes: ByKey, which: np.ndarray) -> ByKey:
    return changes.taken(np.flatnonzero(which))


def _versions(changes: ByKey, schema: TableSchema, ends: np.ndarray, end_times: pa.Array) -> pa.Table:
    after = changes.records["after"].combine_chunks()
    values = {field: pc.struct_field(after, field) for field in _fields(schema)}
    own = [changes.records["ts_us"], end_times, changes.records["commit_lsn"], ends]
    nothing = np.zeros(len(ends), dtype=bool)
    key = _key(changes, ends)
    return _events(key, _row(own, values), repeated_names(nothing, []), pc.if_else(pa.array(nothing), key, None))


def _ended(changes: ByKey, schema: TableSchema, held: int) -> pa.Table:
    """The version that was current before the interval, where it ends: nothing else of it is known here."""
    count, ends, times = len(changes.is_first), changes.numbers("commit_lsn"), changes.records["ts_us"]
    image, unknown = changes.records.schema.field("after").type, pa.nulls(count, pa.int64())
    values = {f: changes.keys.get(f, pa.nulls(count, image.field(f).type)) for f in _fields(schema)}
    missing = [VALID_FROM.name, VALID_FROM_LSN.name, *[f for f in _fields(schema) if f not in changes.keys]]
    row = _row([unknown, times, unknown, ends], values)
    everywhere = np.ones(count, dtype=bool)
    return _events(_key(changes, ends), row, repeated_names(everywhere, missing), _key(changes, np.full(count, held)))


def _gone(changes: ByKey, schema: TableSchema, held: int) -> pa.Table:
    """Nothing takes the place of the version from before."""
    like = _ended(changes, schema, held)
    nothing = np.zeros(like.num_rows, dtype=bool)
    no_row, no_base = (pc.if_else(pa.array(nothing), like[image], None) for image in ("row", "base"))
    return _events(like["base"], no_row, repeated_names(nothing, []), no_base, deleted=True)


def _events(key: pa.Array, row: pa.Array, missing: pa.Array, base: pa.Array, *, deleted: bool = False) -> pa.Table:
    are_deleted = np.full(len(key), deleted)
    return pa.table({"deleted": are_deleted, "key": key, "row": row, "missing": missing, "base": base})


def _row(own: Sequence[pa.Array | np.ndarray], values: Mapping[str, pa.Array]) -> pa.Array:
    ours = dict(zip([column.name for column in own_columns(Mode.HISTORY)], own, strict=True))
    return pa.table({**ours, **values}).to_struct_array()


def _key(changes: ByKey, ends: np.ndarray) -> pa.Array:
    return pc.make_struct(pa.array(ends), *changes.keys.values(), field_names=[VALID_TO_LSN.name, *changes.keys])


def _fields(schema: TableSchema) -> list[str]:
    return [avro_name(column.name) for column in schema.columns]
