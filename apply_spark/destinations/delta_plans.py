"""The plans of a Delta destination: one small file each, beside the mirrors.

The file of a number can be made once (the store of Delta's own log sees to that), so it is also the compare-and-set of
the destination: whoever does not make the next file has been replaced.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from apply_spark.destinations.plans import Plan, taken
from apply_spark.destinations.spark_jvm import java_class, jvm, jvm_session

_PATH, _CONVERTERS = "org.apache.hadoop.fs.Path", "scala.jdk.javaapi.CollectionConverters"
_KEPT = 8
"""Files of plans that are done, for whoever wants to know what happened."""


class DeltaPlans:
    """The files of one destination, in a folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm, session = jvm(spark), jvm_session(spark)
        self._configuration = session.sessionState().newHadoopConf()
        self._store = self._java("org.apache.spark.sql.delta.storage.LogStore").apply(session)
        self._folder = folder
        self._files = self._path(0).getFileSystem(self._configuration)

    def newest(self) -> tuple[int, Plan | None]:
        self._files.mkdirs(self._java(_PATH)(self._folder))
        numbers = self._numbers(0)
        for old in numbers[: -_KEPT - 1]:
            self._files.delete(self._path(old), False)
        if not numbers:
            return 0, None
        lines = self._list(self._store.read(self._path(numbers[-1]), self._configuration))
        return numbers[-1], Plan.from_json("".join(lines))

    def add(self, place: int, plan: Plan) -> None:
        lines = self._java("java.util.List").of(plan.to_json())
        scala = self._java(_CONVERTERS).asScala(lines).iterator()
        try:
            self._store.write(self._path(place), scala, False, self._configuration)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            raise taken(self._folder) from None
        if self._numbers(place)[-1] != place:  # the file was there and is gone again: a successor is far ahead
            raise taken(self._folder)
        if place > _KEPT:
            self._files.delete(self._path(place - _KEPT), False)

    def _path(self, number: int) -> Any:  # noqa: ANN401 -- an object of the JVM
        return self._java(_PATH)(f"{self._folder}/{number:020}.json")

    def _numbers(self, first: int) -> list[int]:
        found = self._list(self._store.listFrom(self._path(first), self._configuration))
        names = [str(status.getPath().getName()) for status in found]
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def _list(self, scala: Any) -> list[Any]:  # noqa: ANN401
        return list(self._java(_CONVERTERS).asJava(scala))

    def _java(self, name: str) -> Any:  # noqa: ANN401
        return java_class(self._jvm, name)
