"""What Iceberg and Spark refuse, told without their own messages: they may hold a value, or a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from apply_spark.destinations.iceberg_table import Moved
from apply_spark.destinations.spark_jvm import java_causes, told
from apply_spark.errors import DestinationAway, DestinationLocked, NotHeld, TableFailed
from schemas.identifiers import TableName

_ICEBERG = "org.apache.iceberg.exceptions."
_CONFLICTS = frozenset({f"{_ICEBERG}CommitFailedException", f"{_ICEBERG}CommitStateUnknownException"})
"""Of the second it is not known whether the commit was made: whoever tries again looks first."""
_CHANGED = frozenset(
    {f"{_ICEBERG}{name}Exception" for name in ("Validation", "NoSuchTable", "NoSuchNamespace", "AlreadyExists")}
    | {"java.lang.IllegalArgumentException"}
)
"""What Iceberg says of a table that is otherwise than apply left it."""


@contextmanager
def refusals(table: TableName) -> Iterator[None]:
    """What Iceberg refuses to do with a table stops that table only; what Spark cannot do, such as reach the storage or
    the catalog, is about all of them."""
    try:
        yield
    except Moved:
        raise _locked(table) from None
    except (Py4JJavaError, PySparkException) as error:
        if is_conflict(error):
            raise _locked(table) from None
        if isinstance(error, AnalysisException) or _CHANGED & set(java_causes(error)):
            raise TableFailed(
                table,
                NotHeld(
                    f"Iceberg refuses to write to its mirror ({told(error)}): somebody changed it.",
                    solution="Undo that, or run `penstock resync TABLE`: it makes the mirror anew.",
                ),
            ) from None
        raise DestinationAway(
            f"Spark could not write the mirror of {table} ({told(error)}).",
            solution="Check that catalog and storage are there, have room and may be written by apply and by Spark's"
            " executors; then start apply again.",
        ) from None


def is_conflict(error: Exception) -> bool:
    """Whether another commit came between, such as one of rewrite_data_files: it can be tried again."""
    if isinstance(error, Moved):
        return True
    return isinstance(error, Py4JJavaError | PySparkException) and bool(_CONFLICTS & set(java_causes(error)))


def _locked(table: TableName) -> DestinationLocked:
    return DestinationLocked(
        f"Other commits keep coming to the mirror of {table}.",
        solution="Let maintenance end, and let nobody else write to a mirror.",
    )
