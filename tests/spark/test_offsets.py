"""Tests of the offsets that Spark stores in a checkpoint."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import SparkSetupError
from sbredis.spark._offsets import FORMAT, FORMAT_OF_SEVERAL, EntityOffsets, Offsets, PartitionOffset
from sbredis.spark._options import EntityChoice
from sbredis.spark._planning import TaskLimits

NUMBERS = st.integers(0, (1 << 48) - 1)
PARTITIONS = st.integers(0, 65535)
ENTITIES = st.builds(
    EntityOffsets,
    st.text(),
    st.text(),
    st.dictionaries(PARTITIONS, st.builds(PartitionOffset, st.text(), NUMBERS, NUMBERS), max_size=20),
    st.none() | st.dictionaries(PARTITIONS, NUMBERS, max_size=20),
)
OFFSETS = st.builds(
    Offsets,
    st.lists(ENTITIES, max_size=4, unique_by=lambda each: each.name.lower()).map(tuple),
    st.builds(TaskLimits, st.integers(1, 9), st.integers(1, 99), st.none() | st.integers(1, 99)),
    st.sampled_from(["browse", "consume"]),
    st.sampled_from(["", "deadLetter", None]),
)
ORDERS = EntityChoice(("orders",))
TWO = EntityChoice(("orders", "invoices"))
LIKE = EntityChoice(pattern="orders.*")


def of(*names: str, sub_queue: str = "") -> Offsets:
    return Offsets(tuple(EntityOffsets(name, "i", {}) for name in names), sub_queue=sub_queue)


@given(OFFSETS)
def test_offsets_come_back_from_the_json_that_spark_stores(offsets: Offsets) -> None:
    back = Offsets.from_json(json.loads(json.dumps(offsets.to_json())))
    assert back.by_key == offsets.by_key
    assert (back.tasks, back.mode, back.sub_queue) == (offsets.tasks, offsets.mode, offsets.sub_queue)


def test_equal_offsets_are_equal_texts() -> None:
    """Spark compares the texts to find out whether there is something new."""
    places = {1: PartitionOffset("b", 1, 5), 0: PartitionOffset("a", 1, 7)}
    one, two = EntityOffsets("orders", "i", places), EntityOffsets("invoices", "i", {})
    other = EntityOffsets("orders", "i", dict(sorted(places.items())))
    assert json.dumps(Offsets((one,)).to_json()) == json.dumps(Offsets((other,)).to_json())
    assert json.dumps(Offsets((one, two)).to_json()) == json.dumps(Offsets((two, other)).to_json())


def test_offsets_of_another_format_are_refused_with_a_remedy() -> None:
    with pytest.raises(SparkSetupError, match=f"reads the formats {FORMAT} and {FORMAT_OF_SEVERAL}: go on"):
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
    entity = EntityOffsets("orders", "i", {0: PartitionOffset("b", 1, 5)})
    whole, several = Offsets((entity,)).to_json(), Offsets((entity, EntityOffsets("invoices", "i", {}))).to_json()
    deep = {"tasks": 5} if "tasks" in damage else {"entities": {"orders": {**entity.to_json(), **damage}}}
    for damaged in ({**whole, **damage}, {**several, **deep}, {**several, "entities": 5}):
        with pytest.raises(SparkSetupError, match="The offsets in the checkpoint cannot be read"):
            Offsets.from_json(damaged)


@pytest.mark.parametrize(
    ("stored", "wanted", "said"),
    [
        (of("orders"), EntityChoice(("invoices",)), "belongs to 'orders', but the query reads 'invoices'"),
        (of("orders"), TWO, "belongs to 'orders', but the query reads 'orders' and 'invoices'"),
        (of("orders", "invoices"), ORDERS, "belongs to 'orders' and 'invoices', but the query reads 'orders'"),
        (of("invoices"), LIKE, "belongs to 'invoices', but the query reads the queues with names like 'orders.*'"),
    ],
)
def test_offsets_of_other_entities_are_refused(stored: Offsets, wanted: EntityChoice, said: str) -> None:
    with pytest.raises(SparkSetupError, match=re.escape(said)):
        stored.refuse_other(wanted, "browse")


def test_offsets_of_the_same_entities_are_taken_in_any_order_and_case() -> None:
    of("Orders").refuse_other(ORDERS, "browse")
    of("invoices", "orders").refuse_other(TWO, "browse")
    for names in ((), ("orders-1",), ("Orders-1", "orders-2")):
        of(*names).refuse_other(LIKE, "browse")


def test_offsets_of_another_mode_are_refused() -> None:
    with pytest.raises(SparkSetupError, match=r"belongs to a query with mode=browse, but this query has mode=consume"):
        of("orders").refuse_other(ORDERS, "consume")


def test_offsets_of_another_sub_queue_are_refused() -> None:
    dead = of("orders", sub_queue="deadLetter")
    dead.refuse_other(ORDERS, "browse", "deadLetter")
    with pytest.raises(SparkSetupError, match="to 'orders' with subQueue=deadLetter, but the query reads 'orders':"):
        dead.refuse_other(ORDERS, "browse")
    with pytest.raises(SparkSetupError, match="to 'orders', but the query reads 'orders' with subQueue=deadLetter:"):
        of("orders").refuse_other(ORDERS, "browse", "deadLetter")


@pytest.mark.parametrize(("birth", "mode"), [("", "browse"), ("b", "consume")])
def test_offsets_without_a_mode_and_a_sub_queue_are_still_read(birth: str, mode: str) -> None:
    """Earlier builds wrote them. They do not tell the sub-queue."""
    entity = EntityOffsets("orders", "i", {0: PartitionOffset(birth, 0, 5)})
    earlier = Offsets((entity,), mode=mode).to_json()
    del earlier["mode"], earlier["subQueue"]
    offsets = Offsets.from_json(earlier)
    offsets.refuse_other(ORDERS, mode, "deadLetter")
    assert offsets.mode == mode
    assert offsets.to_json() == {**earlier, "mode": mode}
