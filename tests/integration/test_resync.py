"""A table that is copied again, as its readers see it."""

from __future__ import annotations

from console.control import send_command
from schemas.control import Resync
from schemas.identifiers import TableName
from tests.conftest import MakePipeline
from tests.support.eventually import eventually

ROWS = 3_000


def test_a_reader_never_sees_a_table_in_part_while_it_is_copied_again(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("[apply]\ninterval_rows = 300")
    pipeline.sql(
        "create table t (id int primary key, n int)", f"insert into t select i, 1 from generate_series(1, {ROWS}) i"
    )
    pipeline.publish("t")
    pipeline.start()
    pipeline.settle("t")
    first, seen = pipeline.generation("t"), set()

    def is_copied_again() -> bool:
        """While rows are only moved from one key to another, whatever is seen has to have all of them."""
        pipeline.sql("update t set id = id + 1000000 where id = (select min(id) from t)")
        seen.update(pipeline.lake("select count(*), sum(n) from public.t"))
        return pipeline.generation("t") > first and pipeline.known_phase("t") == "Ready"

    send_command(pipeline.config(), Resync(TableName("public", "t")))
    eventually(is_copied_again, what="the new copy to be ready")

    pipeline.assert_equal("t")
    assert seen == {(ROWS, ROWS)}
    assert pipeline.lake("select table_name from duckdb_tables() where schema_name = 'public'") == [("t",)]
