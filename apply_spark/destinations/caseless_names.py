"""What a destination that does not tell upper from lower case refuses: names that would become one, or are taken."""

from __future__ import annotations

from apply_spark.errors import NotHeld, TableFailed
from apply_spark.progress import Progress
from schemas.table import TableSchema

OWN_SCHEMA = "penstock"


def refuse_unheld_names(schema: TableSchema, progress: Progress, reserved: frozenset[str] = frozenset()) -> None:
    """TableFailed: two columns, or this table and another one, differ only so; or the schema is penstock's own, or a
    column has a name that the destination keeps for itself."""
    lowered = [column.name.lower() for column in schema.columns]
    if len(set(lowered)) < len(lowered):
        raise TableFailed(schema.name, NotHeld("Two of its columns differ in upper and lower case only."))
    twins = [other for other in progress.tables if other != schema.name and _folded(other) == _folded(schema.name)]
    if twins:
        raise TableFailed(schema.name, NotHeld(f"Its name differs from {twins[0]} in upper and lower case only."))
    if schema.name.schema.lower() == OWN_SCHEMA:
        raise TableFailed(schema.name, NotHeld("The schema penstock of a destination is penstock's own."))
    taken = [column.name for column in schema.columns if column.name.lower() in reserved]
    if taken:
        raise TableFailed(
            schema.name,
            NotHeld(
                f"The destination keeps the name of its column {taken[0]} for itself.",
                solution="Rename the column at the source, or leave it out of the publication.",
            ),
        )


def _folded(name: tuple[str, str]) -> tuple[str, str]:
    return name[0].lower(), name[1].lower()
