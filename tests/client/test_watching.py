"""Watching a partition: the rows of its state table, and a state machine that compares the table with the history of
events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import Timings, Watch, to_ask
from sbredis.client import _watching as watching
from sbredis.client._watching import TABLE, WatchEvent, WatchState

TIMINGS = Timings()
ASKING = {WatchState.ASKED, WatchState.OVERTAKEN}
ENDS = {
    WatchEvent.FOUND,
    WatchEvent.MORE,
    WatchEvent.NOTHING,
    WatchEvent.NOTHING_YET,
    WatchEvent.UNREGISTERED,
    WatchEvent.PASSED_ON,
}

BY_EVENT: Mapping[WatchEvent, Callable[[Watch, float], None]] = {
    WatchEvent.ASK: lambda watch, now: watch.ask(now),
    WatchEvent.FOUND: lambda watch, _: watch.found(),
    WatchEvent.MORE: lambda watch, _: watch.busy_with_due(registered=True),
    WatchEvent.NOTHING: lambda watch, now: watch.nothing(now, 0, registered=True),
    WatchEvent.NOTHING_YET: lambda watch, now: watch.nothing(now, 7, registered=True),
    WatchEvent.UNREGISTERED: lambda watch, now: watch.nothing(now, 7, registered=False),
    WatchEvent.PASSED_ON: lambda watch, _: watch.passed_on(),
    WatchEvent.WOKEN: lambda watch, _: watch.woken(),
    WatchEvent.MISSED: lambda watch, _: watch.missed(),
    WatchEvent.MOVED: lambda watch, _: watch.moved(),
    WatchEvent.DOUBTED: lambda watch, _: watch.doubted(),
    WatchEvent.HEARD: lambda watch, _: watch.heard(),
    WatchEvent.TIME: lambda watch, now: watch.time_passed(now),
    WatchEvent.DISCONNECTED: lambda watch, _: watch.disconnected(),
    WatchEvent.WANTED_NOW: lambda watch, _: watch.wanted_now(),
    WatchEvent.NEW_CALLER: lambda watch, _: watch.new_caller(),
    WatchEvent.FAIL: lambda watch, now: watch.failed(now, refused=False),
    WatchEvent.REFUSE: lambda watch, now: watch.failed(now, refused=True),
    WatchEvent.LEAVE: lambda watch, _: watch.leave(),
}

PATHS: Mapping[WatchState, tuple[WatchEvent, ...]] = {
    WatchState.UNKNOWN: (),
    WatchState.STOCKED: (WatchEvent.ASK, WatchEvent.FOUND),
    WatchState.CALLED: (WatchEvent.WOKEN,),
    WatchState.DOUBTFUL: (WatchEvent.MISSED,),
    WatchState.ASKED: (WatchEvent.ASK,),
    WatchState.OVERTAKEN: (WatchEvent.ASK, WatchEvent.WOKEN),
    WatchState.UNHEARD: (WatchEvent.ASK, WatchEvent.UNREGISTERED),
    WatchState.WAITING: (WatchEvent.ASK, WatchEvent.NOTHING),
    WatchState.TRUSTED: (WatchEvent.ASK, WatchEvent.NOTHING_YET),
    WatchState.FAILED: (WatchEvent.ASK, WatchEvent.FAIL),
    WatchState.REFUSED: (WatchEvent.ASK, WatchEvent.REFUSE),
    WatchState.LEFT: (WatchEvent.LEAVE,),
}


def watch_in(state: WatchState, now: float = 100.0) -> Watch:
    """Return a watch that these events have brought into a state."""
    watch = Watch(TIMINGS)
    for event in PATHS[state]:
        BY_EVENT[event](watch, now)
    assert watch.state is state
    return watch


# -- the state table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", WatchState)
@pytest.mark.parametrize("event", [event for event in WatchEvent if event is not WatchEvent.TIME])
def test_each_event_in_each_state_follows_the_table(state: WatchState, event: WatchEvent) -> None:
    watch = watch_in(state)
    refused = event is WatchEvent.ASK and not watch.may_ask
    refused = refused or (
        event in ENDS | {WatchEvent.FAIL, WatchEvent.REFUSE} and state not in {*ASKING, WatchState.LEFT}
    )
    before = (watch.state, watch.calls, watch.look_at, watch.registered)
    if refused:
        with pytest.raises(RuntimeError):
            BY_EVENT[event](watch, 100.0)
        assert (watch.state, watch.calls, watch.look_at, watch.registered) == before
    else:
        BY_EVENT[event](watch, 100.0)
        assert watch.state is TABLE.get((state, event), state)
        if state is WatchState.LEFT:
            assert (watch.state, watch.calls, watch.look_at, watch.registered) == before


@pytest.mark.parametrize("state", WatchState)
def test_a_state_changes_exactly_when_its_time_is_reached(state: WatchState) -> None:
    watch = watch_in(state)
    at = watch.look_at
    if at is None:
        watch.time_passed(1e9)
        assert watch.state is state
        return
    watch.time_passed(at - 0.001)
    assert (watch.state, watch.late, watch.look_at) == (state, False, at)
    watch.time_passed(at)
    if state in ASKING:
        assert (watch.state, watch.late) == (state, True)
    else:
        assert watch.state is TABLE[state, WatchEvent.TIME]
    assert watch.look_at is None


@pytest.mark.parametrize("state", WatchState)
def test_only_an_answer_that_is_not_late_yet_is_late_sooner_for_a_hurried_caller(state: WatchState) -> None:
    watch = watch_in(state)
    before = (watch.state, watch.look_at)
    watch.hurry()
    if state not in ASKING:
        assert (watch.state, watch.look_at) == before
        return
    assert watch.look_at is not None
    assert 100 < watch.look_at < 100 + TIMINGS.late
    sooner = watch.look_at
    watch.hurry()
    assert watch.look_at == sooner
    watch.time_passed(sooner)
    assert watch.late


def test_an_answer_that_is_late_cannot_be_hurried() -> None:
    watch = watch_in(WatchState.ASKED)
    watch.time_passed(100 + TIMINGS.late)
    watch.hurry()
    assert (watch.late, watch.look_at) == (True, None)


@pytest.mark.parametrize(
    ("state", "look_at"),
    [
        (WatchState.ASKED, TIMINGS.late),
        (WatchState.OVERTAKEN, TIMINGS.late),
        (WatchState.WAITING, TIMINGS.registered),
        (WatchState.TRUSTED, 7),
        *(
            (state, None)
            for state in (
                WatchState.UNKNOWN,
                WatchState.STOCKED,
                WatchState.CALLED,
                WatchState.DOUBTFUL,
                WatchState.UNHEARD,
            )
        ),
        (WatchState.LEFT, None),
    ],
)
def test_each_state_has_the_right_time_of_its_next_look(state: WatchState, look_at: float | None) -> None:
    assert watch_in(state).look_at == (None if look_at is None else 100 + look_at)


@pytest.mark.parametrize("state", [WatchState.FAILED, WatchState.REFUSED])
def test_each_failure_in_a_row_pauses_the_watch_for_longer(state: WatchState) -> None:
    watch, now = Watch(TIMINGS), 100.0
    ceilings = [0.1 * 2**number for number in range(7)] + [10.0] * 5
    for ceiling in ceilings:
        watch.ask(now)
        watch.failed(now, refused=state is WatchState.REFUSED)
        assert watch.state is state
        assert watch.troubled
        assert watch.look_at is not None
        assert ceiling / 2 <= watch.look_at - now <= ceiling
        now = watch.look_at
        watch.time_passed(now)
    watch.ask(now)
    assert bool(watch.troubled)
    watch.nothing(now, 0, registered=True)
    assert not bool(watch.troubled)
    watch.woken()
    watch.ask(now)
    watch.failed(now, refused=False)
    assert watch.look_at is not None
    assert watch.look_at - now <= 0.1


@pytest.mark.parametrize("state", WatchState)
def test_a_watch_may_be_registered_only_in_the_listed_states(state: WatchState) -> None:
    registered = {WatchState.WAITING, WatchState.TRUSTED, WatchState.ASKED, WatchState.OVERTAKEN}
    assert watch_in(state).may_be_registered == (state in registered)


@pytest.mark.parametrize(
    ("together", "late", "places"),
    [(5, False, [1, 3, 4]), (4, False, [1, 3]), (2, False, []), (0, False, []), (3, True, [1, 3, 4]), (1, True, [1])],
)
def test_late_calls_do_not_count_towards_the_limit_of_concurrent_calls(
    together: int, late: bool, places: list[int]
) -> None:
    states = (
        WatchState.ASKED,
        WatchState.UNKNOWN,
        WatchState.WAITING,
        WatchState.CALLED,
        WatchState.DOUBTFUL,
        WatchState.OVERTAKEN,
        WatchState.FAILED,
    )
    watches = [watch_in(state) for state in states]
    if late:
        watches[0].time_passed(1000.0)
        watches[5].time_passed(1000.0)
    assert to_ask(watches, together) == places


def test_a_due_time_after_the_end_of_the_registration_has_no_effect() -> None:
    watch = Watch(TIMINGS)
    watch.ask(0)
    watch.nothing(0, TIMINGS.registered, registered=True)
    assert (watch.state, watch.look_at) == (WatchState.WAITING, TIMINGS.registered)


@pytest.mark.parametrize("state", WatchState)
def test_a_failed_subscription_affects_only_a_watch_that_needs_it(state: WatchState) -> None:
    watch = watch_in(state)
    watch.cannot_listen(100.0, refused=False)
    silent = state in {WatchState.UNHEARD, WatchState.WAITING, WatchState.TRUSTED}
    assert watch.state is (WatchState.FAILED if silent else state)


def test_the_documented_states_match_the_table() -> None:
    rows = [line.split() for line in (watching.__doc__ or "").splitlines() if line.startswith("    ")]
    drawn = {row[0]: "yes" in row for row in rows if row[0] in WatchState.__members__}
    assert set(drawn) == set(WatchState.__members__)
    for state in WatchState:
        assert watch_in(state).may_ask == drawn[state.name], state


HAPPENS = (
    *(WatchEvent.WOKEN, WatchEvent.MISSED, WatchEvent.MOVED, WatchEvent.DOUBTED, WatchEvent.HEARD),
    *(WatchEvent.DISCONNECTED, WatchEvent.WANTED_NOW, WatchEvent.NEW_CALLER),
)
ENDINGS = sorted(ENDS | {WatchEvent.FAIL, WatchEvent.REFUSE}, key=lambda event: event.name)


# -- the history of events ---------------------------------------------------------------------------------------------


class Watching:
    """A slow reference implementation. It stores all events, and computes each answer from the whole history."""

    def __init__(self) -> None:
        self.watch = Watch(TIMINGS)
        self.now = 100.0
        self.happened: list[tuple[WatchEvent, float]] = []

    def do(self, event: WatchEvent, at: float = 0.0) -> None:
        self.happened.append((event, at))

    # -- questions to the history --

    @property
    def left(self) -> bool:
        return any(event is WatchEvent.LEAVE for event, _ in self.happened)

    @property
    def since_ask(self) -> list[WatchEvent]:
        """The events since the last call began; if there was no call, all events."""
        events = [event for event, _ in self.happened]
        asks = [place for place, event in enumerate(events) if event is WatchEvent.ASK]
        return events[asks[-1] + 1 :] if asks else events

    @property
    def asked(self) -> bool:
        return any(event is WatchEvent.ASK for event, _ in self.happened)

    @property
    def under_way(self) -> bool:
        ends = ENDS | {WatchEvent.FAIL, WatchEvent.REFUSE, WatchEvent.LEAVE}
        return self.asked and not any(event in ends for event in self.since_ask) and not self.left

    @property
    def roused(self) -> bool:
        """Whether the partition needs a call from us. It does if it woke us or may have woken us, or if a due time that
        only we know has passed.
        """
        since = self.since_ask
        rousing = {WatchEvent.WOKEN, WatchEvent.MISSED}
        if not rousing.isdisjoint(since):
            ended = [place for place, event in enumerate(since) if event in {WatchEvent.FAIL, WatchEvent.REFUSE}]
            if not ended or any(event in rousing for event in since[ended[-1] :]):
                return True
        if WatchEvent.NOTHING_YET not in since:
            return False
        after = since[since.index(WatchEvent.NOTHING_YET) + 1 :]
        known = {WatchEvent.TIME, WatchEvent.MOVED, WatchEvent.DISCONNECTED, WatchEvent.WANTED_NOW, WatchEvent.HEARD}
        first = next((e for e in after if e in known), None)
        broken = next((e for e in after if e in {WatchEvent.FAIL, WatchEvent.REFUSE}), None)
        if first is None:
            return False
        return broken is None or after.index(first) < after.index(broken)

    # -- the possible events

    def steps(self) -> list[Callable[[], None]]:
        """Return every step that is possible now. Calls end often, so that random walks reach many states."""
        steps: list[Callable[[], None]] = [partial(self.happens, event) for event in HAPPENS]
        steps += [partial(self.time, seconds) for seconds in (0.04, 1.0, 25.0)]
        if self.under_way:
            steps += [partial(self.ends, event, due) for event in ENDINGS for due in (0.05, 24.9)]
        elif self.watch.may_ask:
            steps += [self.ask] * len(steps)
        else:
            steps += [partial(self.cannot_listen, refused) for refused in (False, True)]
        return steps

    def ask(self) -> None:
        self.watch.ask(self.now)
        self.do(WatchEvent.ASK, self.now)

    def ends(self, end: WatchEvent, due: float) -> None:
        if end is WatchEvent.NOTHING_YET:
            self.watch.nothing(self.now, due, registered=True)
            self.do(end, self.now + due)
        else:
            BY_EVENT[end](self.watch, self.now)
            self.do(end, self.now)

    def happens(self, event: WatchEvent) -> None:
        overtaken = event is WatchEvent.MOVED and self.under_way  # the answer may be older than the move of the clock
        BY_EVENT[event](self.watch, self.now)
        self.do(WatchEvent.MISSED if overtaken else event, self.now)

    def cannot_listen(self, refused: bool) -> None:
        silent = self.watch.state in {WatchState.UNHEARD, WatchState.WAITING, WatchState.TRUSTED}
        self.watch.cannot_listen(self.now, refused=refused)
        if silent:
            self.do(WatchEvent.REFUSE if refused else WatchEvent.FAIL, self.now)

    def time(self, seconds: float) -> None:
        self.now += seconds
        came = self.watch.look_at is not None and self.watch.look_at <= self.now and not self.under_way
        self.watch.time_passed(self.now)
        if came:
            self.do(WatchEvent.TIME, self.now)

    # -- the properties that must hold

    def a_call_is_under_way_from_its_beginning_to_its_end(self) -> None:
        assert self.watch.under_way == self.under_way
        assert self.watch.calls == sum(event is WatchEvent.ASK for event, _ in self.happened)

    def a_woken_watch_owes_a_look(self) -> None:
        if not self.under_way and not self.left:
            assert self.watch.owes_a_look == self.roused

    def a_watch_may_ask_unless_its_last_answer_was_empty(self) -> None:
        """If the last answer was empty or an error, a watch may ask again only after a new event. Otherwise it may
        always ask.
        """
        if self.under_way or self.left:
            assert not self.watch.may_ask
            return
        since = self.since_ask
        quiet = {
            WatchEvent.NOTHING,
            WatchEvent.NOTHING_YET,
            WatchEvent.UNREGISTERED,
            WatchEvent.FAIL,
            WatchEvent.REFUSE,
        }
        last = max((place for place, event in enumerate(since) if event in quiet), default=-1)
        if last < 0 or self.roused:
            assert self.watch.may_ask
            return
        news = {WatchEvent.HEARD, WatchEvent.WANTED_NOW, WatchEvent.TIME, WatchEvent.MOVED}
        news |= {WatchEvent.NEW_CALLER} if since[last] is WatchEvent.REFUSE else set()
        news |= {WatchEvent.DISCONNECTED} if since[last] not in {WatchEvent.FAIL, WatchEvent.REFUSE} else set()
        assert self.watch.may_ask == any(event in news for event in since[last + 1 :])

    def a_watch_that_must_look_does_so_at_the_due_time(self) -> None:
        if self.watch.must_look:
            event, due = [each for each in self.happened if each[0] in ENDS][-1]
            assert event is WatchEvent.NOTHING_YET
            assert self.watch.look_at == due

    def a_partition_is_always_looked_at_again(self) -> None:
        """A partition is looked at again before its registration ends, except while its channel is not heard yet."""
        if self.left or self.watch.may_ask or self.watch.unheard or self.watch.late:
            return
        assert self.watch.look_at is not None
        assert self.watch.look_at <= self.now + TIMINGS.registered

    def check(self) -> None:
        self.a_call_is_under_way_from_its_beginning_to_its_end()
        self.a_woken_watch_owes_a_look()
        self.a_watch_may_ask_unless_its_last_answer_was_empty()
        self.a_watch_that_must_look_does_so_at_the_due_time()
        self.a_partition_is_always_looked_at_again()


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=40), st.booleans())
def test_the_state_agrees_with_a_plain_history_of_all_events(choices: list[int], leaves: bool) -> None:
    walk(choices, leaves)


def walk(choices: list[int], leaves: bool) -> None:
    """Let one event happen for each number, and compare table and history after each event."""
    both = Watching()
    for choice in choices:
        steps = both.steps()
        steps[choice % len(steps)]()
        both.check()
    if leaves:
        both.happens(WatchEvent.LEAVE)
        both.check()


def many_walks(count: int) -> None:
    chance = random.Random(1)
    for _ in range(count):
        walk([chance.randrange(10_000) for _ in range(30)], leaves=True)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ((WatchState.ASKED, WatchEvent.WOKEN), WatchState.ASKED),
        ((WatchState.OVERTAKEN, WatchEvent.NOTHING), WatchState.WAITING),
        ((WatchState.OVERTAKEN, WatchEvent.FOUND), WatchState.STOCKED),
        ((WatchState.WAITING, WatchEvent.WOKEN), WatchState.UNKNOWN),
        ((WatchState.WAITING, WatchEvent.MISSED), WatchState.WAITING),
        ((WatchState.TRUSTED, WatchEvent.TIME), WatchState.UNKNOWN),
        ((WatchState.TRUSTED, WatchEvent.MOVED), WatchState.UNKNOWN),
        ((WatchState.WAITING, WatchEvent.MOVED), WatchState.DOUBTFUL),
        ((WatchState.ASKED, WatchEvent.MOVED), WatchState.ASKED),
        ((WatchState.TRUSTED, WatchEvent.WANTED_NOW), WatchState.UNKNOWN),
        ((WatchState.UNHEARD, WatchEvent.HEARD), WatchState.UNHEARD),
        ((WatchState.WAITING, WatchEvent.DISCONNECTED), WatchState.WAITING),
        ((WatchState.ASKED, WatchEvent.MORE), WatchState.WAITING),
        ((WatchState.REFUSED, WatchEvent.NEW_CALLER), WatchState.REFUSED),
    ],
)
def test_a_planted_bug_is_detected(
    row: tuple[WatchState, WatchEvent], wrong: WatchState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TABLE", {**TABLE, row: wrong})
    with pytest.raises(AssertionError):
        many_walks(3000)
