"""What Delta and Spark refuse, told without their own messages: they may hold a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from apply_spark.destinations.spark_jvm import java_classes, told
from apply_spark.errors import DestinationAway, DestinationLocked, DestinationTaken, NotHeld, TableFailed
from schemas.identifiers import TableName

_TAKEN = "io.delta.exceptions.ConcurrentTransactionException"
_CONFLICT = "java.util.ConcurrentModificationException"
_DELTA = ("io.delta.", "org.apache.spark.sql.delta.")
_UNTOLD = "Cannot find main error class 'DELTA_"
"""What Spark says instead of an error of Delta that it has no text for."""


@contextmanager
def refusals(table: TableName) -> Iterator[None]:
    """What Delta refuses to do with a table stops that table only; what Spark cannot do, such as reach the storage, is
    about all of them."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        kinds = java_classes(error)
        if _TAKEN in kinds:
            raise DestinationTaken(f"Another apply has written to the mirror of {table}.") from None
        if _CONFLICT in kinds:
            raise DestinationLocked(
                f"Other commits keep coming to the mirror of {table} ({told(error)}).",
                solution="Let maintenance end, and let nobody else write to a mirror.",
            ) from None
        if isinstance(error, AnalysisException) or kinds[0].startswith(_DELTA) or _UNTOLD in str(error):
            raise TableFailed(
                table,
                NotHeld(
                    f"Delta refuses to write to its mirror ({told(error)}): somebody changed it.",
                    solution="Undo that, or run `penstock resync TABLE`: it makes the mirror anew.",
                ),
            ) from None
        raise DestinationAway(
            f"Spark could not write the mirror of {table} ({told(error)}).",
            solution="Check that the storage is there, has room and may be written by apply and by Spark's executors;"
            " then start apply again.",
        ) from None


def is_conflict(error: Exception) -> bool:
    """Whether another commit came between, such as one of OPTIMIZE: it can be tried again."""
    if not isinstance(error, Py4JJavaError | PySparkException):
        return False
    kinds = java_classes(error)
    return _CONFLICT in kinds and _TAKEN not in kinds
