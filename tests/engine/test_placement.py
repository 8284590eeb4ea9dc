"""The slots of a namespace in a cluster, and the partition for each key."""

from __future__ import annotations

import hashlib
import re
import runpy
from array import array
from binascii import crc_hqx
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import MOST_PARTITIONS, _placement, partition_for_key, partition_for_name, registry_salt, salts
from sbredis.engine._placement import slot_range
from sbredis.transport import SLOTS, key_slot

PARTITIONS = st.integers(1, MOST_PARTITIONS)
ALL = range(1, MOST_PARTITIONS + 1)

NOT_A_NUMBER: list[Any] = [True, False, 1.0, "16", None, b"1"]
OUT_OF_RANGE = [0, -1, MOST_PARTITIONS + 1]


@cache
def slots_of(partitions: int) -> Sequence[int]:
    return array("H", (key_slot(salt.encode()) for salt in salts(partitions)))  # lists of all would take 20 MB


# -- one slot for each partition ---------------------------------------------------------------------------------------


@pytest.mark.long("it computes every salt that there is")
@pytest.mark.slow
def test_a_salt_is_three_characters_that_need_no_quoting_anywhere() -> None:
    every = set[str]().union(*map(salts, ALL))
    assert {salt for salt in every if not re.fullmatch("[0-9a-z]{3}", salt)} == set()


@pytest.mark.long("it computes every salt that there is")
@pytest.mark.slow
def test_each_partition_has_its_slot_in_its_own_slice() -> None:
    """Slices do not overlap, so no two partitions have the same slot or salt."""
    for count in ALL:
        found = slots_of(count)
        assert len(found) == count
        assert [slot for partition, slot in enumerate(found) if slot not in slot_range(partition, count)] == []


@pytest.mark.parametrize("count", [1, 2, 3, 16, 100, 1023, 1024])
def test_a_partition_has_the_smallest_salt_of_those_nearest_to_the_middle_of_its_slice(count: int) -> None:
    every = ["".join(characters) for characters in product("0123456789abcdefghijklmnopqrstuvwxyz", repeat=3)]
    smallest: dict[int, str] = {}
    for salt in reversed(every):
        smallest[key_slot(salt.encode())] = salt
    for partition, chosen in enumerate(salts(count)):
        middle = (partition + 0.5) * SLOTS / count
        assert chosen == min(
            (smallest[slot] for slot in slot_range(partition, count) if slot in smallest),
            key=lambda salt: (abs(key_slot(salt.encode()) + 0.5 - middle), salt),
        )


@given(PARTITIONS)
def test_slices_cover_all_slots_and_have_the_same_size(count: int) -> None:
    slices = [slot_range(partition, count) for partition in range(count)]
    assert [slot for part in slices for slot in part] == list(range(SLOTS))
    assert {len(part) for part in slices} <= {SLOTS // count, SLOTS // count + 1}


def test_a_key_with_the_salt_in_braces_lies_in_the_slot_of_the_partition() -> None:
    assert [key_slot(f"sb:{{{salt}}}:7:ready".encode()) for salt in salts(16)] == list(slots_of(16))


@pytest.mark.long("it computes every salt that there is")
@pytest.mark.slow
def test_the_registry_has_the_free_slot_that_is_nearest_to_the_middle() -> None:
    taken = {slot for count in ALL for slot in slots_of(count)}
    slot = key_slot(registry_salt().encode())
    assert slot not in taken
    assert re.fullmatch("[0-9a-z]{3}", registry_salt())
    nearer = {other for other in range(SLOTS) if abs(other + 0.5 - SLOTS / 2) < abs(slot + 0.5 - SLOTS / 2)}
    assert nearer <= taken


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
    """Return how many of the slots each master has."""
    before = [bisect_left(slots, boundary) for boundary in boundaries]
    return [after - first for first, after in pairwise(before)]


@pytest.mark.parametrize("masters", range(1, 17))
def test_the_slot_splits_of_these_tests_are_even(masters: int) -> None:
    for how, boundaries in even_splits(masters):
        sizes = [after - first for first, after in pairwise(boundaries)]
        assert (boundaries[0], boundaries[-1]) == (0, SLOTS), how
        assert max(sizes) - min(sizes) <= 1, how


@pytest.mark.parametrize(
    ("masters", "most_to_fewest"),
    [(3, [6, 5, 5]), (4, [4, 4, 4, 4]), (5, [4, 3, 3, 3, 3]), (6, [3, 3, 3, 3, 2, 2])],
)
def test_sixteen_partitions_spread_over_any_few_masters(masters: int, most_to_fewest: list[int]) -> None:
    for how, boundaries in even_splits(masters):
        assert sorted(shares(slots_of(16), boundaries), reverse=True) == most_to_fewest, how


@pytest.mark.long("it computes every salt that there is")
@pytest.mark.parametrize("masters", range(1, 17))
def test_the_numbers_of_partitions_of_two_masters_differ_by_at_most_one(masters: int) -> None:
    """The shares are even for every number of partitions up to 1024, the most that a namespace may have."""
    uneven = [
        (count, how, found)
        for how, boundaries in even_splits(masters)
        for count in ALL
        if max(found := shares(slots_of(count), boundaries)) - min(found) > 1
    ]
    assert uneven == []


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


@pytest.mark.parametrize("count", [2, 3, 5, 12, 16, 24, 32, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_keys_are_spread_over_the_partitions_as_evenly_as_by_chance(family: str, count: int) -> None:
    """With 64 keys a partition, chance alone gives no partition more than 1.7 or less than 0.4 times the mean."""
    found = Counter(partition_for_key(FAMILIES[family](number), count) for number in range(64 * count))
    assert set(found) == set(range(count))
    assert 0.4 * 64 <= min(found.values()) <= max(found.values()) <= 1.7 * 64


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_the_first_few_numbers_as_keys_get_many_different_partitions(count: int) -> None:
    found = Counter(partition_for_key(str(number), count) for number in range(1, 4 * count + 1))
    assert set(found) == set(range(count))
    assert max(found.values()) <= 2 * 4


@given(st.text(st.characters(exclude_categories=["Cs"])), PARTITIONS)
def test_a_key_always_has_the_same_partition(key: str, count: int) -> None:
    assert partition_for_key(key, count) in range(count)
    assert partition_for_key(key, count) == partition_for_key(key, count)


@given(st.text("abcXYZ019._-/", min_size=1), PARTITIONS)
def test_the_case_of_a_name_does_not_change_the_partition_of_an_entity(name: str, count: int) -> None:
    chosen = partition_for_name(name, count)
    assert chosen in range(count)
    assert {partition_for_name(variant, count) for variant in (name.upper(), name.lower())} == {chosen}


def test_keys_that_differ_only_in_case_are_different_keys() -> None:
    assert len({partition_for_key(key, 1024) for key in ("order", "Order", "ORDER")}) == 3


def test_names_spread_over_the_partitions() -> None:
    found = Counter(partition_for_name(f"queue-{number}", 16) for number in range(1024))
    assert len(found) == 16
    assert max(found.values()) <= 1.5 * 64


# -- promises to stored data -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_slots_of_stored_data_do_not_change_between_releases() -> None:
    """If this test fails, the code is wrong: with other slots, clients would not find stored messages."""
    assert " ".join(salts(16)) == "04s 003 kld 4x6 0ay 0e9 4mt 4i4 0ag 22u 4mj 6zp 04m 895 6o2 6kr"
    every = "\n".join(" ".join(salts(count)) for count in ALL)
    assert hashlib.sha256(every.encode()).hexdigest() == (
        "b8099271c849fb3d98025a2f71e1ba2c4167c592cdde4cc9b9965f61fe525838"
    )
    assert registry_salt() == "fjl"


def test_the_partition_of_a_key_does_not_change_between_releases() -> None:
    """If this test fails, the code is wrong: sessions would change partitions, and duplicates would not be found."""
    keys = ["", "1", "2", "3", "order-1", "\u00e9", "\U0001f600"]
    assert [partition_for_key(key, 16) for key in keys] == [0, 14, 10, 10, 8, 5, 14]
    assert [partition_for_name(name, 16) for name in ("orders", "ORDERS", "billing/Orders", "a")] == [8, 8, 5, 7]


# -- refusals ----------------------------------------------------------------------------------------------------------

takes_a_number_of_partitions = pytest.mark.parametrize(
    "ask",
    [salts, lambda count: slot_range(0, count), lambda count: partition_for_key("key", count)],
    ids=["salts", "slot_range", "partition_for_key"],
)


@takes_a_number_of_partitions
@pytest.mark.parametrize("count", OUT_OF_RANGE)
def test_a_partition_count_that_no_namespace_can_have_is_refused(ask: Callable[[Any], object], count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 1024 partitions, not {count}"):
        ask(count)


@takes_a_number_of_partitions
@pytest.mark.parametrize("count", NOT_A_NUMBER)
def test_an_invalid_partition_count_is_refused_even_if_it_equals_a_valid_one(
    ask: Callable[[Any], object], count: Any
) -> None:
    """In Python True equals 1, so a cache of salts could return the salts for 1."""
    ask(1)
    with pytest.raises(TypeError, match=f"number of partitions must be a whole number, not {type(count).__name__}"):
        ask(count)


@pytest.mark.parametrize("partition", [-1, 16, 17])
def test_a_partition_that_the_namespace_does_not_have_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match=f"there is no partition {partition}: the 16 partitions"):
        slot_range(partition, 16)


@pytest.mark.parametrize("partition", NOT_A_NUMBER)
def test_an_invalid_partition_is_refused(partition: Any) -> None:
    with pytest.raises(TypeError, match="a partition must be a whole number"):
        slot_range(partition, 16)


def test_a_key_that_cannot_be_sent_has_no_partition() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        partition_for_key("\ud800", 16)


def test_choosing_among_zero_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="partitions"):
        partition_for_name("orders", 0)


def test_nothing_is_computed_by_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing the table of salts on import would slow each start of the command line by twenty milliseconds."""
    asked: list[bytes] = []

    def checksum(key: bytes, before: int) -> int:
        asked.append(key)
        return crc_hqx(key, before)

    monkeypatch.setattr("binascii.crc_hqx", checksum)
    fresh = runpy.run_path(_placement.__file__)
    assert asked == []
    fresh["salts"](16)
    assert len(asked) == 36**2 + 256
