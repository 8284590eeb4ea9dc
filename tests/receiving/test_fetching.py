"""Fetching: how many messages a receiver requests, from which partitions, and how many it keeps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import Watch
from sbredis.client._watching import WatchState
from sbredis.receiving import _fetching as fetching
from sbredis.receiving._fetching import MOST_AT_ONCE, Fetch, Stock, fetches, keep_for, passing_looks
from tests.client.test_watching import TIMINGS, watch_in

states = st.lists(st.sampled_from(sorted(WatchState, key=lambda state: state.name)), min_size=1, max_size=20)


def watches_in(*drawn: WatchState) -> list[Watch]:
    return [watch_in(state) for state in drawn]


# -- the choice of partitions ------------------------------------------------------------------------------------------

U, K, C, D, W, A = (
    WatchState.UNKNOWN,
    WatchState.STOCKED,
    WatchState.CALLED,
    WatchState.DOUBTFUL,
    WatchState.WAITING,
    WatchState.ASKED,
)


@pytest.mark.parametrize(
    ("drawn", "start", "missing", "calls", "next_start"),
    [
        ([U], 0, 5, [Fetch(0, 5, 5)], 0),  # the only partition is asked immediately
        ([K], 0, 5, [Fetch(0, 5, 5)], 0),
        ([W], 0, 5, [], 0),
        ([A], 0, 5, [], 0),
        ([U, U, U], 0, 5, [Fetch(0, 0, 5), Fetch(1, 0, 5), Fetch(2, 0, 5)], 0),  # a look locks nothing
        ([U, W, A], 1, 5, [Fetch(0, 5, 5)], 1),
        ([K, K, K], 0, 5, [Fetch(0, 5, 5)], 1),  # only one partition is asked at a time
        ([K, K, K], 2, 5, [Fetch(2, 5, 5)], 0),
        ([K, C, K], 1, 5, [Fetch(1, 5, 5)], 2),
        ([K, U, D], 0, 5, [Fetch(0, 5, 5), Fetch(1, 0, 5), Fetch(2, 0, 5)], 1),
        # calls under way have already requested the missing messages
        ([K, U], 0, 5, [Fetch(0, 5, 5), Fetch(1, 0, 5)], 1),
        ([K, K], 0, 1500, [Fetch(0, 1000, 1000), Fetch(1, 500, 500)], 0),
    ],
)
def test_calls_are_made_for_the_missing_messages(
    drawn: list[WatchState], start: int, missing: int, calls: list[Fetch], next_start: int
) -> None:
    assert fetches(watches_in(*drawn), start, missing) == (calls, next_start)


def test_a_look_waits_for_one_message_if_a_caller_wants_any_message() -> None:
    """Otherwise a partition would wake this receiver for messages that it does not want, before a receiver that wants
    them.
    """
    assert fetches(watches_in(K, U, U), 0, 5, any_will_do=True)[0] == [Fetch(0, 5, 1), Fetch(1, 0, 1), Fetch(2, 0, 1)]
    assert fetches(watches_in(U), 0, 5, any_will_do=True)[0] == [Fetch(0, 5, 1)]


@settings(deadline=None)
@given(states, st.integers(0, 19), st.integers(1, 5000), st.sets(st.integers(0, 19)) | st.none())
def test_no_more_messages_are_requested_than_are_missing(
    drawn: list[WatchState], start: int, missing: int, only: set[int] | None
) -> None:
    watches = watches_in(*drawn)
    calls, following = fetches(watches, start % len(watches), missing, only)
    assert sum(call.wanted for call in calls) <= missing
    assert all(call.wanted <= MOST_AT_ONCE for call in calls)
    assert 0 <= following < len(watches)
    places = [call.place for call in calls]
    assert len(set(places)) == len(places)
    may = {place for place, watch in enumerate(watches) if watch.may_ask and (only is None or place in only)}
    assert set(places) <= may
    unknown = {place for place in may if not watches[place].known}
    assert unknown <= set(places)  # every partition that may have messages is asked or looked at
    asked = {call.place for call in calls if call.wanted}
    assert len(asked & unknown) <= 1  # the other unknown partitions get a look, which locks nothing
    if may and not asked:
        assert len(unknown) > 1


@settings(deadline=None)
@given(st.integers(1, 16), st.integers(1, 16))
def test_partitions_with_messages_are_asked_in_turns(count: int, rounds: int) -> None:
    watches, start, order = watches_in(*[K] * count), 0, list[int]()
    for _ in range(rounds):
        calls, start = fetches(watches, start, 1)
        order += [call.place for call in calls]
    assert order == [place % count for place in range(rounds)]


@settings(deadline=None)
@given(states)
def test_a_woken_receiver_that_wants_nothing_looks_without_waiting(drawn: list[WatchState]) -> None:
    calls = passing_looks(watches_in(*drawn))
    owing = {WatchState.CALLED, WatchState.DOUBTFUL}
    assert calls == [Fetch(place, 0, 0) for place, state in enumerate(drawn) if state in owing]


# -- the number of messages --------------------------------------------------------------------------------------------


def stock(most: int = 100, *, adaptive: bool = False, lock: float = 60.0) -> Stock:
    return Stock(most, adaptive=adaptive, lock=lock, now=0.0)


@pytest.mark.parametrize(
    ("kept", "coming", "demand", "missing"),
    [
        (0, 0, 0, 100),
        (50, 0, 0, 50),
        (51, 0, 0, 0),
        (0, 51, 0, 0),  # messages that are already on their way count as available
        (20, 30, 0, 50),
        (0, 0, 1, 101),  # a call is needed anyway, so it also fills the stock
        (0, 1, 1, 100),
        (0, 60, 1, 0),
        (0, 50, 60, 110),
        (130, 0, 0, 0),
    ],
)
def test_a_stock_is_refilled_when_half_of_it_is_used(kept: int, coming: int, demand: int, missing: int) -> None:
    assert stock().missing(kept, coming, demand, 1.0) == missing


@pytest.mark.parametrize(("coming", "demand", "missing"), [(0, 0, 0), (0, 3, 3), (2, 3, 1), (5, 3, 0)])
def test_no_message_is_prefetched_if_the_receiver_has_no_stock(coming: int, demand: int, missing: int) -> None:
    none = stock(0)
    assert none.missing(0, coming, demand, 1.0) == missing
    assert stock().missing(0, coming, demand, 1.0, stocks=False) == missing
    assert not none.wants_more(0)
    assert none.refill_at == -1


def test_a_stock_that_was_returned_is_refilled_only_when_a_caller_asks() -> None:
    kept = stock()
    kept.gave_back()
    assert (kept.refill_at, kept.missing(0, 0, 0, 1.0), kept.wants_more(0)) == (-1, 0, False)
    kept.took(0)
    assert kept.missing(0, 0, 0, 1.0) == 100
    kept.gave_back()
    assert kept.missing(0, 0, 1, 1.0) == 101


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 1000), st.booleans())
def test_refill_at_returns_the_level_at_which_the_receiver_asks_again(
    most: int, kept: int, coming: int, adaptive: bool
) -> None:
    """Above this level the receiver need not ask."""
    made = stock(most, adaptive=adaptive)
    assert (made.missing(kept, coming, 0, 0.0) > 0) == (kept + coming <= made.refill_at)
    assert made.wants_more(kept) == (kept < made.target)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_a_request_is_large_enough_for_the_callers_and_never_overfills_the_stock(
    most: int, kept: int, coming: int, demand: int
) -> None:
    missing = stock(most).missing(kept, coming, demand, 0.0)
    assert kept + coming + missing >= demand
    assert missing == 0 or kept + coming + missing - demand <= most


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0.01, 5)), max_size=30),
    st.integers(1, 2000),
    st.sampled_from([1.0, 8.0, 60.0]),
)
def test_the_adaptive_target_matches_a_plain_computation(
    steps: list[tuple[int, float]], most: int, lock: float
) -> None:
    """The plain computation weighs all measurements one by one."""
    made, now = stock(most, adaptive=True, lock=lock), 0.0
    speeds: list[float] = []
    taken, since = 0, 0.0
    for count, seconds in steps:
        made.took(count)
        taken, now = taken + count, now + seconds
        made.missing(0, 0, 0, now)
        if taken and now - since >= 0.1:
            speeds.append(taken / (now - since))
            taken, since = 0, now
    if not speeds:
        assert made.target == min(most, 10)
        return
    speed = speeds[0]
    for each in speeds[1:]:
        speed = 0.7 * speed + 0.3 * each
    wanted = speed * min(2.0, lock / 4)
    assert 1 <= made.target <= most
    assert abs(made.target - max(1, min(most, wanted))) <= 0.5 + 1e-6 * wanted


@pytest.mark.parametrize(
    ("lock", "taken", "every", "target"),
    [
        (60.0, 0, 0.5, 10),
        (60.0, 50, 0.5, 200),
        (60.0, 1000, 0.5, 500),
        (60.0, 1, 0.5, 4),
        (60.0, 1, 60.0, 1),
        (1.0, 50, 0.5, 25),
    ],
)
def test_the_adaptive_target_approaches_the_recent_consumption(
    lock: float, taken: int, every: float, target: int
) -> None:
    made, now = stock(500, adaptive=True, lock=lock), 0.0
    for _ in range(40):
        now += every
        made.took(taken)
        made.missing(0, 0, 0, now)
    assert made.target == target


@pytest.mark.parametrize(
    ("left", "lock", "in_session", "seconds"),
    [(60, 60, False, 30), (30, 60, False, 0), (60, 60, True, 57), (3, 60, True, 0), (5, 5, True, 4), (1, 5, True, 0)],
)
def test_keep_for_returns_the_seconds_until_a_message_must_be_returned(
    left: float, lock: float, in_session: bool, seconds: float
) -> None:
    assert keep_for(left, lock, in_session=in_session) == pytest.approx(seconds)


# -- the whole receiver ------------------------------------------------------------------------------------------------


class Broker:
    """A simulation of partitions with messages, and of one receiver that uses the decisions tested here."""

    def __init__(self, chance: random.Random, count: int, most: int) -> None:
        self.chance = chance
        self.there = [0] * count
        self.watches = [Watch(TIMINGS) for _ in range(count)]
        self.stock = stock(most)
        self.kept = self.waited_for = self.given = self.sent = self.start = 0
        self.registered = [False] * count
        self.under_way: list[Fetch] = []
        self.now = 0.0

    def pump(self) -> None:
        coming = sum(call.wanted for call in self.under_way)
        missing = self.stock.missing(self.kept, coming, self.waited_for, self.now)
        calls: list[Fetch] = []
        if missing:
            calls, self.start = fetches(self.watches, self.start, missing)
        elif not self.stock.missing(self.kept, 0, self.waited_for, self.now):
            calls = passing_looks(self.watches)
        for call in calls:
            self.watches[call.place].ask(self.now, call.wanted)
            self.under_way.append(call)
        if not self.stock.most:  # no message is locked if no caller waits
            assert sum(call.wanted for call in self.under_way) <= self.waited_for
        assert self.kept <= self.stock.target

    def answer(self) -> None:
        call = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        watch, there = self.watches[call.place], self.there[call.place]
        brought = min(there, call.wanted)
        if there:
            watch.found()
            self.there[call.place] -= brought
            self.registered[call.place] = False
        elif call.waiting_for:
            self.registered[call.place] = True
            watch.nothing(self.now, 0, registered=True)
        else:
            watch.passed_on()
        given = min(brought, self.waited_for)
        self.waited_for -= given
        self.given += given
        self.kept += brought - given

    def send(self) -> None:
        place = self.chance.randrange(len(self.there))
        self.there[place] += 1
        self.sent += 1
        if self.registered[place]:
            self.registered[place] = False
            self.watches[place].woken()

    def want(self) -> None:
        self.waited_for += 1
        given = min(self.kept, self.waited_for)
        self.kept -= given
        self.waited_for -= given
        self.given += given
        self.stock.took(given)


def run(seed: int) -> None:
    """Take random steps, and check that every waiting caller gets the available messages."""
    chance = random.Random(seed)
    broker = Broker(chance, chance.choice([1, 2, 5]), chance.choice([0, 1, 4, 20]))
    for _ in range(chance.randrange(60)):
        chance.choice([broker.send, broker.want, broker.send])()
        broker.pump()
        if broker.under_way and chance.random() < 0.6:
            broker.answer()
            broker.pump()
    for _ in range(1000):
        if not broker.under_way:
            break
        broker.answer()
        broker.pump()
    else:
        raise AssertionError("it asks without end")
    assert not (broker.waited_for and sum(broker.there))
    assert broker.given + broker.kept + sum(broker.there) == broker.sent


@pytest.mark.slow
def test_every_waiting_caller_gets_the_available_messages() -> None:
    for seed in range(2000):
        run(seed)


def _one_more(watches: list[Watch], start: int, missing: int) -> tuple[list[Fetch], int]:
    made, following = fetching.fetches(watches, start, missing)
    return [call._replace(wanted=call.wanted + 1) if call.wanted else call for call in made], following


def _never_unknown(watches: list[Watch], start: int, missing: int) -> tuple[list[Fetch], int]:
    made, following = fetching.fetches(watches, start, missing)
    return [call for call in made if watches[call.place].known], following


@pytest.mark.parametrize("wrong", [_one_more, _never_unknown])
def test_a_planted_bug_is_detected(
    wrong: Callable[..., tuple[list[Fetch], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "fetches", wrong)
    with pytest.raises(AssertionError):
        test_every_waiting_caller_gets_the_available_messages()
