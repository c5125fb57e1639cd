"""What Delta and Spark refuse, told without their own messages: they may hold a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destinations.delta_types import delta_type, misfit
from apply_spark.errors import DestinationAway, DestinationLocked, DestinationTaken, NotHeld, TableFailed
from schemas.table import TableSchema

_TAKEN = "io.delta.exceptions.ConcurrentTransactionException"
_CONFLICT = "java.util.ConcurrentModificationException"
_DELTA = ("io.delta.", "org.apache.spark.sql.delta.")
_UNTOLD = "Cannot find main error class 'DELTA_"
"""What Spark says instead of an error of Delta that it has no text for."""


@contextmanager
def refusals(schema: TableSchema) -> Iterator[None]:
    """What Delta refuses to do with a table stops that table only; what Spark cannot do, such as reach the storage, is
    about all of them."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        kinds = _java_classes(error)
        if _TAKEN in kinds:
            raise DestinationTaken(f"Another apply has written to the mirror of {schema.name}.") from None
        if _CONFLICT in kinds:
            raise DestinationLocked(
                f"Other commits keep coming to the mirror of {schema.name} ({_told(error, kinds)}).",
                solution="Let maintenance end, and let nobody else write to a mirror.",
            ) from None
        if isinstance(error, AnalysisException) or kinds[0].startswith(_DELTA) or _UNTOLD in str(error):
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"Delta refuses to write to its mirror ({_told(error, kinds)}): somebody changed it.",
                    solution="Undo that, or run `penstock resync TABLE`: it makes the mirror anew.",
                ),
            ) from None
        raise DestinationAway(
            f"Spark could not write the mirror of {schema.name} ({_told(error, kinds)}).",
            solution="Check that the storage is there, has room and may be written by apply and by Spark's executors;"
            " then start apply again.",
        ) from None


def is_conflict(error: Exception) -> bool:
    """Whether another commit came between, such as one of OPTIMIZE: it can be tried again."""
    if not isinstance(error, Py4JJavaError | PySparkException):
        return False
    kinds = _java_classes(error)
    return _CONFLICT in kinds and _TAKEN not in kinds


def refuse_unheld_values(rows: DataFrame, schema: TableSchema) -> None:
    """One job, and none where the types of the table hold every value. TableFailed: a value has no place."""
    images = [("row", schema.columns), ("key", schema.key if "key" in rows.columns else ())]
    checks = [(column, misfit(column, image)) for image, columns in images for column in columns]
    risky = [(column, check) for column, check in checks if check is not None]
    if not risky:
        return
    counts = rows.agg(*[F.count_if(check) for _, check in risky]).collect()[0]
    for (column, _), count in zip(risky, counts, strict=True):
        if count:
            held = delta_type(column)
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"A value does not fit column {column.name} ({held.name}) in Delta: it has no place for"
                    f" {held.unheld}.",
                    solution="Change the value, or leave the column out of the publication; then"
                    " run `penstock resync TABLE`.",
                ),
            )


def _java_classes(error: Py4JJavaError | PySparkException) -> list[str]:
    """Of the exception in the JVM: its class, and those that it extends."""
    thrown: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    kind = thrown.getClass() if thrown is not None else None
    names = []
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return names or [type(error).__name__]


def _told(error: Py4JJavaError | PySparkException, kinds: list[str]) -> str:
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or kinds[0].rsplit(".", 1)[-1]
