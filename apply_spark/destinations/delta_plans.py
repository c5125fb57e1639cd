"""What a Delta destination is about to write, told before it does: one small file a plan, beside the mirrors.

The file of a number can be made once (the store of Delta's own log sees to that), so it is also the compare-and-set of
the destination: whoever does not make the next file has been replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from apply_spark.destinations.delta_mirror import jvm, jvm_session
from apply_spark.errors import DestinationTaken
from apply_spark.progress import Progress
from schemas.identifiers import TableName

_KEPT = 8
"""Files of plans that are done, for whoever wants to know what happened."""


@dataclass(frozen=True)
class Plan:
    """The progress that the commits of these tables lead to, and the one from which they lead."""

    owner: int
    number: int
    """By which the commits are known. A start repeats the plan that it finds, under its owner, in the next file."""
    after: Progress | None
    before: Progress | None = None
    tables: tuple[TableName, ...] = ()

    def reached(self, done: Sequence[TableName]) -> Progress | None:
        """What the destination holds, given the tables whose commits were made."""
        if len(done) == len(self.tables) or self.after is None:
            return self.after
        if self.before is None:
            return None
        return self.before.with_tables(*[self.after.tables[table] for table in done])

    def to_json(self) -> str:
        fields = {"owner": self.owner, "number": self.number, "tables": [list(table) for table in self.tables]}
        return json.dumps(fields | {"after": _stored(self.after), "before": _stored(self.before)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        fields = json.loads(text)
        return cls(
            owner=fields["owner"],
            number=fields["number"],
            after=_restored(fields["after"]),
            before=_restored(fields["before"]),
            tables=tuple(TableName(*table) for table in fields["tables"]),
        )


def _stored(progress: Progress | None) -> Any:  # noqa: ANN401 -- JSON
    return None if progress is None else progress.stored()


def _restored(stored: Any) -> Progress | None:  # noqa: ANN401 -- JSON
    return None if stored is None else Progress.restored(tuple(stored[0]), stored[1][2])


class Plans:
    """The files of one destination, in a folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm, session = jvm(spark), jvm_session(spark)
        self._configuration = session.sessionState().newHadoopConf()
        self._store = self._jvm.org.apache.spark.sql.delta.storage.LogStore.apply(session)
        self._folder = folder
        self._files = self._path(0).getFileSystem(self._configuration)

    def newest(self) -> tuple[int, Plan | None]:
        """With the number of its file."""
        self._files.mkdirs(self._jvm.org.apache.hadoop.fs.Path(self._folder))
        numbers = self._numbers(0)
        for old in numbers[: -_KEPT - 1]:
            self._files.delete(self._path(old), False)
        if not numbers:
            return 0, None
        lines = self._list(self._store.read(self._path(numbers[-1]), self._configuration))
        return numbers[-1], Plan.from_json("".join(lines))

    def add(self, number: int, plan: Plan) -> None:
        """DestinationTaken: somebody else made that file, or a later one."""
        lines = self._jvm.java.util.List.of(plan.to_json())
        scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(lines).iterator()
        try:
            self._store.write(self._path(number), scala, False, self._configuration)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            raise _taken(self._folder) from None
        if self._numbers(number)[-1] != number:  # the file was there and is gone again: a successor is far ahead
            raise _taken(self._folder)
        if number > _KEPT:
            self._files.delete(self._path(number - _KEPT), False)

    def _path(self, number: int) -> Any:  # noqa: ANN401 -- an object of the JVM
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{number:020}.json")

    def _numbers(self, first: int) -> list[int]:
        found = self._list(self._store.listFrom(self._path(first), self._configuration))
        names = [str(status.getPath().getName()) for status in found]
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def _list(self, scala: Any) -> list[Any]:  # noqa: ANN401
        return list(self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(scala))


def _taken(folder: str) -> DestinationTaken:
    return DestinationTaken(f"Another apply has written to {folder}.")
