"""Names of different things have different types, so that one is never taken for another."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

PipelineName = NewType("PipelineName", str)
SlotName = NewType("SlotName", str)
PublicationName = NewType("PublicationName", str)
DestinationName = NewType("DestinationName", str)
TableId = NewType("TableId", int)
"""The oid of a relation: it survives a rename, a name does not."""
SchemaId = NewType("SchemaId", int)
"""31 bits of a schema's SHA-256, or what a registry service allotted."""
Epoch = NewType("Epoch", int)
"""A capture incarnation. Epochs are ordered by their place in the log, never by number."""
LogId = NewType("LogId", str)
"""Made with the topics: another log id means that the topics were recreated."""

OWN_SCHEMA = "penstock"
"""What penstock keeps in a database lies there, at the source and at destinations; it is never replicated."""

_PIPELINE = re.compile(r"[a-z][a-z0-9_]{0,39}")


class TableName(NamedTuple):
    """A table as Postgres names it, unquoted."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def pipeline_name(text: str) -> PipelineName:
    """A pipeline's name becomes part of a slot name and of every topic name, so it is narrow."""
    if _PIPELINE.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is not a pipeline name: "
            "use a lower-case letter, then at most 39 lower-case letters, digits or underscores"
        )
    return PipelineName(text)


def slot_name(pipeline: PipelineName) -> SlotName:
    return SlotName(f"penstock_{pipeline}")
