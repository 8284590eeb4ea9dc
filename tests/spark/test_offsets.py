"""Tests of the offsets that Spark stores in a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import SparkSetupError
from sbredis.spark._offsets import FORMAT, Offsets, PartitionOffset

NUMBERS = st.integers(0, (1 << 48) - 1)
PARTITIONS = st.integers(0, 65535)
OFFSETS = st.builds(
    Offsets,
    st.text(),
    st.text(),
    st.dictionaries(PARTITIONS, st.builds(PartitionOffset, st.text(), NUMBERS, NUMBERS), max_size=20),
    st.none() | st.dictionaries(PARTITIONS, NUMBERS, max_size=20),
    st.tuples(st.integers(1, 9), st.integers(1, 99)),
    st.sampled_from(["browse", "consume"]),
    st.sampled_from(["", "deadLetter", None]),
)


@given(OFFSETS)
def test_offsets_come_back_from_the_json_that_spark_stores(offsets: Offsets) -> None:
    assert Offsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    """Spark compares the texts to find out whether there is something new."""
    places = {1: PartitionOffset("b", 1, 5), 0: PartitionOffset("a", 1, 7)}
    one = Offsets("orders", "i", places)
    other = Offsets("orders", "i", dict(sorted(places.items())))
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_offsets_of_another_format_are_refused_with_a_remedy() -> None:
    with pytest.raises(SparkSetupError, match=f"format 99, but this release of sbredis reads the format {FORMAT}"):
        Offsets.from_json({"format": 99})


@pytest.mark.parametrize(
    "damage",
    [
        {"partitions": None},
        {"partitions": {"x": {"birth": "b", "plan": 0, "number": 0}}},
        {"partitions": {"0": {"birth": "b", "plan": 0}}},
        {"partitions": {"0": {"birth": "b", "plan": 0, "number": -1}}},
        {"partitions": {"0": {"birth": 1, "plan": 0, "number": 0}}},
        {"began": [1]},
        {"tasks": 5},
    ],
)
def test_damaged_offsets_are_refused(damage: dict[str, Any]) -> None:
    whole = Offsets("orders", "i", {0: PartitionOffset("b", 1, 5)}).to_json()
    with pytest.raises(SparkSetupError, match="The offsets in the checkpoint cannot be read"):
        Offsets.from_json({**whole, **damage})


def test_offsets_of_another_entity_are_refused() -> None:
    offsets = Offsets("orders", "i", {})
    offsets.refuse_other("Orders", "browse")
    with pytest.raises(SparkSetupError, match="The checkpoint belongs to 'orders', but the query reads 'invoices'"):
        offsets.refuse_other("invoices", "browse")


def test_offsets_of_another_mode_are_refused() -> None:
    with pytest.raises(SparkSetupError, match=r"belongs to a query with mode=browse, but this query has mode=consume"):
        Offsets("orders", "i", {}).refuse_other("orders", "consume")


def test_offsets_of_another_sub_queue_are_refused() -> None:
    dead = Offsets("orders", "i", {}, sub_queue="deadLetter")
    dead.refuse_other("orders", "browse", "deadLetter")
    with pytest.raises(SparkSetupError, match="to 'orders' with subQueue=deadLetter, but the query reads 'orders':"):
        dead.refuse_other("orders", "browse")
    with pytest.raises(SparkSetupError, match="to 'orders', but the query reads 'orders' with subQueue=deadLetter:"):
        Offsets("orders", "i", {}).refuse_other("orders", "browse", "deadLetter")


@pytest.mark.parametrize(("birth", "mode"), [("", "browse"), ("b", "consume")])
def test_offsets_without_a_mode_and_a_sub_queue_are_still_read(birth: str, mode: str) -> None:
    """Earlier builds wrote them. They do not tell the sub-queue."""
    earlier = Offsets("orders", "i", {0: PartitionOffset(birth, 0, 5)}, mode=mode).to_json()
    del earlier["mode"], earlier["subQueue"]
    offsets = Offsets.from_json(earlier)
    offsets.refuse_other("orders", mode, "deadLetter")
    assert offsets.mode == mode
    assert offsets.to_json() == {**earlier, "mode": mode}
