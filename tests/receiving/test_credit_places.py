"""A receiver spreads its credit over the partitions of an entity, and wants no more messages in all than it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.receiving._credit import CreditDemand
from sbredis.receiving._credit_places import MOST_PLACES, CreditPlaces


@given(
    count=st.integers(1, MOST_PLACES),
    home=st.integers(0, 100),
    callers=st.integers(0, 100),
    stock=st.integers(0, 100),
    news=st.sets(st.integers(0, 15)),
)
def test_the_shares_are_all_that_is_wanted(count: int, home: int, callers: int, stock: int, news: set[int]) -> None:
    news = {place for place in news if place < count}
    shares = CreditPlaces(count, home).shares(CreditDemand(callers, stock), news)
    assert sum(share.callers for share in shares) == callers
    assert sum(share.stock for share in shares) == stock
    assert min(min(share.callers, share.stock) for share in shares) >= 0
    wanted = [share.callers + share.stock for share in shares]
    if callers + stock >= count:
        assert max(wanted) - min(wanted) <= 1
        assert not any(share.announced for share in shares)
    elif callers + stock:
        assert sum(map(bool, wanted)) == 1
        assert [share.announced for share in shares] == [not each for each in wanted]
        assert not news or wanted.index(max(wanted)) in news


def test_the_credit_goes_where_the_news_comes_from_and_stays_there() -> None:
    places = CreditPlaces(4, 1)
    one = CreditDemand(callers=1)
    assert [share.callers for share in places.shares(one)] == [0, 1, 0, 0]
    assert [share.callers for share in places.shares(one, {0, 3})] == [0, 0, 0, 1]
    assert [share.callers for share in places.shares(one, {0, 3})] == [0, 0, 0, 1]
    assert [share.callers for share in places.shares(one)] == [0, 0, 0, 1]


def test_a_receiver_that_wants_nothing_gets_no_news() -> None:
    assert CreditPlaces(2, 0).shares(CreditDemand()) == [CreditDemand(), CreditDemand()]


@pytest.mark.parametrize("count", [0, MOST_PLACES + 1])
def test_a_receiver_is_at_few_partitions(count: int) -> None:
    with pytest.raises(ValueError, match="16 partitions"):
        CreditPlaces(count, 0)
