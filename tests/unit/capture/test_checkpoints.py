from __future__ import annotations

import pytest

from capture.checkpoints import check_growth
from schemas.checkpoint import Moved
from schemas.identifiers import SchemaId
from stores.kafka_errors import RecordsLost


def moved(topic: str, schema: int, rows: int) -> Moved:
    return Moved(topic, SchemaId(schema), rows, rows * 100)


def test_a_topic_that_grew_by_what_was_sent_or_more_is_whole() -> None:
    sent = (moved("a", 1, 3), moved("a", 2, 4), moved("new", 1, 2))

    check_growth({"a": (10,)}, {"a": (17,), "new": (2,)}, sent)
    check_growth({"a": (10,)}, {"a": (90,), "new": (5,)}, sent)  # the dead epoch's records may stand between


def test_a_topic_that_grew_by_less_than_all_its_schemas_sent_has_lost_records() -> None:
    with pytest.raises(RecordsLost, match="7 records were sent to a, and it is longer by 6 only"):
        check_growth({"a": (10,)}, {"a": (16,)}, (moved("a", 1, 3), moved("a", 2, 4)))
