"""The change log on S3, where it is not as on a disk: what the server refuses, answers that are lost, conditional
writes, objects in parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import IO, NoReturn

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.awsrequest import AWSPreparedRequest

from apply_spark.destinations import parquet_s3
from apply_spark.destinations.parquet import ParquetDestination
from apply_spark.destinations.parquet_options import ParquetOptions
from apply_spark.destinations.parquet_s3 import LogBucket, WritesUnconditional
from apply_spark.destinations.parquet_s3_refusals import BucketMissing
from apply_spark.destinations.parquet_store import numbered
from apply_spark.errors import DestinationAway, DestinationTaken, NotPermitted
from console.local_stack.processes import free_port
from schemas.errors import DestinationError, Retry
from schemas.failpoints import VARIABLE
from tests.contract.destination_places import LAKE, ORDERS, S3Place, a_progress
from tests.support.failpoints import Crash, crash
from tests.support.s3_server import (
    KEY_ID,
    SECRET,
    S3Server,
    be_in_conflict,
    ignore_conditions,
    lose_the_answer,
    on_the_way,
)

pytestmark = pytest.mark.further

PART = 5 * 1024**2
"""S3 takes no smaller one, but for the last."""
WRITER = """
import json, sys
from destination_contract.batches import a_batch, changes, fill, upsert
from destination_contract.tables import ORDERS
from apply_spark.destinations.parquet import ParquetDestination

log = ParquetDestination("lake", json.loads(sys.stdin.read()))
if log.startup() is None:
    fill(log, None, ORDERS, (1, "a", 1))
log.write_events(a_batch(changes(None, ORDERS, upsert(1, "b", 2))))
"""


@pytest.fixture
def place(s3: S3Server) -> S3Place:
    return S3Place(s3)


@pytest.fixture
def store(place: S3Place) -> LogBucket:
    made = LogBucket(ParquetOptions.model_validate(place.options))
    made.open()
    return made


@pytest.fixture
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)


def opened(place: S3Place, **options: str | None) -> ParquetDestination:
    """With other options; None: without one."""
    changed = {key: value for key, value in (place.options | options).items() if value is not None}
    return ParquetDestination(LAKE, changed)


def refused(destination: ParquetDestination) -> DestinationError:
    with pytest.raises(DestinationError) as caught:
        destination.startup()
    told = f"{caught.value.reason} {caught.value.solution} {caught.value.__cause__}"
    assert SECRET not in told
    assert KEY_ID not in told
    return caught.value


def test_a_bucket_that_is_not_there_is_named_and_waits_for_a_human(place: S3Place) -> None:
    error = refused(opened(place, path="s3://penstock-none/log"))

    assert isinstance(error, BucketMissing)
    assert error.reason == "The bucket of s3://penstock-none/log does not exist (PutObject: NoSuchBucket)."
    assert error.retry is Retry.MANUAL


def test_a_right_that_is_missing_is_told_by_what_is_to_be_allowed_and_time_may_heal_it(place: S3Place) -> None:
    log = opened(place)
    log.startup()
    everything = f"arn:aws:s3:::{place.bucket}/*"
    denied = [{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": everything}]
    policy = json.dumps({"Version": "2012-10-17", "Statement": denied})
    place.server.client().put_bucket_policy(Bucket=place.bucket, Policy=policy)

    error = refused(opened(place))
    with pytest.raises(NotPermitted):
        log.save_progress(a_progress(1, ORDERS))

    assert isinstance(error, NotPermitted)
    assert "s3:PutObject" in error.solution
    assert error.retry is Retry.TIMED


def test_keys_that_nobody_knows_are_told_as_such_and_not_repeated(place: S3Place) -> None:
    with place.server.letting_nobody_in():
        error = refused(opened(place))

    assert isinstance(error, NotPermitted)


def test_a_server_that_does_not_answer_is_away_and_time_may_heal_it(place: S3Place) -> None:
    error = refused(opened(place, endpoint=f"http://127.0.0.1:{free_port()}"))

    assert isinstance(error, DestinationAway)
    assert "endpoint" in error.solution
    assert error.retry is Retry.TIMED


@pytest.mark.usefixtures("without_credentials")
def test_credentials_come_from_the_environment_where_the_configuration_has_none(
    place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(opened(place, access_key_id=None, secret_access_key=None))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    assert isinstance(error, NotPermitted)
    assert "AWS_ACCESS_KEY_ID" in error.solution
    assert opened(place, access_key_id=None, secret_access_key=None).startup() is None


def test_a_server_that_does_not_know_conditional_writes_is_refused(
    place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = LogBucket._connected

    def forgetful(store: LogBucket) -> object:
        store._client = connected(store)
        ignore_conditions(store)
        return store._client

    monkeypatch.setattr(LogBucket, "_connected", forgetful)

    assert isinstance(refused(opened(place)), WritesUnconditional)


def test_a_manifest_whose_answer_was_lost_is_ours_and_there_once(place: S3Place) -> None:
    log = opened(place)
    log.startup()
    store = log._store
    assert isinstance(store, LogBucket)

    on_the_way(store, "PutObject", lose_the_answer)
    log.save_progress(a_progress(1, ORDERS))
    log.save_progress(a_progress(2, ORDERS))

    assert len(place.log.manifests(LAKE)) == 3
    assert opened(place).startup() == a_progress(2, ORDERS)
    with pytest.raises(DestinationTaken):
        log.save_progress(a_progress(3, ORDERS))


def test_a_write_that_meets_another_is_made_again_and_one_of_both_is_there(store: LogBucket) -> None:
    on_the_way(store, "PutObject", be_in_conflict)

    assert store.create("a", b"first")
    on_the_way(store, "PutObject", be_in_conflict)
    assert not store.create("a", b"second")
    assert store.read("a") == b"first"


def test_a_large_object_is_sent_in_parts_and_there_as_a_whole_or_not_at_all(
    store: LogBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_s3, "_PART_BYTES", PART)
    parts = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, use_threads=False)
    monkeypatch.setattr(parquet_s3, "_IN_PARTS", parts)
    content = bytes(range(256)) * (2 * PART // 256 + 1)
    store.put("a", written(b"old"))

    def killed(_: AWSPreparedRequest) -> NoReturn:
        crash()
        raise AssertionError

    on_the_way(store, "CompleteMultipartUpload", killed)
    with pytest.raises(Crash):
        store.put("a", written(content))
    assert store.read("a") == b"old"
    store.put("a", written(content))

    assert store.read("a") == content


@pytest.mark.parametrize(
    "numbers", [[], [1], [1, 2], range(1, 38), range(1000, 1033), [5, 900], [2**31, 2**40]], ids=repr
)
def test_the_newest_manifest_is_found_without_a_list_of_all_also_where_old_ones_are_gone(
    store: LogBucket, numbers: list[int]
) -> None:
    for number in numbers:
        store.create(numbered("penstock/lake", number), b"")
    store.create(numbered("penstock/lake2", 2**41), b"")

    assert store.last_number("penstock/lake") == max(numbers, default=0)


def test_what_is_no_manifest_among_them_is_named(store: LogBucket) -> None:
    store.create("penstock/lake/notes.txt", b"")

    with pytest.raises(DestinationError, match=r"penstock/lake/notes\.txt"):
        store.last_number("penstock/lake")


@pytest.mark.parametrize("killed_at", ["parquet.renaming=kill@2", "parquet.written=kill", "parquet.adding=kill@4"])
def test_a_process_that_is_killed_between_rows_and_progress_shows_nothing_and_the_next_writes_the_same(
    place: S3Place, killed_at: str
) -> None:
    killed = run_writer(place, {VARIABLE: killed_at})
    assert killed == -9
    assert place.rows(ORDERS) == [(1, "a", 1)]
    left = place.log.names("public")

    assert run_writer(place, {}) == 0

    assert place.rows(ORDERS) == [(1, "b", 2)]
    assert set(left) <= set(place.log.names("public"))
    assert len(place.log.names("public")) == 2


def run_writer(place: S3Place, environment: dict[str, str]) -> int:
    """Its exit code."""
    return subprocess.run(
        [sys.executable, "-c", WRITER],
        input=json.dumps(place.options).encode(),
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    ).returncode


def written(content: bytes) -> Callable[[IO[bytes]], None]:
    def write(file: IO[bytes]) -> None:
        file.write(content)

    return write
