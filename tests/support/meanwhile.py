"""What happens at the source while a test looks elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.pipeline import Pipeline


@contextmanager
def meanwhile(work: Callable[[int], None], *, pause: float = 0.0) -> Iterator[None]:
    """Calls work(1), work(2), ... in a thread for as long as the block lasts."""
    stop = threading.Event()

    def repeat() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            work(step)
            stop.wait(pause)

    thread = threading.Thread(target=repeat, name="meanwhile")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def writes_of_every_kind(pipeline: Pipeline, table: str, bag: str) -> Callable[[int], None]:
    """Inserts, updates, deletes and moves in `table` (id int primary key, payload text, n int), inserts in `bag`."""

    def write(step: int) -> None:
        pipeline.sql(
            f"insert into {bag} values ({step})",
            f"update {table} set n = n + 1 where id % 997 = {step % 997}",
            f"insert into {table} values ({100_000 + step}, 'new', {step})",
            f"delete from {table} where id = {step * 7}",
            f"update {table} set id = id + 1000000 where id = {19_000 + step % 900}",
        )

    return write
