"""The slots of a namespace in a cluster, the slots of its entities, and the partition of each key."""

from __future__ import annotations

import hashlib
import math
import re
import runpy
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import (
    MOST_PARTITIONS,
    MOST_SLOTS,
    _placement,
    partition_for_key,
    registry_salt,
    require_slots,
    slot_for_name,
    slot_salt,
    slots_for_name,
)
from sbredis.transport import SLOTS, key_slot

NAMESPACES = st.sampled_from(["default", "orders", "Orders", "a", "billing.eu-1"])
NUMBERS = st.integers(1, MOST_SLOTS)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def slots_of(namespace: str, slots: int) -> list[int]:
    return [key_slot(slot_salt(namespace, number, slots).encode()) for number in range(slots)]


# -- the slots of a namespace ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_slot_of_a_cluster_has_a_salt_of_four_characters_that_need_no_quoting_anywhere() -> None:
    found = [_placement._salt(slot) for slot in range(SLOTS)]
    assert [key_slot(salt.encode()) for salt in found] == list(range(SLOTS))
    assert {salt for salt in found if not re.fullmatch("[0-9a-z]{4}", salt)} == set()


@given(NAMESPACES, NUMBERS)
def test_the_slots_of_a_namespace_have_the_same_distance_from_each_other(namespace: str, slots: int) -> None:
    found = sorted(slots_of(namespace, slots))
    distances = {(after - slot) % SLOTS or SLOTS for slot, after in pairwise([*found, found[0]])}
    assert distances <= {SLOTS // slots, -(-SLOTS // slots)}


@given(NAMESPACES, NUMBERS)
def test_the_registry_has_no_slot_of_its_namespace(namespace: str, slots: int) -> None:
    registry = key_slot(registry_salt(namespace).encode())
    nearest = min(min((slot - registry) % SLOTS, (registry - slot) % SLOTS) for slot in slots_of(namespace, slots))
    assert nearest >= SLOTS // (2 * slots)


def test_namespaces_lie_in_different_slots() -> None:
    first = Counter(slot_salt(f"tenant-{number}", 0, 256) for number in range(1000))
    assert len(first) > 950
    assert registry_salt("orders") != registry_salt("Orders")


@pytest.mark.parametrize("slots", [0, -1, MOST_SLOTS + 1])
def test_a_number_of_slots_that_no_namespace_can_have_is_refused(slots: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 1024 slots, not {slots}"):
        require_slots(slots)


@pytest.mark.parametrize("slots", [True, 1.0, "16", None, b"1"])
def test_a_number_of_slots_is_a_whole_number(slots: Any) -> None:
    with pytest.raises(TypeError, match=f"number of slots must be a whole number, not {type(slots).__name__}"):
        require_slots(slots)


@pytest.mark.parametrize("number", [-1, 16, 17])
def test_a_slot_that_the_namespace_does_not_have_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"there is no slot {number}: the 16 slots"):
        slot_salt("default", number, 16)


# -- an even share for every master ------------------------------------------------------------------------------------


def even_splits(masters: int) -> Iterator[tuple[str, list[int]]]:
    """Yield the even splits of the slots. A split is a name, and a list of the first slot of each master and of the
    number of slots at the end.
    """
    whole, rest = divmod(SLOTS, masters)
    numbers = range(masters + 1)
    yield "boundaries rounded, as redis-cli does", [int(number * SLOTS / masters + 0.5) for number in numbers]
    yield "boundaries rounded down", [number * SLOTS // masters for number in numbers]
    yield "boundaries rounded up", [-(-number * SLOTS // masters) for number in numbers]
    yield "the first have one more", [number * whole + min(number, rest) for number in numbers]
    yield "the last have one more", [number * whole + max(0, number - masters + rest) for number in numbers]


def shares(slots: Sequence[int], boundaries: Sequence[int]) -> list[int]:
    """Return the number of the slots, in order, that each master has."""
    before = [bisect_left(slots, boundary) for boundary in boundaries]
    return [after - first for first, after in pairwise(before)]


@pytest.mark.parametrize("namespace", ["default", "orders", "a"])
@pytest.mark.parametrize("slots", [16, 100, 256, 1024])
def test_no_master_has_more_slots_of_a_namespace_than_its_fair_share_rounded_up(namespace: str, slots: int) -> None:
    """No placement can do better: a slot cannot be divided."""
    found = sorted(slots_of(namespace, slots))
    for masters in range(1, 201):
        for how, boundaries in even_splits(masters):
            assert max(shares(found, boundaries)) <= math.ceil(slots / masters), how


# -- the slots of an entity --------------------------------------------------------------------------------------------


@given(st.text("abcXYZ019._-/", min_size=1), NUMBERS)
def test_the_case_of_a_name_does_not_change_the_slot_of_an_entity(name: str, slots: int) -> None:
    chosen = slot_for_name(name, slots)
    assert chosen in range(slots)
    assert {slot_for_name(variant, slots) for variant in (name.upper(), name.lower())} == {chosen}


@given(st.text(min_size=1), NUMBERS, st.data())
def test_the_partitions_of_an_entity_go_around_the_slots_in_equal_steps(
    name: str, slots: int, data: st.DataObject
) -> None:
    partitions = data.draw(st.integers(1, min(slots, MOST_PARTITIONS)))
    found = slots_for_name(name, partitions, slots)
    assert len(found) == partitions
    assert slot_for_name(name, slots) in found
    distances = {(after - slot) % slots or slots for slot, after in pairwise([*found, found[0]])}
    assert distances <= {slots // partitions, -(-slots // partitions)}
    assert list(found) == sorted(found)


@pytest.mark.parametrize("masters", range(1, 17))
def test_an_entity_of_sixteen_partitions_uses_up_to_sixteen_masters(masters: int) -> None:
    for name in ("orders", "payments", "clicks"):
        of_namespace = slots_of("default", 256)
        found = sorted(of_namespace[number] for number in slots_for_name(name, 16, 256))
        for how, boundaries in even_splits(masters):
            assert min(shares(found, boundaries)) >= 1, how
            assert max(shares(found, boundaries)) <= math.ceil(16 / masters) + 1, how


# -- the choice of a partition -----------------------------------------------------------------------------------------

FAMILIES: dict[str, Callable[[int], str]] = {
    "numbers": str,
    "tens": lambda number: str(10 * number),
    "padded": lambda number: f"order-{number:06}",
    "in eights": lambda number: f"{64 * number:o}",
    "bits": lambda number: f"{number:020b}",
    "hexadecimal": lambda number: f"{number:032x}",
    "twice": lambda number: f"{number}:{number}",
    "not Latin": lambda number: chr(0x10000 + number),
}


@pytest.mark.parametrize("count", [16])
@pytest.mark.parametrize("family", FAMILIES)
def test_keys_are_spread_over_the_partitions_as_evenly_as_by_chance(family: str, count: int) -> None:
    """With 64 keys a partition, chance alone gives no partition more than 1.7 or less than 0.4 times the mean."""
    found = Counter(partition_for_key(FAMILIES[family](number), count) for number in range(64 * count))
    assert set(found) == set(range(count))
    assert 0.4 * 64 <= min(found.values()) <= max(found.values()) <= 1.7 * 64


@given(TEXTS, st.integers(1, MOST_PARTITIONS))
def test_with_one_more_partition_a_key_stays_or_goes_to_the_new_partition(key: str, count: int) -> None:
    before, after = partition_for_key(key, count), partition_for_key(key, count + 1)
    assert after in {before, count}


def test_keys_that_differ_only_in_case_are_different_keys() -> None:
    assert len({partition_for_key(key, 256) for key in ("order", "Order", "ORDER")}) == 3


def test_a_key_that_cannot_be_sent_has_no_partition() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        partition_for_key("\ud800", 16)


# -- promises to stored data -------------------------------------------------------------------------------------------


def test_the_slots_of_stored_data_do_not_change_between_releases() -> None:
    """If this test fails, the code is wrong: with other slots, clients would not find stored messages."""
    assert " ".join(slot_salt("default", number, 4) for number in range(4)) == "04cp 06p4 06a6 04rr"
    every = "\n".join(
        " ".join(slot_salt(namespace, number, slots) for number in range(slots))
        for namespace in ("default", "orders")
        for slots in (1, 2, 3, 16, 100, 256, 1023, 1024)
    )
    assert (
        hashlib.sha256(every.encode()).hexdigest() == "fa8422b5eb1ad735855898f42ac43ac8abd35dfd6a87d01dafc73bd154cc6719"
    )
    assert [registry_salt(namespace) for namespace in ("default", "orders")] == ["08wg", "05jr"]


def test_the_partition_of_a_key_does_not_change_between_releases() -> None:
    """If this test fails, the code is wrong: sessions would change partitions, and duplicates would not be found."""
    keys = ["", "1", "2", "3", "order-1", "\u00e9", "\U0001f600"]
    assert [partition_for_key(key, 16) for key in keys] == [0, 7, 9, 12, 12, 6, 3]
    assert [partition_for_key(key, 256) for key in keys] == [0, 158, 148, 196, 26, 217, 3]


def test_the_slots_of_an_entity_do_not_change_between_releases() -> None:
    """If this test fails, the code is wrong: the entities that are created now would not be beside older ones."""
    assert [slot_for_name(name, 256) for name in ("orders", "ORDERS", "billing/Orders", "a")] == [136, 136, 69, 183]
    assert slots_for_name("orders", 5, 256) == (33, 84, 136, 187, 238)


def test_nothing_is_computed_by_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of salts that is computed on import would slow each start of the command line."""
    asked: list[bytes] = []

    def checksum(key: bytes, _: int) -> int:
        asked.append(key)
        return 0

    monkeypatch.setattr("binascii.crc_hqx", checksum)
    fresh = runpy.run_path(_placement.__file__)
    assert asked == []
    fresh["_first_two"]()
    assert len(asked) == 36**2
