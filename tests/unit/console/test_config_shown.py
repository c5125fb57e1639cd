"""What a destination shows, as the file says it: every slip is told by its key, and no salt is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from apply_spark.config import DestinationConfig, Treatment
from apply_spark.destinations.registry import make_destination
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName, TableName
from tests.unit.console.test_config_file import SHOP, loaded, refused

LAKE = DestinationName("lake")
SHOWN = """
tables = ["public.*", "!public.audit"]
salt = "s3cr3t-salt"
[destinations.lake.rename]
"public" = "shop"
[destinations.lake.columns]
"public.customers.email" = "hash"
"""


def test_the_keys_are_there_for_every_type_and_are_not_handed_to_the_destination(tmp_path: Path) -> None:
    lake = loaded(tmp_path, SHOP + SHOWN).destinations[LAKE]

    assert lake.selects(TableName("public", "orders"))
    assert not lake.selects(TableName("public", "audit"))
    assert lake.columns == {"public.customers.email": Treatment.HASH}
    assert list(lake.options) == ["path"]
    assert "s3cr3t-salt" not in f"{lake!r} {lake.model_dump()}"


def test_salt_and_rules_may_come_from_the_environment(tmp_path: Path) -> None:
    lake = loaded(
        tmp_path,
        SHOP + SHOWN,
        PENSTOCK_DESTINATIONS__LAKE__SALT="from outside",
        PENSTOCK_DESTINATIONS__LAKE__COLUMNS='{"*.*.phone": "drop"}',
    ).destinations[LAKE]

    assert lake.salt is not None
    assert lake.salt.get_secret_value() == "from outside"
    assert lake.columns == {"public.customers.email": Treatment.HASH, "*.*.phone": Treatment.DROP}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('tables = ["!public.audit"]', "no pattern names a table"),
        ('columns = { "customers.email" = "hash" }', "schema.table.column"),
        ('columns = { "a.b.c" = "mask" }', "must be 'show', 'hash', 'null' or 'drop'"),
        ('rename = { "public.orders" = "sales" }', "must both be schemas, or both be schema.table"),
        ('rename = { "public" = "penstock" }', "penstock's own"),
        ('on_new_shape = "stop"', "must be 'evolve', 'freeze' or 'ignore'"),
        ('mode = "soft-delete"', "must be 'mirror', 'soft_delete', 'history' or 'log'"),
        ('salt = ""', "destinations.lake.salt"),
    ],
)
def test_a_slip_is_told_by_its_key(tmp_path: Path, lines: str, told: str) -> None:
    error = refused(tmp_path, SHOP + lines)

    assert "destinations.lake" in error.reason
    assert told in error.reason


def test_a_key_that_nobody_knows_is_refused_with_the_one_that_was_meant() -> None:
    config = DestinationConfig.model_validate({"type": "memory", "colums": {"a.b.c": "hash"}})

    with pytest.raises(ConfigError, match=r"colums: did you mean columns\?"):
        make_destination(LAKE, config)


@pytest.mark.parametrize(("kind", "mode"), [("stdout", "history"), ("parquet", "log")])
def test_a_mode_that_the_type_does_not_have_is_refused_with_those_that_it_has(kind: str, mode: str) -> None:
    options = {"path": "x"} if kind == "parquet" else {}
    config = DestinationConfig.model_validate({"type": kind, "mode": mode, **options})

    with pytest.raises(ConfigError) as refused:
        make_destination(LAKE, config)

    assert f'destinations.lake.mode is "{mode}"' in refused.value.reason
    assert refused.value.solution.startswith("Use one of: mirror")
