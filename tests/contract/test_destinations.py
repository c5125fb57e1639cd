"""What a Destination promises, tried on every place that keeps rows."""

from __future__ import annotations

from destination_contract.contract import DestinationContract
from destination_contract.samples import ARRAYS, SAMPLES
from schemas.pg_types.registry import SCALARS


class TestEveryPlace(DestinationContract):
    """At each of PLACES, which conftest.py gives as `place`."""


def test_the_samples_are_of_every_way_in_which_a_value_travels() -> None:
    sampled = [known for known in SCALARS if known.oid in {sample.type_oid for sample in SAMPLES}]
    ways = [{(known.parse, str(known.avro), known.delimiter) for known in some} for some in (SCALARS, sampled)]
    assert ways[0] == ways[1]
    assert {array.type_oid for array in ARRAYS} == {known.array_oid for known in sampled}
