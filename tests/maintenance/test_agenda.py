"""The agenda of visits and reads. It decides without waiting, so its tests do not wait either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import Timings
from sbredis.engine import slots_for_name
from sbredis.maintenance._agenda import Agenda, Read, Sleep, Visit, VisitPace, VisitPlace
from sbredis.maintenance._maintenance import DUTIES
from sbredis.maintenance._moving import PACE as MOVING

PACE = VisitPace(visits_at_once=2, batch=3, between_reads=0.5, round=100.0)
A, B, C = VisitPlace(0, "a"), VisitPlace(0, "b"), VisitPlace(1, "c")


def reads(agenda: Agenda, now: float = 0.0) -> Iterator[tuple[float, Read]]:
    """Yield the reads from now on, each with its time. They find nothing due."""
    while True:
        todo = agenda.next(now, now)
        if isinstance(todo, Read):
            agenda.read_done(todo, [None] * len(todo.entities))
            yield now, todo
        else:
            assert isinstance(todo, Sleep)
            now += todo.seconds


def first_reads(agenda: Agenda) -> list[tuple[float, Read]]:
    """Return the reads until all places were read, each with its time."""
    reading, seen = reads(agenda), list[tuple[float, Read]]()
    while not agenda.all_read:
        seen.append(next(reading))
    return seen


def an_agenda(*places: VisitPlace) -> Agenda:
    """Return an agenda that has read all these places and found nothing due."""
    agenda = Agenda(PACE)
    agenda.set_entities({place.entity: [place.number] for place in places}, 0.0)
    first_reads(agenda)
    return agenda


def test_a_busy_place_does_not_starve_the_others() -> None:
    agenda = an_agenda(A, B, C)
    for place in (A, B, C):
        agenda.announced(place, 1.0)
    visited: list[VisitPlace] = []
    for step in range(9):
        todo = agenda.next(2.0 + step, 2.0 + step)
        assert isinstance(todo, Visit)
        visited.append(todo.place)
        agenda.visit_done(todo.place, 2.0 + step)  # a visit reported that more work is due
    assert visited == [A, B, C] * 3


def test_only_an_earlier_announcement_changes_the_due_time() -> None:
    agenda = an_agenda(A)
    for at in (10.0, 5.0, 7.0):
        agenda.announced(A, at)
    assert agenda.due_at(A) == 5.0
    assert agenda.next(5.0, 5.0) == Visit(A)
    agenda.visit_done(A, 8.0)
    assert agenda.due_at(A) == 8.0


def test_an_announcement_during_a_visit_applies_after_it() -> None:
    agenda = an_agenda(A)
    agenda.announced(A, 1.0)
    assert agenda.next(1.0, 1.0) == Visit(A)
    agenda.announced(A, 2.0)
    assert isinstance(agenda.next(3.0, 3.0), Sleep)  # only one visit at a time
    agenda.visit_done(A, 9.0)
    assert agenda.next(3.0, 3.0) == Visit(A)


def test_the_number_of_concurrent_visits_is_limited() -> None:
    agenda = an_agenda(A, B, C)
    for place in (A, B, C):
        agenda.announced(place, 1.0)
    assert [agenda.next(2.0, 2.0), agenda.next(2.0, 2.0)] == [Visit(A), Visit(B)]
    assert agenda.next(2.25, 2.25) == Sleep(0.75)


def test_an_unanswered_visit_does_not_block_other_visits() -> None:
    agenda = an_agenda(A, B, C)
    for place in (A, B, C):
        agenda.announced(place, 1.0)
    assert [agenda.next(2.0, 2.0), agenda.next(2.0, 2.0)] == [Visit(A), Visit(B)]
    assert agenda.next(3.0, 3.0) == Visit(C)


def test_failed_visits_are_retried_with_a_bounded_backoff() -> None:
    agenda, clock, pauses = an_agenda(A), 1.0, list[float]()
    agenda.announced(A, clock)
    for _ in range(7):
        assert agenda.next(clock, clock) == Visit(A)
        agenda.visit_failed(A, clock)
        at = agenda.due_at(A)
        assert at is not None
        pauses.append(at - clock)
        clock = at
    for pause, ceiling in zip(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0], strict=True):
        assert ceiling / 2 <= pause <= ceiling
    assert agenda.next(clock, clock) == Visit(A)
    agenda.visit_done(A, clock)
    assert agenda.next(clock, clock) == Visit(A)
    agenda.visit_failed(A, clock)
    at = agenda.due_at(A)
    assert at is not None
    assert 0.5 <= at - clock <= 1.0


def test_an_announcement_during_a_failed_visit_causes_no_further_visit() -> None:
    """The visit after the pause does all the work that is due then."""
    agenda = an_agenda(A)
    agenda.announced(A, 1.0)
    assert agenda.next(1.0, 1.0) == Visit(A)
    agenda.announced(A, 2.0)
    agenda.visit_failed(A, 3.0)
    at = agenda.due_at(A)
    assert at is not None
    assert at > 3.0
    assert agenda.next(at, at) == Visit(A)
    agenda.visit_done(A, None)
    assert agenda.due_at(A) is None


def test_late_visits_do_not_shorten_the_sleep() -> None:
    agenda = an_agenda(A, B, C, VisitPlace(1, "d"), VisitPlace(1, "e"))
    for at, place in enumerate((A, B, C, VisitPlace(1, "d"), VisitPlace(1, "e")), 1):
        agenda.announced(place, at / 10)
    assert [agenda.next(2.0, 2.0), agenda.next(2.0, 2.0)] == [Visit(A), Visit(B)]
    assert [agenda.next(3.0, 3.0), agenda.next(3.0, 3.0)] == [Visit(C), Visit(VisitPlace(1, "d"))]
    assert agenda.next(3.25, 3.25) == Sleep(0.75)  # C and d are late then, as A and B are now


def test_new_entities_are_read_by_slot_in_batches_with_pauses_for_their_sizes() -> None:
    agenda = Agenda(PACE)
    agenda.set_entities({name: [0] for name in "abcd"} | {"e": [0, 1]}, 0.0)
    seen = first_reads(agenda)
    assert [read for _, read in seen] == [Read(0, ("a", "b", "c")), Read(1, ("e",)), Read(0, ("d", "e"))]
    assert [at for at, _ in seen] == pytest.approx([0.0, 0.5, 0.5 + 0.5 / 3])


def test_many_slots_with_few_places_each_are_read_within_a_second() -> None:
    agenda = Agenda()
    agenda.set_entities({f"{number}-{name}": [number] for number in range(256) for name in "ab"}, 0.0)
    seen = first_reads(agenda)
    assert len(seen) == 256
    assert seen[-1][0] < 1.0


def test_only_a_slot_with_missed_announcements_is_read_again() -> None:
    agenda = an_agenda(A, B, C)
    agenda.missed(0)
    assert agenda.next(10.0, 10.0) == Read(0, ("a", "b"))
    assert isinstance(agenda.next(11.0, 11.0), Sleep | Read)
    assert not agenda.all_read
    agenda.read_done(Read(0, ("a", "b")), [None, None])
    assert agenda.all_read


def test_an_unreadable_slot_is_retried_without_blocking_the_others() -> None:
    agenda = Agenda(PACE)
    agenda.set_entities({"a": [0], "c": [1]}, 0.0)
    first, second = Read(0, ("a",)), Read(1, ("c",))
    assert agenda.next(0.0, 0.0) == first
    assert agenda.next(0.5, 0.5) == Sleep(0.5)  # only one read at a time, while its answer may still come
    assert agenda.next(1.0, 1.0) == second
    agenda.read_done(second, [None])
    agenda.read_failed(first, 5.0)
    pause = agenda.next(5.0, 5.0)
    assert isinstance(pause, Sleep)
    assert 0.5 <= pause.seconds <= 1.0
    assert agenda.next(6.0, 6.0) == first


def test_an_entity_that_is_removed_during_a_failed_read_is_not_read_again() -> None:
    agenda = Agenda(PACE)
    agenda.set_entities({"a": [0], "b": [0]}, 0.0)
    read = Read(0, ("a", "b"))
    assert agenda.next(0.0, 0.0) == read
    agenda.remove_entity("a")
    agenda.read_failed(read, 1.0)
    assert agenda.next(9.0, 9.0) == Read(0, ("b",))


def test_the_round_passes_over_a_slot_in_its_pause_after_a_failure() -> None:
    agenda = an_agenda(A, C)
    agenda.missed(0)
    at = PACE.round / 2 - 0.1  # just before the first part of the round, which is for the slot 0
    read = Read(0, ("a",))
    assert agenda.next(at, at) == read
    agenda.read_failed(read, at)
    assert isinstance(agenda.next(at + 0.4, at + 0.4), Sleep)  # the pause lasts for half a second at least


def test_an_entity_gains_and_loses_places() -> None:
    """The client has got the shards of other slots."""
    agenda = Agenda(PACE)
    agenda.set_entities({"a": (0, 1)}, 0.0)
    for number in (0, 1):
        assert agenda.next(number, 0.0) == Read(number, ("a",))
        agenda.read_done(Read(number, ("a",)), [9.0])
    agenda.set_entities({"a": (1, 2)}, 1.0)
    assert agenda.due_at(VisitPlace(0, "a")) is None
    assert agenda.due_at(VisitPlace(1, "a")) == 9.0
    assert not agenda.announced(VisitPlace(0, "a"), 5.0)
    assert agenda.next(2.0, 0.0) == Read(2, ("a",))


def test_a_read_that_succeeds_ends_the_growth_of_the_pauses() -> None:
    agenda, now, pause = Agenda(PACE), 0.0, 0.0
    agenda.set_entities({"a": [0]}, now)
    for fails in (True, True, True, False, True):
        todo = agenda.next(now, now)
        assert todo == Read(0, ("a",))
        if fails:
            agenda.read_failed(Read(0, ("a",)), now)
            wait = agenda.next(now, now)
            assert isinstance(wait, Sleep)
            pause = wait.seconds
        else:
            agenda.read_done(Read(0, ("a",)), [None])
            agenda.missed(0)
            pause = PACE.between_reads
        now += pause
    assert pause <= PACE.first_pause


def test_a_round_leaves_out_entities_that_were_removed_during_it() -> None:
    agenda = an_agenda(*(VisitPlace(0, name) for name in "pqrst"))
    reading, seen = reads(agenda, 10.0), list[str]()
    while len(seen) < 3:  # the first part of the round
        seen += next(reading)[1].entities
    (gone, left) = (name for name in "pqrst" if name not in seen)
    agenda.remove_entity(gone)
    assert next(reading)[1] == Read(0, (left,))


def test_every_place_is_read_again_in_each_round_in_several_parts() -> None:
    places = [VisitPlace(0, str(name)) for name in range(7)] + [VisitPlace(1, "x")]
    seen: list[tuple[float, VisitPlace]] = []
    for now, read in takewhile(lambda at: at[0] < 250.0, reads(an_agenda(*places), 50.0)):
        seen += [(now, VisitPlace(read.number, entity)) for entity in read.entities]
    for place in places:
        times = [at for at, each in seen if each == place]
        assert len(times) >= 2
        assert max(later - sooner for sooner, later in pairwise(times)) <= PACE.round + 0.01
    assert len({at for at, _ in seen}) <= 9  # a round of 100 s is split into parts


def test_a_deleted_entity_is_forgotten() -> None:
    agenda = an_agenda(A, B)
    agenda.announced(A, 1.0)
    agenda.announced(B, 2.0)
    assert agenda.next(1.0, 1.0) == Visit(A)
    agenda.set_entities({"c": [1]}, 1.0)
    agenda.visit_done(A, 1.0)
    agenda.visit_failed(B, 1.0)
    assert not agenda.knows("a")
    assert not agenda.announced(A, 1.0)
    assert agenda.next(5.0, 5.0) == Read(1, ("c",))
    assert isinstance(agenda.next(5.0, 5.0), Sleep)


def test_an_announcement_for_an_unknown_place_is_reported() -> None:
    agenda = an_agenda(A)
    assert not agenda.announced(VisitPlace(0, "z"), 1.0)
    assert not agenda.announced(VisitPlace(7, "a"), 1.0)


def test_moving_the_clock_forward_makes_a_place_due() -> None:
    agenda = an_agenda(A)
    agenda.announced(A, 3600.0)
    assert isinstance(agenda.next(1.0, 1.0), Sleep)
    assert agenda.next(1.0, 3600.0) == Visit(A)


# -- places that are visited together ----------------------------------------------------------------------------------

TOGETHER = replace(PACE, visits_at_once=1, together=3)
OF_SLOT = [VisitPlace(0, name) for name in "abcde"]


def a_full_agenda(now: float = 0.0) -> Agenda:
    """Return an agenda of one slot in which something is due everywhere, and of another slot."""
    agenda = Agenda(TOGETHER)
    agenda.set_entities({place.entity: [place.number] for place in (*OF_SLOT, VisitPlace(1, "x"))}, now)
    for at, place in enumerate((OF_SLOT[0], VisitPlace(1, "x"), *OF_SLOT[1:])):
        agenda.announced(place, now + at / 10)
    return agenda


def test_places_of_one_slot_in_which_work_is_due_are_visited_together() -> None:
    agenda = a_full_agenda()
    a, b, c, d, e = OF_SLOT
    assert agenda.next(0.25, 0.25) == Visit(a, (b,))  # nothing else is due there yet
    for place in (a, b):
        assert isinstance(agenda.next(1.0, 1.0), Read | Sleep)  # the visit goes on until its last place is done
        agenda.visit_done(place, None)
    assert agenda.next(1.0, 1.0) == Visit(VisitPlace(1, "x"))
    agenda.visit_done(VisitPlace(1, "x"), None)
    assert agenda.next(1.0, 1.0) == Visit(c, (d, e))


def test_a_place_that_needs_a_visit_of_its_own_is_left_out_of_the_next_one() -> None:
    agenda = a_full_agenda()
    a, b, c, d, e = OF_SLOT
    assert agenda.next(1.0, 1.0) == Visit(a, (b, c))
    agenda.visit_done(a, 1.0, alone=True)
    agenda.announced(b, 1.0)
    agenda.visit_failed(b, 1.0)
    agenda.visit_done(c, None)
    agenda.remove_entity("x")
    assert agenda.next(1.5, 1.5) == Visit(d, (e,))
    for place in (d, e):
        agenda.visit_done(place, None)
    agenda.announced(c, 1.5)
    assert agenda.next(1.5, 1.5) == Visit(a, alone=True)
    agenda.visit_done(a, None)
    assert agenda.next(1.5, 1.5) == Visit(c)
    agenda.visit_done(c, 1.5)
    assert agenda.next(9.0, 9.0) == Visit(c)  # which was due before the pause of the failed place was over
    agenda.visit_done(c, None)
    assert agenda.next(9.0, 9.0) == Visit(b, alone=True)
    agenda.visit_done(b, 9.0)
    agenda.announced(a, 9.0)
    assert agenda.next(9.0, 9.0) == Visit(b, (a,))


def test_an_entity_that_is_removed_leaves_the_visit_it_is_in() -> None:
    agenda = a_full_agenda()
    a, b, c, *_ = OF_SLOT
    assert agenda.next(1.0, 1.0) == Visit(a, (b, c))
    agenda.remove_entity("b")
    agenda.visit_done(b, 1.0)
    agenda.visit_done(a, None)
    agenda.visit_done(c, None)
    assert agenda.next(1.0, 1.0) == Visit(VisitPlace(1, "x"))


# -- a simulation ------------------------------------------------------------------------------------------------------

WITHOUT_ROUND = replace(PACE, round=1e9)
"""A pace without rounds. A round would find due work whose announcement was missed, and so hide the mistake."""
PLACES = [VisitPlace(number, f"{entity}{number}") for number in range(3) for entity in "pqrst"]


@dataclass
class World:
    """Partitions that announce their due times. For a while the listener may miss the announcements of a slot."""

    due: dict[VisitPlace, float] = field(default_factory=dict)
    announced_at: dict[VisitPlace, float] = field(default_factory=dict)
    deaf: set[int] = field(default_factory=set)
    now: float = 0.0

    def put(self, agenda: Agenda, place: VisitPlace, at: float) -> None:
        """Make work due at a time. The partition announces it by the rule of announce.lua."""
        self.due[place] = min(at, self.due.get(place, at))
        self.announce(agenda, place)

    def announce(self, agenda: Agenda, place: VisitPlace) -> None:
        first, before = self.due.get(place, inf), self.announced_at.get(place, inf)
        if first < before or before <= self.now < first:
            self.announced_at[place] = first
            if place.number not in self.deaf and first < inf:
                agenda.announced(place, first)

    def visit(self, agenda: Agenda, place: VisitPlace) -> float | None:
        """Visit a place and return its next due time."""
        if self.due.get(place, self.now + 1) <= self.now:
            del self.due[place]
        self.announce(agenda, place)
        return self.due.get(place)


def carried_out(agenda: Agenda, world: World, fails: list[bool]) -> bool:
    """Check one decision of the agenda and carry it out. Return whether there was a decision."""
    known = {place: at for place in PLACES if (at := agenda.due_at(place)) is not None}
    todo = agenda.next(world.now, world.now)
    failing = bool(fails) and fails.pop()
    match todo:
        case Sleep(seconds):
            assert seconds >= 0
            assert all(at >= world.now + seconds - 1e-6 for at in known.values())
            return False
        case Visit(place):
            assert known[place] == min(known.values())
            assert known[place] <= world.now
            if failing:
                agenda.visit_failed(place, world.now)
            else:
                agenda.visit_done(place, world.visit(agenda, place))
        case Read(number, entities):
            assert all(at > world.now for at in known.values())
            if failing:
                agenda.read_failed(todo, world.now)
            else:
                agenda.read_done(todo, [world.due.get(VisitPlace(number, entity)) for entity in entities])
    return True


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(PLACES), st.floats(0, 50)),
        st.tuples(st.just("deafen"), st.integers(0, 2), st.none()),
        st.tuples(st.just("hear"), st.integers(0, 2), st.none()),
        st.tuples(st.just("pass"), st.none(), st.floats(0, 20)),
        st.tuples(st.just("do"), st.integers(1, 5), st.lists(st.booleans(), max_size=5)),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_all_due_work_is_done_despite_missed_announcements_and_failures(steps: list[tuple[str, ...]]) -> None:
    agenda, world = Agenda(WITHOUT_ROUND), World()
    agenda.set_entities({place.entity: [place.number] for place in PLACES}, 0.0)
    for kind, what, more in steps:
        apply(agenda, world, kind, what, more)
    for number in sorted(world.deaf):
        apply(agenda, world, "hear", number, None)
    ends = world.now + 50 + 20 * PACE.longest_pause
    idle = 0
    while world.now <= ends and (world.due or not agenda.all_read):
        if carried_out(agenda, world, []):
            idle = 0
            continue
        todo = agenda.next(world.now, world.now)
        assert isinstance(todo, Sleep)
        world.now += todo.seconds + 1e-9
        idle += 1
        assert idle < 3, "it wakes up without doing anything"
    assert not world.due
    assert agenda.all_read


def apply(agenda: Agenda, world: World, kind: str, what: object, more: object) -> None:
    match kind, what, more:
        case "put", VisitPlace() as place, float() as seconds:
            world.put(agenda, place, world.now + seconds)
        case "deafen", int() as number, _:
            world.deaf.add(number)
        case "hear", int() as number, _:
            if number in world.deaf:
                world.deaf.remove(number)
                agenda.missed(number)
        case "pass", _, float() as seconds:
            world.now += seconds
        case "do", int() as times, list() as fails:
            left = list(fails)
            for _ in range(times):
                carried_out(agenda, world, left)
        case _:
            pytest.fail(kind)


@pytest.mark.long("it goes through half an hour of ten thousand entities")
def test_ten_thousand_idle_entities_cost_less_than_one_call_a_second() -> None:
    """The calls are the reads of both agendas, the readings of the census, and the renewals of the roles."""
    entities = {str(number): slots_for_name(str(number), 16, 256) for number in range(10_000)}
    each_second = 0.0
    for pace in (VisitPace(), MOVING):
        calls, ends = 0, max(pace.round, 1800.0)
        agenda, first = Agenda(pace), None
        agenda.set_entities(entities, 0.0)
        for now, _ in takewhile(lambda at: at[0] < ends, reads(agenda)):  # noqa: B023 -- used at once
            calls += first is not None
            first = now if first is None and agenda.all_read else first
        each_second += calls / ends
        assert first is not None
        assert first < 30  # with the end of the claim of a client that was killed, another one has taken over in 60 s
    timings = Timings()
    each_second += 256 / timings.reading_buckets + len(DUTIES) / (timings.claiming / 3)
    assert timings.claiming <= 30
    assert each_second < 1
