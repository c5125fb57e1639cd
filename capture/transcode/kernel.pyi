from collections.abc import Callable, Sequence

from capture.pgoutput.messages import ColumnValue
from capture.transcode.contract import Records
from capture.transcode.reference import Origin, Record
from schemas.envelope import Op
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.table import TableSchema

class KernelTranscoder:
    def __init__(
        self,
        pipeline: PipelineName,
        database: str,
        table: TableSchema,
        ids: tuple[SchemaId, SchemaId | None],
        epoch: Epoch,
        now_ns: Callable[[], int] = ...,
    ) -> None: ...
    @property
    def table(self) -> TableSchema: ...
    @property
    def schema_id(self) -> SchemaId: ...
    def key(self, row: Sequence[ColumnValue]) -> bytes | None: ...
    def value(
        self, op: Op, before: Sequence[ColumnValue] | None, after: Sequence[ColumnValue] | None, origin: Origin
    ) -> bytes: ...
    def change(self, frame: memoryview | bytes, origin: Origin, offset: int = 0) -> Record | None: ...
    def copy_row(self, line: memoryview | bytes | bytearray, origin: Origin) -> Record: ...
    def copy_rows(self, messages: memoryview | bytes | bytearray, origin: Origin, rows: Records) -> int: ...
