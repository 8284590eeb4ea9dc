"""Searching for a session: which partitions a search asks, looks at and listens to, and when it reports no session."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import Watch
from sbredis.client._watching import WatchState
from sbredis.receiving._fetching import Fetch, fetches
from sbredis.receiving._searching import Search
from tests.client.test_watching import TIMINGS, watch_in

U, K, C, D, W, H = (
    WatchState.UNKNOWN,
    WatchState.STOCKED,
    WatchState.CALLED,
    WatchState.DOUBTFUL,
    WatchState.WAITING,
    WatchState.UNHEARD,
)
A, F = WatchState.ASKED, WatchState.FAILED
LATER = "late"
Drawn = WatchState | str


def drawn(*states: Drawn, wanted: int = 0) -> list[Watch]:
    """Return watches in these states. Together the running calls want ``wanted`` sessions."""
    watches: list[Watch] = []
    for state in states:
        watch = watch_in(A if isinstance(state, str) else state)
        if state == LATER:
            watch.time_passed(100.0 + TIMINGS.late)
        if watch.under_way:
            watch.wanted = wanted
        watches.append(watch)
    return watches


def look(place: int) -> Fetch:
    return Fetch(place, 0, 1)


def accept(place: int) -> Fetch:
    return Fetch(place, 1, 1)


@pytest.mark.parametrize(
    ("states", "calls"),
    [
        ([U], [accept(0)]),  # the only partition is asked immediately
        ([D], [accept(0)]),
        ([W], []),
        ([U, U, U], [look(0), look(1), look(2)]),  # a look locks nothing
        ([W, U, F], [accept(1)]),
        ([K, K, H], [accept(0)]),  # only one partition is asked at a time
        ([W, C, K], [accept(1)]),
        ([K, U, D], [accept(0), look(1), look(2)]),
    ],
)
def test_the_states_of_the_partitions_decide_the_calls_after_a_look_at_all(
    states: list[Drawn], calls: list[Fetch]
) -> None:
    assert Search(drawn(*states), 0, straight=False).calls() == calls


@pytest.mark.parametrize("start", [0, 1, 2])
def test_the_search_looks_at_the_other_partitions_after_the_first_has_answered(start: int) -> None:
    watches = drawn(U, U, U)
    search = Search(watches, start)
    assert search.calls() == [accept(start)]
    watches[start].ask(0.0, 1)
    assert search.calls() == []
    watches[start].nothing(0.0, 0, registered=False)
    assert sorted(search.calls()) == [look(place) for place in range(3) if place != start]


def test_the_search_looks_at_the_others_when_the_first_is_late_or_fails() -> None:
    for fails in (False, True):
        watches = drawn(U, U, U)
        search = Search(watches, 0)
        search.calls()
        watches[0].ask(0.0, 1)
        if fails:
            watches[0].failed(0.0, refused=False)
        else:
            watches[0].time_passed(TIMINGS.late)
        assert search.calls() == [look(1), look(2)]


def test_while_one_call_accepts_a_session_other_calls_wait_until_it_is_late() -> None:
    for state, calls in ((A, []), (LATER, [accept(1)])):
        assert Search(drawn(state, K, W, wanted=1), 0, straight=False).calls() == calls


@pytest.mark.parametrize(
    ("states", "places"),
    [
        ([H, H], [0, 1]),
        ([H, W, F], [0]),
        ([H, U], []),
        ([H, K], []),
        ([H, A], []),
        ([H, LATER], [0]),
        ([W, W], []),
    ],
)
def test_the_search_listens_only_if_it_cannot_get_a_session_otherwise(states: list[Drawn], places: list[int]) -> None:
    assert Search(drawn(*states), 0).listens() == places


@pytest.mark.parametrize(
    ("states", "nothing"),
    [
        ([H, H], True),
        ([W, F], True),
        ([F, F], True),
        ([H, LATER], True),
        ([F, LATER], True),
        ([LATER, LATER], False),  # no partition has answered
        ([H, A], False),
        ([H, U], False),
        ([H, K], False),
    ],
)
def test_the_search_reports_no_session_when_all_partitions_that_answer_are_empty(
    states: list[Drawn], nothing: bool
) -> None:
    assert Search(drawn(*states), 0).found_nothing is nothing


def test_the_search_does_not_wait_for_a_failed_partition_that_is_asked_again() -> None:
    watches = drawn(F, H)
    watches[0].time_passed(1000.0)
    assert watches[0].state is U
    assert Search(watches, 0).found_nothing
    watches[0].ask(1000.0)
    assert Search(watches, 0).found_nothing


# -- a simulation ------------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """The true state of a partition."""

    sessions: int = 0
    dead: bool = False
    """Whether the partition does not answer."""
    waits: bool = False
    """Whether the search is registered at the partition."""
    heard: bool = False
    """Whether the search listens to the partition."""


@dataclass
class World:
    """A simulation of partitions with sessions, and of one search whose calls may be answered in any order."""

    places: list[Place]
    waits: bool
    straight: bool
    start: int
    now: float = 0.0
    won: int = 0
    under_way: dict[int, Fetch] = field(default_factory=dict)
    opening: set[int] = field(default_factory=set)
    """The partitions to which the search starts to listen."""
    said: set[int] = field(default_factory=set)
    """The partitions that have answered or failed."""

    def __post_init__(self) -> None:
        self.watches = [Watch(TIMINGS) for _ in self.places]
        self.search = Search(self.watches, self.start, straight=self.straight)

    @property
    def over(self) -> bool:
        return self.won > 0 or (not self.waits and self.search.found_nothing)

    def pump(self) -> None:
        """Carry out the decisions of the search and check them."""
        if self.over:
            return
        for call in self.search.calls():
            assert call.place not in self.under_way
            self.watches[call.place].ask(self.now, call.wanted)
            self.under_way[call.place] = call
        accepting = [place for place, call in self.under_way.items() if call.wanted and not self.watches[place].late]
        assert len(accepting) <= 1, "more than one session may come"
        for place in self.search.listens() if self.waits else ():
            asked = [place for place in self.under_way if not self.watches[place].late]
            assert not asked, "it listens although a session may be had without"
            self.opening.add(place)

    def hear(self, place: int) -> None:
        """Confirm the subscription to a channel."""
        self.opening.remove(place)
        self.places[place].heard = True
        self.watches[place].heard()
        self.pump()

    def answer(self, place: int) -> None:
        """Let a partition answer with its current state."""
        call, real, watch = self.under_way.pop(place), self.places[place], self.watches[place]
        self.said.add(place)
        if real.sessions and call.wanted:
            real.sessions -= 1
            self.won += 1
            watch.found()
        elif real.sessions:
            real.waits = False
            watch.found()
        else:
            real.waits = real.heard
            watch.nothing(self.now, 0, registered=real.heard)
            if watch.unheard and real.heard:
                watch.heard()
        self.pump()

    def fail(self, place: int) -> None:
        del self.under_way[place]
        self.said.add(place)
        self.watches[place].failed(self.now, refused=False)
        self.pump()

    def comes(self, place: int) -> None:
        """Let a session become free, and wake the registered search."""
        real = self.places[place]
        real.sessions += 1
        if real.waits:
            real.waits = False
            self.watches[place].woken()
            self.pump()

    def goes(self, place: int) -> None:
        """Let another receiver accept a session."""
        self.places[place].sessions = max(0, self.places[place].sessions - 1)

    def time(self, seconds: float) -> None:
        self.now += seconds
        for watch in self.watches:
            watch.time_passed(self.now)
        self.pump()

    def steps(self) -> list[Callable[[], None]]:
        """Return every step that is possible now."""
        places = range(len(self.places))
        steps: list[Callable[[], None]] = [partial(self.comes, place) for place in places]
        steps += [partial(self.goes, place) for place in places]
        steps += [partial(self.time, seconds) for seconds in (0.1, TIMINGS.late)]
        answering = [place for place in self.under_way if not self.places[place].dead]
        steps += [partial(self.answer, place) for place in answering] * 4
        steps += [partial(self.fail, place) for place in answering]
        steps += [partial(self.hear, place) for place in self.opening] * 2
        return steps

    def settle(self) -> None:
        """Answer all calls that will get an answer, and make the other calls late."""
        for _ in range(60):
            while answering := [place for place in self.under_way if not self.places[place].dead]:
                self.answer(answering[0])
                if self.over:
                    return
            for place in sorted(self.opening):
                self.hear(place)
            self.time(TIMINGS.late)


def walk(choices: list[int], world: World) -> World:
    world.pump()
    for choice in choices:
        if world.over:
            break
        steps = world.steps()
        steps[choice % len(steps)]()
    return world


def check(world: World) -> None:
    """Check that the search finds an available session. If none is available, the search must report this, or wait
    where a partition will wake it.
    """
    if not world.over:
        world.settle()
    if world.won:
        return
    answering = [number for number, place in enumerate(world.places) if not place.dead]
    if not world.waits:
        assert world.search.found_nothing == bool(world.said)
        assert all(number in world.said or world.watches[number].late for number in answering), "it gave up too early"
        return
    assert not any(world.places[number].sessions for number in answering), "a session was not found"
    assert all(world.places[number].waits for number in answering), "it would not be woken"


worlds = st.builds(
    World,
    st.lists(st.builds(Place, st.integers(0, 2), st.booleans()), min_size=1, max_size=5),
    waits=st.booleans(),
    straight=st.booleans(),
    start=st.just(0),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=40), worlds)
def test_a_session_is_found_in_any_partition(choices: list[int], world: World) -> None:
    check(walk(choices, world))


def many_walks(count: int) -> None:
    chance = random.Random(1)
    for _ in range(count):
        places = [Place(chance.randrange(2), chance.random() < 0.2) for _ in range(chance.randrange(1, 5))]
        world = World(places, chance.random() < 0.5, chance.random() < 0.5, chance.randrange(len(places)))
        check(walk([chance.randrange(10_000) for _ in range(20)], world))


def _two_at_once(search: Any) -> list[Fetch]:
    return fetches(search._watches, search._turn, 1, None)[0]


def _first_for_ever(search: Any) -> list[Fetch]:
    if any(watch.wanted and not watch.late for watch in search._watches):
        return []
    return fetches(search._watches, search._turn, 1, {0})[0]


def _waits_for_late_ones(search: Any) -> list[Fetch]:
    if any(watch.wanted for watch in search._watches):
        return []
    first: int | None = search._first
    only = None if first is None or search._watches[first].calls else {first}
    return fetches(search._watches, search._turn, 1, only)[0]


def _listens_too_early(search: Any) -> list[int]:
    return [place for place, watch in enumerate(search._watches) if watch.unheard]


def _never_listens(_: Any) -> list[int]:
    return []


def _gives_up_early(search: Any) -> bool:
    return any(watch.unheard for watch in search._watches)


def _waits_for_dead_partitions(search: Any) -> bool:
    return not any(watch.may_ask or watch.under_way for watch in search._watches)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("calls", _two_at_once),
        ("calls", _first_for_ever),
        ("calls", _waits_for_late_ones),
        ("listens", _listens_too_early),
        ("listens", _never_listens),
        ("found_nothing", property(_gives_up_early)),
        ("found_nothing", property(_waits_for_dead_partitions)),
    ],
)
def test_a_planted_bug_is_detected(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, name, wrong)
    with pytest.raises(AssertionError):
        many_walks(2000)


def test_without_a_planted_bug_many_random_walks_pass() -> None:
    many_walks(300)
