"""A receiver divides its credit between the partitions of an entity, and wants no more messages in all than it says."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.receiving._credit_places import CreditPlaces
from sbredis.receiving._fetching import MOST_AT_ONCE

places = st.sets(st.integers(0, 19))


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


def test_a_receiver_that_wants_little_asks_for_news_only() -> None:
    """Partitions push what they give if there is room for a message from every other one."""
    every = {0, 1, 2, 3}
    assert CreditPlaces(0, 4).divide(1, 1, every, now=False, replies_only=False) == ([0, 0, 0, 0], [])
    assert CreditPlaces(0, 4).divide(1, 1, every, now=True, replies_only=False) == ([1, 0, 0, 0], range(4))
    assert CreditPlaces(0, 4).divide(2, 2, every, now=False, replies_only=False)[1] == range(4)
    assert CreditPlaces(0, 4).divide(8, 8, every, now=False, replies_only=True) == ([0, 0, 0, 0], [])


def test_what_calls_under_way_may_bring_is_not_wanted_twice() -> None:
    known = CreditPlaces(0, 4)
    known.answering, known.asked[3], known.outstanding[3] = {3}, 3, 3
    assert known.divide(8, 8, {0, 1, 2}, now=False, replies_only=False) == ([1, 1, 1, 0], range(4))


def test_a_partition_that_must_be_called_anyway_gets_all_that_there_is_room_for() -> None:
    known = CreditPlaces(0, 2)
    known.outstanding[0], known.silent = 2, {1}
    assert known.divide(2, 4, {0, 1}, now=False, replies_only=False) == ([2, 2], range(2))
    known.silent = set()
    assert known.divide(2, 4, {0, 1}, now=False, replies_only=False) == ([2, 0], range(2))


@pytest.mark.parametrize(("news", "spent"), [({1}, ()), ((), {1}), ({1}, {1})])
def test_a_partition_with_news_or_a_spent_share_gives_the_rest_with_the_reply(
    news: Collection[int], spent: Collection[int]
) -> None:
    known, every = CreditPlaces(0, 4), {0, 1, 2, 3}
    assert known.divide(40, 40, every, now=False, replies_only=False) == ([5, 5, 5, 5], range(4))
    known.outstanding = [5, 0, 5, 5]
    known.news, known.spent, known.silent = {*news}, {*spent}, {*spent}
    assert known.divide(40, 40, every, now=False, replies_only=False) == ([5, 25, 5, 5], [0, 2, 3])
    known.outstanding, known.news, known.spent, known.silent = [5, 0, 5, 5], set(), set(), set()
    assert known.divide(40, 40, every, now=False, replies_only=False) == ([5, 5, 5, 5], range(4))


def test_a_spent_share_takes_no_credit_from_others_and_news_does() -> None:
    known, every = CreditPlaces(0, 3), {0, 1, 2}
    known.outstanding, known.spent, known.silent = [10, 10, 0], {2}, {2}
    assert known.divide(20, 20, every, now=False, replies_only=False) == ([10, 10, 0], range(3))
    known.news = {2}
    assert sorted(known.divide(20, 20, every, now=False, replies_only=False)[0]) == [5, 5, 10]


def test_one_partition_pushes_all_that_it_gives() -> None:
    known = CreditPlaces(0, 1)
    known.news = {0}
    assert known.divide(20, 20, {0}, now=False, replies_only=False) == ([20], range(1))


def test_all_is_divided_if_the_credit_ends_with_the_replies() -> None:
    known = CreditPlaces(0, 2)
    known.silent = {0, 1}
    assert known.divide(20, 20, {0, 1}, now=False, replies_only=False)[0] == [10, 10]
    known.silent = set()
    assert known.divide(20, 20, {0, 1}, now=True, replies_only=False)[0] == [10, 10]
    assert known.divide(20, 20, {0, 1}, now=False, replies_only=False)[0] == [5, 5]
