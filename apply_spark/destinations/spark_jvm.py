"""The JVM behind Spark, for what PySpark has no word for; and what it throws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:  # noqa: ANN401 -- what it has is known at run time
    """Classes that Spark has loaded, by their names."""
    return spark._jvm  # noqa: SLF001


def java_class(java: Any, name: str) -> Any:  # noqa: ANN401
    """A class by its full name. Asked for package by package, the JVM looks for a class of each prefix in every jar."""
    return JavaClass(name, java._gateway_client)  # noqa: SLF001


def jvm_session(spark: SparkSession) -> Any:  # noqa: ANN401
    return spark._jsparkSession  # noqa: SLF001


def java_classes(error: Py4JJavaError | PySparkException) -> list[str]:
    """Of the exception in the JVM: its class, and those that it extends."""
    return _lineage(_thrown(error)) or [type(error).__name__]


def java_causes(error: Py4JJavaError | PySparkException) -> list[str]:
    """The same, followed by those of every exception that caused it."""
    return [name for thrown in _causes(error) for name in _lineage(thrown)] or [type(error).__name__]


def told(error: Py4JJavaError | PySparkException) -> str:
    """What may be said of it: its message may hold a value, or a password."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or java_classes(error)[0].rsplit(".", 1)[-1]


def _thrown(error: Py4JJavaError | PySparkException) -> Any:  # noqa: ANN401 -- an object of the JVM
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def _causes(error: Py4JJavaError | PySparkException) -> Iterator[Any]:
    thrown = _thrown(error)
    while thrown is not None:
        yield thrown
        thrown = thrown.getCause()


def _lineage(thrown: Any) -> list[str]:  # noqa: ANN401
    kind = thrown.getClass() if thrown is not None else None
    names = []
    while kind is not None:
        names.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return names
