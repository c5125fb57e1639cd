"""What a destination shows, as its configuration says: which tables, under which names, and how much of each column.

Rules go by the names that the source has. What was in force is stored with the progress, without any secret, so that
the next start can tell which tables are to be shown in another way now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from apply_spark.config import DestinationConfig, Mode, OnNewShape, Treatment
from schemas.identifiers import TableName
from schemas.patterns import is_wild, matching
from schemas.table import TableSchema

_ALL = ("*",)
_LEAST_FIRST = (Treatment.DROP, Treatment.NULL, Treatment.HASH, Treatment.SHOW)
Look: TypeAlias = tuple[TableName, tuple[Treatment, ...], str, Mode]
"""Of two that are equal, a mirror has the same name, columns and values."""


@dataclass(frozen=True)
class Showing:
    """Without anything configured, everything as it is."""

    tables: tuple[str, ...] = _ALL
    rename: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Treatment] = field(default_factory=dict)
    salted: str = ""
    """Tells one salt from another, and nothing about either."""
    mode: Mode = Mode.MIRROR
    on_new_shape: OnNewShape = OnNewShape.EVOLVE
    on_new_shape_of: Mapping[str, OnNewShape] = field(default_factory=dict)

    @classmethod
    def configured(cls, config: DestinationConfig) -> Showing:
        return cls(
            tables=config.tables,
            rename=config.rename,
            columns=config.columns,
            salted=_mark(salt_of(config)),
            mode=config.mode,
            on_new_shape=config.on_new_shape,
            on_new_shape_of=config.on_new_shape_of,
        )

    @classmethod
    def remembered(cls, told: str) -> Showing:
        """What `told` gave; the policies are not part of it."""
        if not told:
            return cls()
        data = json.loads(told)
        columns = {pattern: Treatment(how) for pattern, how in data["columns"].items()}
        mode = Mode(data.get("mode", Mode.MIRROR.value))
        return cls(tuple(data["tables"]), data["rename"], columns, data["salted"], mode)

    @property
    def told(self) -> str:
        """For the progress. Empty: everything as it is."""
        if (self.tables, self.rename, self.columns, self.mode) == (_ALL, {}, {}, Mode.MIRROR):
            return ""
        columns = {pattern: how.value for pattern, how in self.columns.items()}
        data = {"tables": self.tables, "rename": self.rename, "columns": columns, "salted": self.salted}
        data |= {} if self.mode is Mode.MIRROR else {"mode": self.mode.value}
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    def selects(self, table: TableName) -> bool:
        return bool(matching([table], self.tables))

    def name_of(self, table: TableName) -> TableName:
        """What the destination calls it."""
        whole = self.rename.get(str(table))
        if whole is not None:
            schema, _, name = whole.partition(".")
            return TableName(schema, name)
        return TableName(self.rename.get(table.schema, table.schema), table.name)

    def rule(self, table: TableName, column: str) -> Treatment | None:
        """What is said of the column; None: nothing, and so it is shown."""
        name = f"{table}.{column}"
        exact = self.columns.get(name)
        if exact is not None:
            return exact
        found = [how for pattern, how in self.columns.items() if is_wild(pattern) and fnmatchcase(name, pattern)]
        return min(found, key=_LEAST_FIRST.index, default=None)

    def treatment(self, table: TableName, column: str) -> Treatment:
        return self.rule(table, column) or Treatment.SHOW

    def dropped(self, schema: TableSchema) -> list[str]:
        """Columns of which the destination does not even have the name."""
        names = [column.name for column in schema.columns]
        return [name for name in names if self.treatment(schema.name, name) is Treatment.DROP]

    def unmatched(self, schema: TableSchema) -> list[str]:
        """Columns that rules name in full, and the table does not have."""
        prefix, known = f"{schema.name}.", {column.name for column in schema.columns}
        named = [rule.removeprefix(prefix) for rule in self.columns if not is_wild(rule) and rule.startswith(prefix)]
        return [name for name in named if name not in known]

    def look(self, schema: TableSchema) -> Look:
        treatments = tuple(self.treatment(schema.name, column.name) for column in schema.columns)
        salted = self.salted if Treatment.HASH in treatments else ""
        return self.name_of(schema.name), treatments, salted, self.mode

    def policy(self, table: TableName) -> OnNewShape:
        fitting = (policy for pattern, policy in self.on_new_shape_of.items() if fnmatchcase(str(table), pattern))
        return next(fitting, self.on_new_shape)


EVERYTHING = Showing()


def salt_of(config: DestinationConfig) -> bytes:
    return config.salt.get_secret_value().encode() if config.salt is not None else b""


def _mark(salt: bytes) -> str:
    return hashlib.sha256(b"penstock salt\0" + salt).hexdigest()[:8] if salt else ""
