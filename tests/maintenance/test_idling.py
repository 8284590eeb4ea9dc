"""The agenda of the role ``idle``. It decides without waiting, so its tests do not wait either."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from sbredis.engine import slots_for_name
from sbredis.maintenance._idling import MARGIN, IdleAgenda, IdlePace, ReadQuiet, RemoveIdle, Temporary, Wait

IDLE = 300.0
PACE = IdlePace(between_reads=1.0, batch=3, removals_at_once=2, first_pause=4.0, longest_pause=16.0)
LONG_AGO = -1e6


def an_agenda(*entities: str, numbers: tuple[int, ...] = (0, 1), clock: float = 0.0) -> IdleAgenda:
    agenda = IdleAgenda(PACE)
    agenda.set_entities({entity: Temporary(numbers, IDLE) for entity in entities}, clock)
    return agenda


def answered(agenda: IdleAgenda, now: float, used: float | None) -> ReadQuiet:
    """Answer the next question, which must come now, with the same last use for all its entities."""
    todo = agenda.next(now, now)
    assert isinstance(todo, ReadQuiet)
    agenda.read_done(todo, [used] * len(todo.entities), now)
    return todo


def failed(agenda: IdleAgenda, now: float) -> float:
    """Let the next question fail, which must come now. Return the pause after it."""
    todo = agenda.next(now, now)
    assert isinstance(todo, ReadQuiet)
    agenda.read_failed(todo, now)
    return waited(agenda, now)


def waited(agenda: IdleAgenda, now: float) -> float:
    wait = agenda.next(now, now)
    assert isinstance(wait, Wait)
    return wait.seconds


def about_to_be_removed(*entities: str) -> tuple[IdleAgenda, float]:
    """Return an agenda whose entities were all quiet for long enough, and the time."""
    agenda = an_agenda(*entities, numbers=(0,))
    answered(agenda, 0.0, LONG_AGO)
    return agenda, 1.0


def test_nothing_is_asked_without_entities() -> None:
    agenda = an_agenda()
    assert agenda.next(0.0, 0.0) == Wait(inf)
    assert agenda.at_rest


@pytest.mark.parametrize(
    ("used", "at"),
    [(0.0, IDLE + MARGIN), (-100.0, IDLE + MARGIN - 100), (50.0, IDLE + MARGIN + 50)],
    ids=["used now", "used before", "used since"],
)
def test_one_answer_is_enough_for_an_entity_in_use(used: float, at: float) -> None:
    agenda = an_agenda("a", numbers=(0, 1, 2))
    answered(agenda, 0.0, used)
    assert agenda.at_rest
    assert agenda.next(1.0, 1.0) == Wait(at - 1.0)
    assert isinstance(agenda.next(at, at), ReadQuiet)


@pytest.mark.parametrize("used", [LONG_AGO, -(IDLE + MARGIN), None], ids=["long ago", "just long enough", "not here"])
def test_an_entity_is_removed_after_all_its_partitions_were_quiet(used: float | None) -> None:
    agenda = an_agenda("a", numbers=(0, 1, 2))
    assert [answered(agenda, float(now), used).number for now in range(3)] == [0, 1, 2]
    assert agenda.next(3.0, 3.0) == RemoveIdle("a")
    assert agenda.next(3.0, 3.0) == Wait(inf)
    agenda.removed("a")
    assert agenda.at_rest
    assert agenda.next(1e9, 1e9) == Wait(inf)


def test_the_partition_that_was_used_last_is_asked_first() -> None:
    agenda = an_agenda("a", numbers=(0, 1, 2))
    asked = [answered(agenda, now, used) for now, used in ((0.0, LONG_AGO), (1.0, LONG_AGO), (2.0, 2.0))]
    then = 2.0 + IDLE + MARGIN
    assert asked[-1].number == 2
    assert answered(agenda, then, then - 1).number == 2, "it is still the one that was used last"


def test_a_use_during_a_series_of_questions_ends_it() -> None:
    agenda = an_agenda("a")
    answered(agenda, 0.0, LONG_AGO)
    answered(agenda, 1.0, 1.0)
    then = 1.0 + IDLE + MARGIN
    assert agenda.next(2.0, 2.0) == Wait(then - 2.0)
    assert [answered(agenda, then, LONG_AGO).number, answered(agenda, then + 1, LONG_AGO).number] == [1, 0]
    assert agenda.next(then + 2, then + 2) == RemoveIdle("a")


def test_questions_to_one_slot_are_joined_and_paced() -> None:
    agenda = an_agenda(*"abcdefgh", numbers=(0,))
    first = agenda.next(0.0, 0.0)
    assert first == ReadQuiet(0, ("a", "b", "c"))
    assert agenda.next(5.0, 5.0) == Wait(inf), "there is one read at a time"
    agenda.read_done(ReadQuiet(0, ("a", "b", "c")), [5.0] * 3, 5.0)
    assert agenda.next(5.0, 5.0) == ReadQuiet(0, ("d", "e", "f"))
    agenda.read_done(ReadQuiet(0, ("d", "e", "f")), [5.0] * 3, 5.1)
    assert agenda.next(5.25, 5.25) == Wait(0.75)
    assert agenda.next(6.0, 6.0) == ReadQuiet(0, ("g", "h"))


def test_the_slots_take_turns() -> None:
    agenda = IdleAgenda(PACE)
    agenda.set_entities({each: Temporary((0,), IDLE) for each in "abcde"} | {"z": Temporary((7,), IDLE)}, 0.0)
    assert [answered(agenda, float(now), 0.0).number for now in range(3)] == [0, 7, 0]


def test_a_failed_read_is_repeated_after_pauses_that_grow() -> None:
    agenda, now, pauses = an_agenda("a"), 0.0, list[float]()
    for _ in range(6):
        pauses.append(failed(agenda, now))
        now += pauses[-1]
    assert all(pause <= min(PACE.first_pause * 2**at, PACE.longest_pause) for at, pause in enumerate(pauses))
    assert max(pauses) > PACE.first_pause


def test_a_use_ends_the_growth_of_the_pauses() -> None:
    agenda, now, pause = an_agenda("a"), 0.0, 0.0
    for fails in (True, True, True, False, True):
        if fails:
            pause = failed(agenda, now)
        else:
            answered(agenda, now, now)
            pause = waited(agenda, now)
        now += pause
    assert pause <= PACE.first_pause


def test_a_use_that_a_removal_finds_ends_the_growth_of_the_pauses() -> None:
    agenda, now = an_agenda("a", numbers=(0,)), 0.0
    for _ in range(3):
        now += failed(agenda, now)
    answered(agenda, now, LONG_AGO)
    assert agenda.next(now, now) == RemoveIdle("a")
    agenda.kept("a", 0.0, now)
    assert failed(agenda, now + IDLE + MARGIN) <= PACE.first_pause


def test_a_few_entities_are_removed_at_the_same_time() -> None:
    agenda, now = about_to_be_removed(*"abc")
    assert [agenda.next(now, now), agenda.next(now, now)] == [RemoveIdle("a"), RemoveIdle("b")]
    assert agenda.next(now, now) == Wait(inf)
    agenda.removed("a")
    assert agenda.next(now, now) == RemoveIdle("c")


@pytest.mark.parametrize(
    ("quiet", "after"),
    [(0.0, IDLE + MARGIN), (100.0, IDLE + MARGIN - 100), (IDLE + MARGIN, 1.0), (1e9, 1.0)],
    ids=["in use", "used before", "nearly idle", "long ago"],
)
def test_an_entity_that_was_kept_is_asked_again_when_it_may_be_idle(quiet: float, after: float) -> None:
    agenda, now = about_to_be_removed("a")
    assert agenda.next(now, now) == RemoveIdle("a")
    agenda.kept("a", quiet, now)
    assert agenda.next(now, now) == Wait(after)
    assert isinstance(agenda.next(now + after, now + after), ReadQuiet)


def test_a_failed_removal_is_tried_again_after_a_pause_with_new_questions() -> None:
    agenda, now = about_to_be_removed("a")
    assert agenda.next(now, now) == RemoveIdle("a")
    agenda.removal_failed("a", now)
    pause = waited(agenda, now)
    assert pause <= PACE.first_pause
    now += pause
    answered(agenda, now, LONG_AGO)
    assert agenda.next(now, now) == RemoveIdle("a")


@pytest.mark.parametrize("when", ["waiting", "asked", "idle", "removing", "failing"])
def test_an_entity_that_is_gone_is_forgotten(when: str) -> None:
    agenda, now = an_agenda("a", numbers=(0,)), 0.0
    todo = None
    if when != "waiting":
        todo = agenda.next(now, now)
        assert isinstance(todo, ReadQuiet)
    if when in ("idle", "removing", "failing"):
        agenda.read_done(todo, [LONG_AGO], now)  # type: ignore[arg-type]
    if when in ("removing", "failing"):
        assert agenda.next(now, now) == RemoveIdle("a")
    agenda.set_entities({}, now)
    if when == "asked":
        agenda.read_done(todo, [LONG_AGO], now)  # type: ignore[arg-type]
    if when == "removing":
        agenda.kept("a", 0.0, now)
    if when == "failing":
        agenda.removal_failed("a", now)
    assert agenda.next(1e9, 1e9) == Wait(inf)
    assert agenda.at_rest


def test_an_entity_that_is_gone_before_its_turn_is_not_asked() -> None:
    agenda = an_agenda(*"abcde", numbers=(0,))
    first = agenda.next(0.0, 0.0)
    assert first == ReadQuiet(0, ("a", "b", "c"))
    agenda.set_entities({each: Temporary((0,), IDLE) for each in "abce"}, 1.0)
    agenda.read_done(ReadQuiet(0, ("a", "b", "c")), [1.0] * 3, 1.0)
    assert agenda.next(1.0, 1.0) == ReadQuiet(0, ("e",))


def test_an_entity_with_another_time_is_asked_again_at_once() -> None:
    agenda = an_agenda("a", numbers=(0,))
    answered(agenda, 0.0, 0.0)
    agenda.set_entities({"a": Temporary((0,), 2 * IDLE)}, 10.0)
    answered(agenda, 10.0, 0.0)
    assert agenda.next(10.0, 10.0) == Wait(2 * IDLE + MARGIN - 10)
    agenda.set_entities({"a": Temporary((0,), 2 * IDLE)}, 20.0)
    assert agenda.next(20.0, 20.0) == Wait(2 * IDLE + MARGIN - 20), "the list has not changed"


def test_an_answer_to_a_question_of_before_a_change_does_not_count() -> None:
    agenda = an_agenda("a", numbers=(0,))
    old = agenda.next(0.0, 0.0)
    assert isinstance(old, ReadQuiet)
    agenda.set_entities({"a": Temporary((0,), IDLE / 2)}, 1.0)
    agenda.read_done(old, [LONG_AGO], 1.0)
    assert isinstance(agenda.next(1.0, 1.0), ReadQuiet)


def test_a_failed_question_of_before_a_change_does_not_delay_the_next_one() -> None:
    agenda = an_agenda("a", numbers=(0,))
    old = agenda.next(0.0, 0.0)
    assert isinstance(old, ReadQuiet)
    agenda.set_entities({"a": Temporary((1,), IDLE)}, 1.0)
    agenda.next(1.0, 1.0)
    agenda.read_failed(old, 1.0)
    assert agenda.next(1.0, 1.0) == ReadQuiet(1, ("a",))


def test_a_change_before_a_removal_causes_new_questions() -> None:
    agenda, now = about_to_be_removed(*"abc")
    assert [agenda.next(now, now), agenda.next(now, now)] == [RemoveIdle("a"), RemoveIdle("b")]
    agenda.set_entities({"a": Temporary((0,), IDLE), "b": Temporary((0,), IDLE), "c": Temporary((0,), 2 * IDLE)}, now)
    agenda.removed("a")
    assert agenda.next(now, now) == ReadQuiet(0, ("c",))


def test_a_change_during_a_removal_waits_for_its_end() -> None:
    agenda, now = about_to_be_removed("a")
    assert agenda.next(now, now) == RemoveIdle("a")
    agenda.set_entities({"a": Temporary((0,), 2 * IDLE)}, now)
    assert agenda.next(now, now) == Wait(inf)
    agenda.kept("a", 0.0, now)
    assert agenda.next(now, now) == Wait(2 * IDLE + MARGIN)


@pytest.mark.parametrize("seed", range(30))
def test_exactly_the_idle_entities_are_removed(seed: int) -> None:
    """Partitions note a use at most once a minute, as real ones do. Uses, answers and failures come at any time."""
    chance = Random(seed)
    numbers, entities = (0, 1, 2), "abc"
    agenda, now, stop = an_agenda(*entities, numbers=numbers), 0.0, 3_000.0
    used = {(entity, number): 0.0 for entity in entities for number in numbers}
    noted = dict(used)
    removed: dict[str, float] = {}
    while len(removed) < len(entities):
        assert now < stop + 3 * IDLE  # several reads in a row may fail
        todo = agenda.next(now, now)
        if isinstance(todo, ReadQuiet):
            if chance.random() < 0.1:
                agenda.read_failed(todo, now)
            else:
                agenda.read_done(todo, [noted[entity, todo.number] for entity in todo.entities], now)
        elif isinstance(todo, RemoveIdle):
            quiet = now - max(noted[todo.entity, number] for number in numbers)
            if quiet < IDLE + MARGIN:
                agenda.kept(todo.entity, quiet, now)
            else:
                assert now - max(used[todo.entity, number] for number in numbers) >= IDLE
                agenda.removed(todo.entity)
                removed[todo.entity] = now
        else:
            assert todo.seconds > 0
            if now < stop and chance.random() < 0.5:
                now += max(0.001, min(todo.seconds, chance.choice((1.0, 59.0, 150.0))))
                entity = chance.choice(entities)
                place = (entity, chance.choice(numbers))
                if entity not in removed:
                    used[place] = now
                    if now - noted[place] >= MARGIN:
                        noted[place] = now
            else:
                now += max(0.001, min(todo.seconds, 60.0))


@pytest.mark.slow
@pytest.mark.parametrize(("idle", "hours", "most"), [(300.0, 1, 350), (86_400.0, 24, 35)], ids=["short", "long"])
def test_ten_thousand_entities_of_16_partitions_cost_few_reads(idle: float, hours: int, most: int) -> None:
    """All entities are in use all the time, so they are asked again and again, but never more than 500 in a second."""
    agenda, now, reads, last = IdleAgenda(), 0.0, 0, 0.0
    entities = {str(number): slots_for_name(str(number), 16, 256) for number in range(10_000)}
    agenda.set_entities({name: Temporary(numbers, idle) for name, numbers in entities.items()}, now)
    while now < hours * 3_600:
        todo = agenda.next(now, now)
        if isinstance(todo, ReadQuiet):
            assert now >= last
            reads, last = reads + 1, now + len(todo.entities) / 500
            agenda.read_done(todo, [now - now % 60] * len(todo.entities), now)
        else:
            assert isinstance(todo, Wait)
            now += max(todo.seconds, 0.001)
    assert reads <= most
