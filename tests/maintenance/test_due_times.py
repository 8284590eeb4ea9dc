"""The next times of many things, and entities by slot."""

from __future__ import annotations

import pytest

from sbredis.maintenance._agenda import BySlot, DueTimes


def test_the_earliest_time_comes_first_and_equal_times_in_their_order() -> None:
    times = DueTimes[str]()
    assert times.earliest() is None
    for what, at in (("a", 3.0), ("b", 1.0), ("c", 1.0), ("b", 4.0)):
        times[what] = at
    found: list[tuple[float, str]] = []
    while (first := times.earliest()) is not None:
        found.append(first)
        times.discard(first[1])
    assert found == [(1.0, "c"), (3.0, "a"), (4.0, "b")]
    assert times.get("a") is None
    times.discard("a")


def test_a_later_time_replaces_an_earlier_one() -> None:
    times = DueTimes[str]()
    times["a"] = 1.0
    times["a"] = 2.0
    assert times.get("a") == 2.0
    assert times.earliest() == (2.0, "a")


def test_outdated_times_are_removed() -> None:
    times = DueTimes[str]()
    for at in range(10_000):
        times["a"] = 1e6 - at
        times["b"] = 2e6 + at
    assert len(times._heap) < 200
    assert times.earliest() == (1e6 - 9_999, "a")


def test_entities_are_taken_from_the_slots_in_turn() -> None:
    slots = BySlot()
    for number, entity in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (1, "a")):
        slots.add(number, entity)
    assert slots.of(1) == ("a", "b", "c")
    taken = [(number, slots.take(number, 2)) for number in (next(iter(slots)) for _ in range(3))]
    assert taken == [(1, ("a", "b")), (2, ("d",)), (1, ("c",))]
    assert not slots
    with pytest.raises(KeyError):
        slots.take(1, 2)


def test_a_slot_without_entities_is_forgotten() -> None:
    slots = BySlot()
    slots.add(1, "a")
    slots.discard(1, "b")
    slots.discard(2, "a")
    assert slots.has(1, "a")
    assert not slots.has(1, "b")
    assert 1 in slots
    slots.discard(1, "a")
    assert 1 not in slots
    assert slots.of(1) == ()
