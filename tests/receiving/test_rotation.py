"""A receiver is at no more than 16 partitions, and passes none over that has messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbredis.engine import MOST_SEATS
from sbredis.receiving._rotation import Rotation, SeatChange


def test_a_receiver_begins_at_one_partition_and_takes_the_others_when_nothing_was_found() -> None:
    rotation = Rotation(5, 3)
    assert (rotation.seats, rotation.most, rotation.is_full) == ([3], 5, False)
    assert rotation.fill(0) == [SeatChange(1, 4), SeatChange(2, 0), SeatChange(3, 1), SeatChange(4, 2)]
    assert rotation.seats == [3, 4, 0, 1, 2]
    assert rotation.is_complete
    assert rotation.fill(0) == []


def test_found_partitions_get_new_seats_in_their_order_up_to_what_is_wanted() -> None:
    rotation = Rotation(100, 7)
    rotation.found([50, 7, 60, 50, 70])
    assert rotation.waiting == 3
    assert rotation.give(0, 0, [], []) == []
    assert rotation.give(0, 2, [0], []) == [SeatChange(1, 50), SeatChange(2, 60)]
    assert rotation.give(0, 2, [], []) == [SeatChange(3, 70)]
    assert rotation.waiting == 0


def test_a_found_partition_gets_the_idle_seat_that_is_longest_where_it_is() -> None:
    rotation = Rotation(4, 0, most=2)
    rotation.found([1])
    rotation.give(5, 1, [], [])
    rotation.found([2, 3])
    assert rotation.give(5.5, 1, [1, 0], []) == [SeatChange(0, 2)]
    assert rotation.give(6, 1, [0, 1], []) == [SeatChange(1, 3)]
    rotation.found([0])
    assert rotation.give(6, 1, [0, 1], []) == [SeatChange(0, 0)]
    assert rotation.seats == [0, 3]


def test_a_partition_with_messages_keeps_its_seat_for_a_second_and_is_then_the_last_of_the_found_ones() -> None:
    rotation = Rotation(4, 0, most=1)
    rotation.found([1])
    assert rotation.give(10, 1, [], [0]) == [SeatChange(0, 1)]
    assert rotation.waiting == 1
    rotation.found([2])
    assert rotation.give(10.9, 1, [], [0]) == []
    assert rotation.give(11, 1, [], [0]) == [SeatChange(0, 0)]
    assert rotation.give(12, 1, [], [0]) == [SeatChange(0, 2)]
    assert rotation.give(13, 1, [], [0]) == [SeatChange(0, 1)]


def test_a_seat_that_is_neither_idle_nor_busy_stays() -> None:
    rotation = Rotation(4, 0, most=1)
    rotation.found([1])
    assert rotation.give(10, 1, [], []) == []
    assert rotation.waiting == 1


def test_a_partition_that_was_found_is_to_be_asked_until_it_has_answered() -> None:
    rotation = Rotation(9, 4)
    assert (rotation.seeks, rotation.is_asking, rotation.asking) == (False, False, {})
    rotation.found([4, 5])
    assert (rotation.seeks, rotation.is_asking, rotation.waiting) == (True, False, 1)
    rotation.give(0, 1, [], [])
    rotation.found_at(0, 3)
    assert (rotation.is_asking, rotation.asking, rotation.waiting) == (True, {0: 3, 1: 0}, 0)
    rotation.answered(1)
    rotation.answered(1)
    assert rotation.asking == {0: 3}
    rotation.answered(0)
    assert not rotation.seeks


def test_a_receiver_passes_on_what_it_was_told_of_and_has_not_asked() -> None:
    rotation = Rotation(9, 4, most=2)
    rotation.found([5], told=True)
    rotation.found([6])
    rotation.found([6, 7], told=True)
    rotation.found([7, 8])
    rotation.found_at(0, 2, told=True)
    rotation.found_at(0, 3)
    rotation.give(0, 1, [], [])
    rotation.answered(1)
    assert sorted(rotation.take_told()) == [4, 6, 7]
    assert rotation.take_told() == []
    assert (rotation.asking, rotation.waiting) == ({0: 3}, 3)


def test_a_receiver_passes_on_a_partition_with_messages_that_has_lost_its_seat() -> None:
    rotation = Rotation(4, 0, most=1)
    rotation.found([1])
    rotation.give(10, 1, [], [0])
    assert (rotation.waiting, rotation.take_told()) == (1, [0])


@pytest.mark.parametrize("count", [17, 40, 256])
def test_a_receiver_is_at_each_partition_with_messages_in_time(count: int) -> None:
    """Each partition always has messages, and the receiver takes some ten times a second."""
    rotation, last, longest, now = Rotation(count, 0), dict.fromkeys(range(count), 0.0), 0.0, 0.0
    rotation.found(range(count))
    while now < 100:
        now = round(now + 0.1, 1)
        rotation.give(now, MOST_SEATS, [], range(len(rotation.seats)))
        for place in rotation.seats:
            longest = max(longest, now - last[place])
            last[place] = now
    assert longest <= -(-count // MOST_SEATS) + 1


class Rotations(RuleBasedStateMachine):
    """Any order of events: a partition never has two seats, and one that was found waits until it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.rotation, self.now, self.waiting = Rotation(9, 4, most=3), 0.0, set[int]()

    @rule(places=st.sets(st.integers(0, 8)))
    def find(self, places: set[int]) -> None:
        self.rotation.found(sorted(places))
        self.waiting |= places - {*self.rotation.seats}

    @rule(seat=st.integers(0, 2), calls=st.integers(0, 2))
    def find_at_a_seat(self, seat: int, calls: int) -> None:
        if seat < len(self.rotation.seats):
            self.rotation.found_at(seat, calls)
            assert self.rotation.asking[seat] == calls

    @rule(seat=st.integers(0, 2))
    def answer(self, seat: int) -> None:
        if seat < len(self.rotation.seats):
            self.rotation.answered(seat)
            assert seat not in self.rotation.asking

    @rule(
        wanted=st.integers(0, 5),
        idle=st.sets(st.integers(0, 2)),
        busy=st.sets(st.integers(0, 2)),
        passed=st.floats(0, 3),
    )
    def give(self, wanted: int, idle: set[int], busy: set[int], passed: float) -> None:
        self.now += passed
        before, count = list(self.rotation.seats), len(self.rotation.seats)
        idle, busy = {seat for seat in idle if seat < count}, {seat for seat in busy - idle if seat < count}
        changes = self.rotation.give(self.now, wanted, idle, busy)
        assert len(changes) <= wanted
        for seat, place in changes:
            self.waiting.discard(place)
            if seat < count:
                assert seat in idle | busy
                if seat in busy:
                    self.waiting.add(before[seat])

    @precondition(lambda self: not self.waiting)
    @rule()
    def fill(self) -> None:
        self.rotation.fill(self.now)

    @invariant()
    def seats_are_at_different_partitions(self) -> None:
        assert len({*self.rotation.seats}) == len(self.rotation.seats) <= 3

    @invariant()
    def found_partitions_wait(self) -> None:
        assert self.rotation.waiting == len(self.waiting)
        assert self.rotation.is_asking == bool(self.rotation.asking)


Rotations.TestCase.settings = settings(max_examples=50, stateful_step_count=20)
TestRotations = Rotations.TestCase


@given(count=st.integers(1, 40), first=st.integers(0, 39))
def test_the_seats_of_a_small_entity_are_at_all_partitions(count: int, first: int) -> None:
    rotation = Rotation(count, first % count)
    rotation.fill(0)
    assert len({*rotation.seats}) == min(count, MOST_SEATS)
