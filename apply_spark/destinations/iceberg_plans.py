"""The plans of an Iceberg destination: the newest is a property of a small table of its own, `penstock.<destination>`.

A plan is added by the commit of iceberg_table.py, which fails if anybody else has added one: so it is also the
compare-and-set of the destination.
"""

from __future__ import annotations

import stamina
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import StringType, StructField, StructType

from apply_spark.destinations.caseless_names import OWN_SCHEMA
from apply_spark.destinations.iceberg_refusals import is_conflict
from apply_spark.destinations.iceberg_table import PASSING, Catalog, Table
from apply_spark.destinations.plans import Plan, taken
from schemas.identifiers import DestinationName
from schemas.topics import escaped

_ATTEMPTS = 5
_PLACE, _PLAN = "penstock.place", "penstock.plan"
_NO_ROWS = StructType([StructField("plan", StringType())])
_EXPIRE_EVERY = 50
"""A plan leaves a snapshot without rows; so many are kept at most."""


class IcebergPlans:
    """The table of one destination."""

    def __init__(self, catalog: Catalog, name: DestinationName, properties: dict[str, str]) -> None:
        self._catalog = catalog
        self._name = escaped(name)
        self._properties = properties

    def newest(self) -> tuple[int, Plan | None]:
        table = self._table()
        if table is None:
            self._create()
            table = self._there()
        return _newest(table)

    def add(self, place: int, plan: Plan) -> None:
        for attempt in stamina.retry_context(on=is_conflict, attempts=_ATTEMPTS):
            with attempt:
                self._add(place, plan)
        if place % _EXPIRE_EVERY == 0:
            self._there().expire()

    def _add(self, place: int, plan: Plan) -> None:
        """Also where it was made by an attempt that Iceberg knew no end of."""
        transaction = self._there().begin()
        text = plan.to_json()
        has, found = transaction.property(_PLACE), transaction.property(_PLAN)
        if has == str(place) and found == text:
            return
        if has != str(place - 1) and not (has is None and place == 1):
            raise taken(f"the plans of {self._name} in {self._catalog.name}")
        transaction.move(PASSING)
        transaction.commit({_PLACE: str(place), _PLAN: text})

    def _create(self) -> None:
        try:
            self._catalog.create(OWN_SCHEMA, self._name, _NO_ROWS, self._properties).commit({})
        except Py4JJavaError:
            if self._table() is None:
                raise

    def _table(self) -> Table | None:
        return self._catalog.table(OWN_SCHEMA, self._name)

    def _there(self) -> Table:
        table = self._table()
        if table is None:
            raise taken(f"the plans of {self._name} in {self._catalog.name}, or somebody removed them")
        return table


def _newest(table: Table) -> tuple[int, Plan | None]:
    place, plan = table.property(_PLACE), table.property(_PLAN)
    return (0, None) if place is None or plan is None else (int(place), Plan.from_json(plan))
