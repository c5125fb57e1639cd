"""What the real code looks up by name and the model has in small: the catalog, Spark, and a log that says nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from unittest.mock import patch

import structlog

from schemas.checkpoint import Checkpoint
from schemas.feedback import Feedback
from tests.model.applying import fold_here


@contextmanager
def small_servers() -> Iterator[None]:
    replaced = {
        "capture.table_sync.sync.published_tables": lambda source, _publication: source.published(),
        "capture.checkpoints._now": lambda: 0,
        "apply_spark.reader.is_chosen": lambda: True,
        "apply_spark.kept.fold": fold_here,
        "schemas.checkpoint.Checkpoint.decode": cache(Checkpoint.decode),
        "schemas.feedback.Feedback.decode": cache(Feedback.decode),
    }
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with ExitStack() as stack:
            for name, function in replaced.items():
                stack.enter_context(patch(name, function))
            yield
    finally:
        structlog.configure(**before)
