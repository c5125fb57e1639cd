"""A store that ends with its process: for tests, dry runs and destinations that remember nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from stores.cached import CachedStore
from stores.relations import RELATIONS, Change, Drop, Put, Relation, Row


class RowsInMemory:
    """Rows in dictionaries, written and read as the durable stores do it."""

    def __init__(self) -> None:
        self._revision = 0
        self._tables: dict[str, dict[Row, Row]] = {relation.name: {} for relation in RELATIONS}

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        yield self._revision

    def rows(self, relation: Relation[Any, Any]) -> Iterable[Row]:
        return list(self._tables[relation.name].values())

    def save(self, changes: Sequence[Change], revision: int) -> None:
        for change in changes:
            match change:
                case Put(relation=relation, key=key, value=value):
                    self._tables[relation.name][relation.key_to_cells(key)] = relation.cells(key, value)
                case Drop(relation=relation, key=key):
                    self._tables[relation.name].pop(relation.key_to_cells(key), None)
                case _:
                    assert_never(change)
        self._revision = revision

    def close(self) -> None:
        pass


class MemoryStore(CachedStore):
    """StateStore, SchemaStore and TableLifecycleStore; nothing of it outlives the process."""

    def __init__(self) -> None:
        super().__init__(RowsInMemory())
