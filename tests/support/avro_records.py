"""Records in Avro, written by fastavro."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro

from schemas.envelope import envelope_schema
from schemas.identifiers import PipelineName
from schemas.pg_types.registry import TYPES
from tests.support.builders import INT8, a_column, a_table


def plain(avro: Any) -> Any:  # noqa: ANN401 -- Avro is text, list or object
    """Without logical types: the same bytes, and values as they lie in them."""
    match avro:
        case list():
            return [plain(branch) for branch in avro]
        case {"logicalType": _, "type": inner}:
            return inner
        case dict():
            return {key: plain(value) if key in ("type", "items") else value for key, value in avro.items()} | (
                {"fields": [plain(field) for field in avro["fields"]]} if "fields" in avro else {}
            )
        case _:
            return avro


def encoded(schema: dict[str, Any], value: Any, head: bytes) -> bytes:  # noqa: ANN401 -- any Avro value
    out = io.BytesIO(head)
    out.seek(len(head))
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def records_of_all_types(head: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The schema of a table with every type; a create, an update, a delete and a truncate, with NULLs among them."""
    columns = [a_column(f"c{oid}", oid) for oid in TYPES]
    schema = envelope_schema(PipelineName("shop"), a_table(a_column("id", INT8, key=True), *columns))
    writer = plain(schema)
    row = writer["fields"][0]["type"][1]
    chance = random.Random(1)  # noqa: S311 -- not for secrets
    some: dict[str, Any] = {
        "boolean": True,
        "int": -7,
        "long": 1 << 40,
        "float": 1.5,
        "double": -2.5,
        "string": "čaj 茶",
        "bytes": b"\0\xff",
    }

    def value(avro: Any) -> Any:  # noqa: ANN401 -- Avro is text, list or object
        match avro:
            case ["null", *branches]:
                return value(chance.choice(branches)) if chance.random() < 0.8 else None
            case {"type": "array", "items": items}:
                return [value(items) for _ in range(3)]
            case _:
                return some[avro]

    def image() -> dict[str, Any]:
        return {field["name"]: value(field["type"]) for field in row["fields"]}

    source = {field["name"]: None for field in writer["fields"][2]["type"]["fields"]} | dict.fromkeys(
        ("version", "connector", "name", "db", "schema", "table"), "text"
    )
    source |= dict.fromkeys(("ts_ms", "commit_lsn", "ordinal", "epoch"), 1 << 33)
    common = {"source": source, "transaction": None, "ts_ms": 1, "ts_us": None, "ts_ns": 3, "unchanged": ["c25", "c17"]}
    changes = [("c", None, image()), ("u", image(), image()), ("d", image(), None), ("t", None, None)]
    return schema, [encoded(writer, {"op": op, "before": old, "after": new} | common, head) for op, old, new in changes]
