"""Published tables, as capture reads them from the catalog."""

from __future__ import annotations

import json
import zlib

from capture.publication import PublishedTable, TableFile
from schemas.identifiers import TableId, TableName
from schemas.table import Column, ReplicaIdentity, TableSchema

BLOCK = 8192


def a_file(blocks: int, *, name: str = "t", divisible: bool = True) -> TableFile:
    return TableFile(TableId(zlib.crc32(name.encode())), TableName("public", name), blocks, divisible)


def a_published_table(
    *files: TableFile,
    row_filter: str | None = None,
    key: bool = True,
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    toastable: bool = False,
    filenode: str = "1:1",
    publish: tuple[bool, ...] = (True, True, True, True),
) -> PublishedTable:
    column = Column(name="id", type_oid=23, type_name="integer", modifier=-1, key=key)
    name = TableName("public", "t")
    return PublishedTable(
        schema=TableSchema(id=TableId(1), name=name, identity=identity, columns=(column,)),
        files=files,
        filenode=filenode,
        fingerprint=json.dumps({"publish": publish}),
        row_filter=row_filter,
        partitioned=len(files) != 1,
        size=sum(file.blocks for file in files) * BLOCK,
        toastable=toastable,
    )
