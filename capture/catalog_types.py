"""Types that the type table does not know by oid, looked up in the catalog: domains, and arrays of what users made.

A domain is its base type, a domain of domains too; an array of domains is the array of their base type. The type of an
oid never changes, so what is found now is also true of a RELATION message that is older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import psycopg
from psycopg.rows import class_row

from schemas.pg_types.registry import TYPES
from schemas.table import Column


@dataclass(frozen=True)
class CatalogType:
    """A row of pg_type, as far as it says how values look."""

    oid: int
    name: str
    base: int
    """Of a domain: the type that it stands for, and its modifier; else 0."""
    base_modifier: int
    element: int
    """Of a true array: the type of its items; else 0."""
    delimiter: str | None


CatalogTypes: TypeAlias = Mapping[int, CatalogType]
TypeLookup: TypeAlias = Callable[[Iterable[int]], CatalogTypes]

# An int2vector has an element too, but is not printed as an array.
_QUERY = """
select t.oid::bigint as oid, format_type(t.oid, null) as name, t.typbasetype::bigint as base,
       t.typtypmod as base_modifier, coalesce(e.oid, 0)::bigint as element, e.typdelim::text as delimiter
  from pg_catalog.pg_type t
  left join pg_catalog.pg_type e on e.oid = t.typelem and t.typoutput = 'pg_catalog.array_out'::regproc
 where t.oid = any(%s::oid[])
"""


def catalog_types(connection: psycopg.Connection[Any], oids: Iterable[int]) -> CatalogTypes:
    """What the catalog knows of these types and those they are made of; the type table's own are left out."""
    found: dict[int, CatalogType] = {}
    wanted = set(oids) - TYPES.keys()
    with connection.cursor(row_factory=class_row(CatalogType)) as cursor:
        while wanted:
            rows = cursor.execute(_QUERY, [list(wanted)]).fetchall()
            found |= {row.oid: row for row in rows}
            made_of = {part for row in rows for part in (row.base, row.element) if part}
            wanted = made_of - TYPES.keys() - found.keys()
    return found


def looked_through(column: Column, types: CatalogTypes) -> Column:
    """The column with its base type. One whose type is not there any more stays as it is: text."""
    column = _based(column, types)
    found = types.get(column.type_oid)
    if found is None or not found.element:
        return column
    item = _based(replace(column, type_oid=found.element, type_name=""), types)
    known = TYPES.get(item.type_oid)
    if known is not None and known.array_oid is not None:
        return replace(column, type_oid=known.array_oid, type_name=f"{known.name}[]", modifier=item.modifier)
    return replace(column, delimiter=found.delimiter)


def _based(column: Column, types: CatalogTypes) -> Column:
    while (found := types.get(column.type_oid)) is not None and found.base:
        base = types.get(found.base) or TYPES.get(found.base)
        column = replace(
            column, type_oid=found.base, type_name=base.name if base else "other", modifier=found.base_modifier
        )
    return column
