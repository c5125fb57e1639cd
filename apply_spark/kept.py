"""The records of one table in one interval to what they do to it at the destination, by the mode of that."""

from __future__ import annotations

from typing import assert_never

from apply_spark.change_log import logged
from apply_spark.config import Mode
from apply_spark.destination import TableChanges
from apply_spark.fold import Contents, fold, is_simple, latest
from apply_spark.progress import TableProgress
from apply_spark.rows import ArrowRows, Rows, SparkRows
from apply_spark.showing import Showing
from apply_spark.soft_deletes import marked_rows
from apply_spark.versions import versions
from schemas.table import TableSchema


def kept_changes(
    showing: Showing, table: TableProgress, records: Rows, schema: TableSchema, found: Contents
) -> TableChanges:
    """In the schema that `apply_spark.modes` says; in that of the source where they are to be mirrored."""
    mode = Mode.MIRROR if _is_mirrored(showing.mode, table) else showing.mode
    match mode:
        case Mode.MIRROR:
            return mirrored(records, schema, found)
        case Mode.LOG:
            return logged(records, schema, showing.dropped(schema))
        case Mode.SOFT_DELETE:
            return marked_rows(records, schema, found)
        case Mode.HISTORY:
            return versions(records, schema, found)
        case _:
            assert_never(mode)


def mirrored(records: Rows, schema: TableSchema, found: Contents) -> TableChanges:
    """The last image of each key."""
    folded: Rows
    if isinstance(records, ArrowRows) and is_simple(records.rows, schema, found):
        folded = ArrowRows(records.spark, latest(records.rows, schema, found))
    else:
        folded = SparkRows(fold(records.frame(), schema, found))
    return TableChanges(schema, found.truncated_at is not None, folded, found.partial > 0)


def _is_mirrored(mode: Mode, table: TableProgress) -> bool:
    """The rows of a resumed copy have seen some of the changes that come after it: until these are passed, nobody knows
    what such a change found there. Only a log does not mind."""
    return mode is not Mode.LOG and table.repeats and table.lsn < table.last_snapshot
