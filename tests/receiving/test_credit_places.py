"""A receiver divides its credit between the partitions of an entity, and wants no more messages in all than it says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.receiving._credit import NO_DEMAND, CreditDemand
from sbredis.receiving._credit_places import CreditPlaces, SeatsStanding, demand_of
from sbredis.receiving._fetching import MOST_AT_ONCE

places = st.sets(st.integers(0, 19))


@dataclass
class Place:
    """A partition."""

    news: bool = False
    silent: bool = False
    spent: bool = False
    demand: CreditDemand = NO_DEMAND
    outstanding_for_callers: int = 0


@given(
    home=st.integers(0, 100),
    wanted=st.integers(0, 100),
    outstanding=st.lists(st.integers(0, 10), min_size=1, max_size=20),
    deaf=places,
    news=places,
)
def test_the_shares_are_what_is_wanted(
    home: int, wanted: int, outstanding: list[int], deaf: set[int], news: set[int]
) -> None:
    count = len(outstanding)
    able, news = {*range(count)} - deaf, {place for place in news if place < count}
    shares = CreditPlaces(home % count).shares(wanted, outstanding, able, news)
    assert sum(shares) <= wanted
    assert min(shares) >= 0
    assert not any(shares[place] for place in range(count) if place not in able)
    hungry = {place for place in able & news if not outstanding[place]}
    granted = sum(outstanding[place] for place in able)
    if hungry and granted <= wanted:
        idle = sum(outstanding[place] for place in able - news)
        assert any(shares[place] for place in hungry) or not wanted - granted + idle
        assert sum(shares) == wanted
    elif granted <= wanted:
        assert all(shares[place] >= outstanding[place] for place in able), "a share is taken away for nothing"
        assert sum(shares) == wanted or not able or count > 1
    else:
        assert sum(shares) == wanted


@pytest.mark.parametrize(("count", "granted"), [(1, 22), (2, 11), (5, 11), (15, 15)])
def test_each_partition_gets_a_share_of_half_of_what_is_wanted_if_there_is_enough(count: int, granted: int) -> None:
    shares = CreditPlaces(0)
    first = shares.shares(22, [0] * count, range(count))
    assert sum(first) == granted
    assert max(first) - min(first) <= 1
    assert shares.shares(22, first, range(count)) == first
    assert sum(shares.shares(22, first, range(count), keeps=False)) == 22
    half = granted // count // 2
    assert shares.shares(22, [half, *first[1:]], range(count)) == first
    if count > 1:
        assert shares.shares(22, [half + 1, *first[1:]], range(count)) == [half + 1, *first[1:]]


def test_the_home_has_all_credit_that_is_not_enough_for_each_partition() -> None:
    """Not enough is less than one message for half of the partitions."""
    shares = CreditPlaces(2)
    assert shares.shares(3, [0] * 7, range(7)) == [0, 0, 3, 0, 0, 0, 0]
    assert shares.shares(3, [0, 0, 1, 0, 0, 0, 0], range(7)) == [0, 0, 3, 0, 0, 0, 0]
    assert shares.shares(3, [0, 0, 1, 0, 0, 0, 0], {0, 1, 3, 4, 5, 6})[2] == 0
    assert shares.shares(1, [0] * 3, range(3), more=()) == [0, 0, 0]


def test_half_of_the_partitions_get_a_message_each_if_there_is_enough_for_them() -> None:
    shares = CreditPlaces(1)
    assert shares.shares(3, [0, 0, 0, 0, 0], range(5)) == [0, 1, 1, 1, 0]
    assert shares.shares(3, [1, 1, 0, 0, 0], range(5)) == [1, 1, 1, 0, 0]
    assert shares.shares(3, [1, 1, 0, 0, 0], range(5), more={4}) == [1, 1, 0, 0, 1]


def test_a_partition_gets_no_more_than_its_part_while_others_are_called_later() -> None:
    assert CreditPlaces(0).shares(16, [3, 3, 3, 0], range(4), more={3}, most=4, keeps=False) == [3, 3, 3, 4]
    assert CreditPlaces(0).shares(16, [4, 4, 4, 3], range(4), more={3}, most=4, keeps=False) == [4, 4, 4, 4]
    assert CreditPlaces(0).shares(16, [0, 3, 3, 0], range(4), more={0, 3}, most=4, keeps=False) == [4, 3, 3, 4]
    assert CreditPlaces(0).shares(3, [0, 0, 0], {1}, most=1) == [0, 1, 0]


def test_credit_that_is_in_one_place_comes_to_where_the_news_is_step_by_step() -> None:
    shares = CreditPlaces(0)
    assert shares.shares(3, [3, 0, 0], range(3), {1}) == [1, 2, 0]
    assert shares.shares(3, [1, 2, 0], range(3), {2}) == [1, 1, 1]


def test_the_credit_goes_where_the_news_comes_from() -> None:
    """All that is not granted goes there; otherwise half of the largest share that another partition has in vain."""
    shares = CreditPlaces(1)
    assert shares.shares(3, [0, 0, 0, 0], range(4), more=()) == [0, 0, 0, 0]
    assert shares.shares(3, [0, 0, 0, 0], range(4), {3}, more=()) == [0, 0, 0, 3]
    assert shares.shares(3, [1, 0, 1, 0], range(4), {3}) == [1, 0, 1, 1]
    assert shares.shares(8, [2, 2, 4, 0], range(4), {3}) == [2, 2, 2, 2]
    assert shares.shares(1, [1, 0, 0, 0], range(4), {3}) == [0, 0, 0, 1]
    assert shares.shares(1, [1, 0, 0, 0], range(4), {0, 3}) == [1, 0, 0, 0]


def test_partitions_with_messages_take_turns() -> None:
    shares = CreditPlaces(0)
    served = [shares.shares(1, [0, 0, 0], range(3), {0, 1, 2}).index(1) for _ in range(6)]
    assert served == [1, 2, 0, 1, 2, 0]


def test_a_large_demand_goes_to_several_partitions() -> None:
    assert CreditPlaces(0).shares(2500, [0, 0, 0], range(3), {0, 1, 2}) == [500, MOST_AT_ONCE, MOST_AT_ONCE]
    assert CreditPlaces(0).shares(9999, [0, 0], range(2)) == [MOST_AT_ONCE, MOST_AT_ONCE]


def test_partitions_without_news_lose_credit_first() -> None:
    shares = CreditPlaces(0).shares(4, [3, 3, 3], range(3), {1})
    assert shares[1] == 3
    assert sorted(shares) == [0, 1, 3]


def divided(
    *outstanding: int,
    wanted: int,
    full: int | None = None,
    news: Collection[int] = (),
    silent: Collection[int] = (),
    spent: Collection[int] = (),
    answering: Collection[int] = (),
    now: bool = False,
    replies_only: bool = False,
) -> tuple[Sequence[int], Collection[int]]:
    """Divide between partitions of which this is known. Spent partitions are silent."""
    places = range(len(outstanding))
    known = [Place(at in news, at in silent or at in spent, at in spent) for at in places]
    able = [at for at in places if at not in answering]
    standing = SeatsStanding(known, False, outstanding, able, able, answering)
    return CreditPlaces(0).divide(wanted, full or wanted, standing, now=now, replies_only=replies_only)


def test_a_receiver_that_wants_little_asks_for_news_only() -> None:
    """Partitions push what they give if there is room for a message from every other one."""
    assert divided(0, 0, 0, 0, wanted=1) == ([0, 0, 0, 0], [])
    assert divided(0, 0, 0, 0, wanted=1, now=True) == ([1, 0, 0, 0], range(4))
    assert divided(0, 0, 0, 0, wanted=2)[1] == range(4)
    assert divided(0, 0, 0, 0, wanted=8, replies_only=True) == ([0, 0, 0, 0], [])


def test_what_calls_under_way_may_bring_is_not_wanted_twice() -> None:
    assert divided(0, 0, 0, 3, wanted=8, answering={3}) == ([1, 1, 1, 0], range(4))


def test_a_partition_that_must_be_called_anyway_gets_all_that_there_is_room_for() -> None:
    assert divided(2, 0, wanted=2, full=4, silent={1}) == ([2, 2], range(2))
    assert divided(2, 0, wanted=2, full=4) == ([2, 0], range(2))


@pytest.mark.parametrize(("news", "spent"), [({1}, ()), ((), {1}), ({1}, {1})])
def test_a_partition_with_news_or_a_spent_share_gives_the_rest_with_the_reply(
    news: Collection[int], spent: Collection[int]
) -> None:
    assert divided(0, 0, 0, 0, wanted=40) == ([5, 5, 5, 5], range(4))
    assert divided(5, 0, 5, 5, wanted=40, news=news, spent=spent) == ([5, 25, 5, 5], [0, 2, 3])
    assert divided(5, 0, 5, 5, wanted=40) == ([5, 5, 5, 5], range(4))


def test_a_spent_share_takes_no_credit_from_others_and_news_does() -> None:
    assert divided(10, 10, 0, wanted=20, spent={2}) == ([10, 10, 0], range(3))
    assert sorted(divided(10, 10, 0, wanted=20, spent={2}, news={2})[0]) == [5, 5, 10]


def test_one_partition_pushes_all_that_it_gives() -> None:
    assert divided(0, wanted=20, news={0}) == ([20], range(1))


def test_all_is_divided_if_the_credit_ends_with_the_replies() -> None:
    assert divided(0, 0, wanted=20, silent={0, 1})[0] == [10, 10]
    assert divided(0, 0, wanted=20, now=True)[0] == [10, 10]
    assert divided(0, 0, wanted=20)[0] == [5, 5]


TERMS = True, 0, False


def changed(
    *outstanding: int,
    wanted: int,
    callers: int,
    known: Sequence[Place] | None = None,
    asked: Collection[int] | None = None,
    rides: bool = False,
) -> dict[int, CreditDemand]:
    """Return what is wanted from each partition that is to learn of a change."""
    places = range(len(outstanding))
    known = known or [Place() for _ in places]
    standing = SeatsStanding(known, False, outstanding, places, places if asked is None else asked, ())
    changes = CreditPlaces(0).changes(
        wanted, wanted, callers, standing, TERMS, now=False, rides=rides, replies_only=False
    )
    return dict(changes)


def test_the_first_messages_are_for_callers_and_the_rest_is_stock() -> None:
    assert changed(0, 0, wanted=20, callers=7) == {0: demand_of(5, 0, TERMS), 1: demand_of(2, 3, TERMS)}
    assert changed(0, 0, wanted=20, callers=7, asked={1}) == {1: demand_of(5, 0, TERMS)}


def test_a_partition_without_a_share_sends_news() -> None:
    assert changed(0, 0, 0, 0, wanted=1, callers=1, asked={2}) == {2: demand_of(0, 0, TERMS, announced=True)}


def test_only_a_partition_from_which_something_else_is_wanted_is_told() -> None:
    known = [Place(demand=demand_of(5, 0, TERMS)), Place()]
    assert changed(5, 5, wanted=20, callers=5, known=known) == {1: demand_of(0, 5, TERMS)}


@pytest.mark.parametrize(("left", "rides", "told"), [(0, False, 4), (3, False, 3), (3, True, 3), (2, True, 4)])
def test_a_partition_need_not_know_of_more_callers_before_it_gets_more_credit(
    left: int, rides: bool, told: int
) -> None:
    """A grant that rides tells of them if half of them are unknown."""
    known = [Place(outstanding_for_callers=left)]
    expected = demand_of(told, 4 - told, TERMS)
    assert changed(4, wanted=4, callers=4, known=known, rides=rides) == {0: expected}
