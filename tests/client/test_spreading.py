"""How many copies a call makes: every call within the limit, each subscription in one call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbredis.client import MOST_WORK
from sbredis.client._spreading import most_messages, next_subscriptions, work_of

loads = st.dictionaries(
    st.text("abcxyzABC019_-", min_size=1, max_size=4),
    st.tuples(st.integers(1, 3000), st.integers(0, 8_000_000)),
    max_size=200,
)


@given(loads)
def test_every_subscription_has_its_turn_in_one_call(copies: dict[str, tuple[int, int]]) -> None:
    reached, turns = "", list[str]()
    while True:
        chosen, to = next_subscriptions(copies, reached)
        work = sum(work_of(1, *copies[each]) for each in chosen)
        assert work <= MOST_WORK or len(chosen) == 1
        turns += chosen
        if not to:
            break
        assert reached < to == chosen[-1]
        reached = to
    assert turns == sorted(copies)


@given(st.floats(0, 5000), st.integers(0, 2000))
def test_a_call_has_as_many_messages_as_the_limit_allows(copies: float, subscriptions: int) -> None:
    def work(messages: int) -> float:
        each = max(1.0, copies)
        return work_of(1, 0, 0) * min(messages * each, subscriptions) + work_of(0, 1, 0) * messages * each

    most = most_messages(copies, subscriptions)
    assert most >= 1
    assert most == 1 or work(most) <= MOST_WORK * 1.001
    assert work(most + 2) >= MOST_WORK * 0.98


def test_a_call_for_nothing_ends_a_spread() -> None:
    assert next_subscriptions({}, "") == ([], "")
    assert next_subscriptions({"a": (1, 0), "b": (1, 0)}, "b") == ([], "")
