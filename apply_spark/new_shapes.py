"""What a destination's configuration says to a table whose columns are others than those of its mirror.

Two things may stop it: the policy (`on_new_shape`), and a column that was not shown as it is and would be, because it
has a name now that no rule speaks of. Columns are followed by their numbers, as alterations are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from apply_spark.config import OnNewShape, Treatment
from apply_spark.errors import ShapeRefused, TableFailed
from apply_spark.progress import TableProgress
from apply_spark.showing import Showing
from schemas.evolution import same_values
from schemas.identifiers import SchemaId, TableName
from schemas.table import Column, TableSchema

_HIDDEN = (Treatment.HASH, Treatment.NULL, Treatment.DROP)


def require_allowed(showing: Showing, before: TableSchema, after: TableSchema) -> None:
    """TableFailed: a mirror in the one shape may not take on the other."""
    require_hidden(showing, [before], after)
    match showing.policy(after.name):
        case OnNewShape.EVOLVE:
            return
        case OnNewShape.FREEZE:
            if _seen(showing, before) != _seen(showing, after):
                raise TableFailed(
                    after.name,
                    ShapeRefused(
                        f"It has a new shape, and is frozen here: {_difference(showing, before, after)}.",
                        solution="Set `on_new_shape` of the destination to evolve, start apply again and run "
                        "`penstock rollback TABLE`.",
                    ),
                )
        case OnNewShape.IGNORE:
            _require_held(showing, before, after)


def ignored(showing: Showing, table: TableName) -> bool:
    """Whether its mirror keeps the shape that it has."""
    return showing.policy(table) is OnNewShape.IGNORE


def pinned(showing: Showing, table: TableProgress) -> TableProgress:
    """The table with the shape that its mirror keeps, where new ones are ignored."""
    return replace(table, mirrored=shape_of_mirror(table)) if ignored(showing, table.table) else table


def shape_of_mirror(table: TableProgress) -> SchemaId:
    return table.schema_id if table.mirrored is None else table.mirrored


def require_hidden(showing: Showing, others: Iterable[TableSchema], after: TableSchema) -> None:
    """TableFailed: a name that nobody has thought of, of a column or of the table, would bring to light what is hidden
    in another shape of the table."""
    unruled = [column for column in after.columns if showing.rule(after.name, column.name) is None]
    for other in others:
        hidden = [column for column in other.columns if showing.rule(other.name, column.name) in _HIDDEN]
        for old, new in itertools.product(hidden, unruled):
            if _may_be(old, new, other, after):
                raise TableFailed(
                    after.name,
                    ShapeRefused(
                        f"Its column {new.name}, for which there is no rule, may be {other.name}.{old.name}, which is "
                        "not shown as it is.",
                        solution=f'Add "{after.name}.{new.name}" to `columns` of the destination ("show" where it may '
                        "be seen), start apply again and run `penstock rollback TABLE`.",
                    ),
                )


def _may_be(old: Column, new: Column, before: TableSchema, after: TableSchema) -> bool:
    """Whether the one column may have become the other. Without numbers: if the one is gone and the other is new."""
    if before.id == after.id and 0 not in (old.number, new.number):
        return old.number == new.number
    gone = old.name not in {column.name for column in after.columns}
    return gone and new.name not in {column.name for column in before.columns}


def _seen(showing: Showing, schema: TableSchema) -> list[tuple[object, ...]]:
    """What a mirror has of a shape."""
    shown = [(column, showing.treatment(schema.name, column.name)) for column in schema.columns]
    return [
        (c.name, how, c.key, *((c.type_oid, c.modifier, c.delimiter) if how is not Treatment.HASH else ()))
        for c, how in shown
        if how is not Treatment.DROP
    ]


def _difference(showing: Showing, before: TableSchema, after: TableSchema) -> str:
    old, new = (
        [c.name for c in schema.columns if showing.treatment(schema.name, c.name) is not Treatment.DROP]
        for schema in (before, after)
    )
    gone = ", ".join(name for name in old if name not in new)
    come = ", ".join(name for name in new if name not in old)
    words = [f"{gone} went" if gone else "", f"{come} came" if come else ""]
    return " and ".join(filter(None, words)) or "columns have another type or another order"


def _require_held(showing: Showing, before: TableSchema, after: TableSchema) -> None:
    """That rows of the new shape can be shown in the old one."""
    new = {column.number: column for column in after.columns}
    reasons = [reason for column in before.columns if (reason := _unheld(showing, before, column, new))]
    if before.id != after.id or 0 in (*new, *(column.number for column in before.columns)):
        reasons = ["it is not known which of its columns is which"]
    elif {c.number for c in before.key} != {c.number for c in after.key}:
        reasons.append("it has another key")
    if reasons:
        raise TableFailed(
            after.name,
            ShapeRefused(
                f"Its new shape cannot be ignored: {reasons[0]}.",
                solution="Set `on_new_shape` of the destination to evolve and start apply again; where the table is "
                "still held then, run `penstock rollback TABLE`.",
            ),
        )


def _unheld(showing: Showing, before: TableSchema, old: Column, new: dict[int, Column]) -> str:
    """Why a column of the mirror cannot go on; empty: it can."""
    now = new.get(old.number)
    if now is None:
        return "" if before.key else f"without {old.name}, rows that have no key are not found any more"
    if not same_values(old, now):
        return f"{old.name} has another type"
    if showing.treatment(before.name, old.name) is not showing.treatment(before.name, now.name):
        return f"{old.name} is now {now.name}, of which something else is to be shown"
    return ""
