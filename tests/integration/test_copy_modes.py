"""Which tables are copied, and what a pipeline does once they are."""

from __future__ import annotations

from apply_spark.errors import TablesHeld
from schemas.checkpoint import CopyFinished
from tests.conftest import MakePipeline
from tests.support.captured import MakeCaptured
from tests.support.eventually import eventually

TABLES = tuple(f"create table {name} (id int primary key, a text)" for name in ("orders", "log", "log_old"))
COPY_ONLY = '[copies]\nmode = "copy only"'
ROWS = tuple(f"insert into {name} select i, 'before' from generate_series(1, 100) i" for name in ("orders", "log"))


def test_a_table_that_is_not_copied_begins_empty_and_gets_what_changes_from_then_on(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        *TABLES,
        *ROWS,
        publish="for all tables",
        toml='[copies]\ntables = ["*", "!public.log*"]',
    )
    log.assert_rows("orders")
    log.assert_rows("log", "select * from log where false")

    pipeline.sql("insert into log values (101, 'after')", "update log set a = 'changed' where id = 7")

    log.assert_rows("log", "select * from log where a <> 'before'")
    (finished,) = [marker for marker in log.markers("log") if isinstance(marker, CopyFinished)]
    assert (finished.rows, finished.ends) == (0, (0,))


def test_stream_only_copies_no_table(captured: MakeCaptured) -> None:
    pipeline, log = captured(*TABLES, *ROWS, publish="for all tables", PENSTOCK_COPIES__MODE="stream only")
    log.assert_rows("orders", "select * from orders where false")

    pipeline.sql("insert into orders values (101, 'after')")

    log.assert_rows("orders", "select * from orders where id > 100")


def test_copy_only_ends_with_code_0_when_kafka_has_every_copy_and_goes_on_when_it_is_asked_to(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(*TABLES, *ROWS, publish="for all tables", PENSTOCK_COPIES__MODE="copy only")

    assert pipeline.capture is not None
    assert pipeline.capture.process.wait(60) == 0
    snapshots = [marker.last for marker in log.markers("orders") if isinstance(marker, CopyFinished)]
    assert pipeline.checkpoint_lsn() >= max(snapshots)
    assert log.rows("orders") == [(i, "before") for i in sorted(range(1, 101), key=lambda i: repr((i, "before")))]

    pipeline.sql("insert into orders values (101, 'after')")
    pipeline.start_capture()
    log.assert_rows("orders")
    eventually(lambda: len(log.generations("orders")) == 1, what="the one copy that there was")


def test_apply_of_a_copy_only_pipeline_ends_with_code_0_when_all_is_applied_and_at_once_if_it_is_started_again(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(COPY_ONLY)
    pipeline.sql(*TABLES, *ROWS)
    pipeline.publish()

    pipeline.start_apply_process()
    pipeline.start_capture()

    assert pipeline.capture is not None
    assert pipeline.capture.process.wait(60) == 0
    assert pipeline.apply is not None
    assert pipeline.apply.process.wait(60) == 0
    for table in ("orders", "log", "log_old"):
        query = f"select * from public.{table} order by id"
        assert pipeline.lake(query) == pipeline.source.execute(query).fetchall()
    pipeline.start_apply()
    pipeline.wait_for_end_of_apply()


def test_apply_of_a_copy_only_pipeline_that_could_not_write_a_table_ends_with_its_name(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(COPY_ONLY)
    pipeline.sql(*TABLES, *ROWS, "create table grid (id int primary key, a int[][])")
    pipeline.sql("insert into grid values (1, '{{1,2},{3,4}}')")
    pipeline.publish()

    pipeline.start()
    pipeline.wait_for_end_of_apply()

    assert isinstance(pipeline.apply_error, TablesHeld)
    assert pipeline.apply_error.reason == "Every table is copied and applied, except public.grid."
    assert pipeline.lake("select count(*) from public.orders") == [(100,)]
