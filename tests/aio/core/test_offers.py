"""Offers: cases of one client, and walks in which a partition, a network and a client act in any order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.aio.core._offers import Offers
from sbredis.engine import OFFER_MS, Asked, Last, Offer

SECOND = OFFER_MS / 1000


def offer(token: str, clock: int = 5_000) -> Offer:
    return Offer(token, 1, clock, 60_000, ())


def registered(*, at: float = 10.0, clock: int = 5_000) -> Offers:
    """Return the knowledge of a client that a call at this time has registered, at this time of the partition."""
    offers = Offers()
    assert offers.call(Asked("a", 1)) is None
    assert offers.answered(at, clock, registered=True) is None
    return offers


def test_an_offer_of_the_present_registration_is_used_and_taken_by_the_next_call() -> None:
    offers = registered()
    assert offers.read(offer("a", 7_000), 12.1) == pytest.approx(13.0)
    assert bool(offers.owes)
    assert offers.call(None) == Last("a", read=True)
    offers.answered(12.1, 7_100, registered=False)
    assert not bool(offers.owes)
    assert offers.call(None) is None


@pytest.mark.parametrize("token", ["b", ""])
def test_an_offer_under_another_token_is_not_used(token: str) -> None:
    offers = registered()
    assert offers.read(offer(token), 10.0) is None
    assert offers.call(None) == Last("a", read=False)


def test_an_offer_is_used_once() -> None:
    offers = registered()
    assert offers.read(offer("a"), 10.0) is not None
    assert offers.read(offer("a"), 10.0) is None


def test_an_offer_that_crosses_a_call_is_not_used() -> None:
    offers = registered()
    assert offers.call(Asked("b", 1)) == Last("a", read=False)
    assert offers.read(offer("a"), 10.0) is None


@pytest.mark.parametrize(("age", "used"), [(0.0, True), (0.5, True), (0.51, False), (20.0, False)])
def test_an_old_offer_is_declined(age: float, used: bool) -> None:
    """The event loop was blocked when the wake came, for instance."""
    offers = registered(at=10.0)
    assert (offers.read(offer("a"), 10.0 + age) is not None) is used
    assert offers.call(None) == Last("a", read=used)


def test_an_offer_that_comes_before_the_answer_waits_for_it() -> None:
    offers = Offers()
    offers.call(Asked("a", 1))
    early = offer("a", 5_100)
    assert offers.read(early, 10.1) is None
    assert offers.answered(10.0, 5_000, registered=True) is early
    assert offers.read(early, 10.2) == pytest.approx(11.1)


@pytest.mark.parametrize("registers", [True, False])
def test_a_call_without_a_known_outcome_takes_its_offer_again(registers: bool) -> None:
    offers = registered()
    offers.read(offer("a"), 10.0)
    assert offers.call(Asked("b", 1) if registers else None) == Last("a", read=True)
    offers.failed()
    assert offers.owes
    assert offers.call(None) == Last("a", read=True)


def test_an_offer_that_no_call_has_taken_in_time_is_declined() -> None:
    offers = registered()
    offers.read(offer("a"), 10.0)
    offers.call(None)
    offers.give_up()
    offers.failed()
    assert bool(offers.owes)  # the call that failed may have taken it
    offers.give_up()
    assert not bool(offers.owes)
    assert offers.call(None) == Last("a", read=False)


def test_a_registration_without_a_known_outcome_is_declined() -> None:
    offers = registered()
    assert offers.call(Asked("b", 1)) == Last("a", read=False)
    offers.failed()
    assert offers.read(offer("b"), 10.0) is None
    assert offers.call(None) == Last("b", read=False)


def test_a_clock_that_goes_back_makes_no_offer_younger() -> None:
    offers = registered(at=10.0, clock=5_000)
    assert offers.read(offer("a", 4_000), 10.4) == pytest.approx(11.0)


# -- walks -------------------------------------------------------------------------------------------------------------


class Walk:
    """A partition that makes offers, a network that delays and loses, and a client that follows the rules."""

    def __init__(self) -> None:
        self.offers = Offers()
        self.now = 0.0
        self.tokens = 0
        self.waiting = ""  # in the partition: the token of the waiter
        self.open: dict[str, float] = {}  # the offers that are neither taken nor declined, and when they lapse
        self.locked: set[str] = set()  # the offers that were taken
        self.given_out_again: set[str] = set()
        self.wakes: list[Offer] = []  # on their way
        self.call: tuple[Asked | None, Last | None, float] | None = None  # under way
        self.ran: int | None = None  # the time at which the call under way has run
        self.used: set[str] = set()
        self.confirmed: set[str] = set()

    @property
    def clock(self) -> int:
        """The clock of the partition, which differs from that of the client."""
        return round(self.now * 1000) + 123_456

    def steps(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [partial(self.passes, seconds) for seconds in (0.001, 0.1, 0.3, 1.0, 20.0)]
        steps += [self.makes_an_offer] * 3 if self.waiting else []
        steps += [self.wake_comes, self.wake_comes, self.wake_is_lost] if self.wakes else []
        if self.call is None:
            steps += [partial(self.calls, asks) for asks in (True, True, False)]
        elif self.ran is None:
            steps += [self.call_runs, self.call_runs, self.call_fails]
        else:
            steps += [self.answer_comes, self.answer_comes, self.call_fails, self.call_runs]
        return steps

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def makes_an_offer(self) -> None:
        token, self.waiting = self.waiting, ""
        if token in self.open or token in self.locked:
            return
        self.open[token] = self.now + SECOND
        self.wakes.append(offer(token, self.clock))

    def wake_comes(self) -> None:
        self.reads(self.wakes.pop(0))

    def wake_is_lost(self) -> None:
        self.wakes.pop(0)

    def reads(self, wake: Offer) -> None:
        ends = self.offers.read(wake, self.now)
        if ends is None:
            return
        token = wake.token
        assert self.call is None, "an offer is used while a call is under way, so this call declines it"
        assert token not in self.used, "an offer is used twice"
        assert self.open[token] >= ends - 1e-9, "the client keeps the lock for longer than the partition"
        assert ends - self.now >= SECOND / 2, "there is hardly time to take the offer"
        self.used.add(token)

    def calls(self, asks: bool) -> None:
        self.tokens += asks
        asked = Asked(f"t{self.tokens}", 1) if asks else None
        self.call, self.ran = (asked, self.offers.call(asked), self.now), None

    def call_runs(self) -> None:
        """Run the call under way in the partition, perhaps once more."""
        assert self.call is not None
        asked, last, _ = self.call
        self.waiting, self.ran = "", self.clock
        for token in [token for token, lapses in self.open.items() if lapses <= self.now]:
            del self.open[token]
            self.given_out_again.add(token)
        if last is not None and last.token in self.open:
            del self.open[last.token]
            (self.locked if last.read else self.given_out_again).add(last.token)
        if last is not None and last.read:
            assert last.token in self.used, "the client takes an offer that it does not use"
        if asked is not None:
            self.waiting = asked.token

    def answer_comes(self) -> None:
        assert self.call is not None
        assert self.ran is not None
        asked, last, since = self.call
        self.call = None
        early = self.offers.answered(since, self.ran, registered=asked is not None)
        if last is not None and last.read:
            self.confirmed.add(last.token)
        if early is not None:
            self.reads(early)

    def call_fails(self) -> None:
        """The client does not learn whether the call has run."""
        self.call = None
        self.offers.failed()

    def check(self) -> None:
        used_up = self.used & self.given_out_again
        for token in used_up:
            assert token not in self.locked
        owed = self.used - self.confirmed
        if self.call is None:
            assert self.offers.owes == bool(owed), "an offer in use is not taken by the next call"
        elif owed:
            (token,) = owed
            assert self.call[1] == Last(token, read=True)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=60))
def test_an_offer_in_use_is_taken_and_no_other_one_is(choices: list[int]) -> None:
    walk = Walk()
    for choice in choices:
        steps = walk.steps()
        steps[choice % len(steps)]()
        walk.check()
