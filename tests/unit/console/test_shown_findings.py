"""What doctor says of `tables`, `columns` and `rename` of a destination."""

from __future__ import annotations

from typing import Any

from apply_spark.config import DestinationConfig
from capture.findings import Severity
from console.shown_findings import shown_findings
from schemas.identifiers import DestinationName, TableName
from schemas.table import TableSchema
from tests.support.builders import a_column, a_table

DATE = 1082
CUSTOMERS = a_table(
    a_column("id", key=True), a_column("email"), a_column("born", DATE), name=TableName("public", "customers")
)
ORDERS = a_table(a_column("id", key=True), name=TableName("public", "orders"))
PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING


BAG = a_table(a_column("n"), name=TableName("public", "bag"))


def told(*further: TableSchema, **options: Any) -> list[tuple[Severity, str]]:  # noqa: ANN401 -- as a file has them
    config = DestinationConfig.model_validate({"type": "memory", **options})
    published = [CUSTOMERS, ORDERS, *further]
    return [(each.severity, each.reason) for each in shown_findings(DestinationName("lake"), config, published)]


def test_what_fits_the_published_tables_is_not_talked_about() -> None:
    columns = {"public.customers.email": "hash", "*.*.born": "drop"}
    assert told(tables=["public.*", "!public.orders"], columns=columns, rename={"public": "shop"}) == []


def test_a_slip_in_a_name_is_told_for_nothing_is_hidden_by_it() -> None:
    assert told(columns={"public.customers.emial": "hash", "*.*.phone": "drop"}) == [
        (
            PROBLEM,
            "Its `columns` names public.customers.emial, which no published column fits: nothing is hidden by it.",
        ),
        (WARNING, "Its `columns` names *.*.phone, which no published column fits: nothing is hidden by it."),
    ]
    assert told(tables=["*", "!public.odrers"]) == [
        (WARNING, "Its `tables` names !public.odrers, which no published table fits.")
    ]


def test_what_apply_would_refuse_is_told_before() -> None:
    assert told(columns={"public.customers.born": "hash"}) == [
        (PROBLEM, "Table public.customers: Its column born is of the type date, which has no hash: null or drop it.")
    ]
    assert told(rename={"public.orders": "public.customers"}) == [
        (PROBLEM, "public.orders and public.customers would both be called public.customers there.")
    ]
    assert told(tables=["public.orders"], columns={"public.customers.born": "hash"}) == [], "it is not shown here"


def test_a_table_that_its_mode_cannot_keep_is_told_before() -> None:
    ((severity, reason),) = told(BAG, mode="history")
    assert severity is PROBLEM
    assert reason.startswith("Table public.bag: It has no key")
    assert told(BAG, mode="log") == []
