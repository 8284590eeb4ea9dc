"""Tests of the decisions about reservations: who may take an entity, what a release does, and what errors say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.bulk import _claims as decide
from sbredis.bulk._claims import RecordChange
from sbredis.engine import Counts, PartitionSettings, Pin
from sbredis.exceptions import DataLayoutError, EntityReservedError, ReservationLostError, ServiceBusError
from sbredis.registry import EntityRecord, KeptReservation, reservation_of, with_reservation
from sbredis.registry._reservation import RESERVATION_PROPERTY, ReservationState
from tests.offenders import for_each

NOW = 1_700_000_000_000
OPEN = EntityRecord(
    name="Orders",
    partitions=(3,),
    state="active",
    properties={"user_metadata": "kept"},
    id="1",
    incarnation="a" * 12,
    version=7,
    stamp="b" * 12,
    created_at=0,
    updated_at=0,
)
NO_COUNTS = Counts(*[0] * len(Counts._fields))


def kept(consumer: str = "A", fence: int = 5, state: ReservationState = "reserved") -> KeptReservation:
    return KeptReservation(consumer=consumer, fence=fence, owner="run 1", since=NOW - 1000, state=state)


def with_kept(reservation: KeptReservation | None, record: EntityRecord = OPEN) -> EntityRecord:
    settings = replace(record.settings, reserved=reservation is not None)
    return replace(record, settings=settings, properties=with_reservation(record.properties, reservation))


def after(record: EntityRecord, change: RecordChange | None) -> EntityRecord:
    """Return the record after a change, or the same record without a change."""
    if change is None:
        return record
    return replace(record, version=record.version + 1, settings=change.settings, properties=change.properties)


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_claim_of_an_open_entity_closes_it_for_receivers() -> None:
    change = decide.claim(OPEN, "A", "run 2", NOW)
    assert change.fence == OPEN.version + 1
    assert change.settings == replace(OPEN.settings, reserved=True)
    assert change.properties["user_metadata"] == "kept"
    expected = KeptReservation(consumer="A", fence=change.fence, owner="run 2", since=NOW, state="reserving")
    assert reservation_of(after(OPEN, change)) == expected


@pytest.mark.parametrize(("before", "now"), [("reserving", "reserving"), ("reserved", "reserved")])
def test_another_run_of_the_consumer_takes_over_with_a_higher_fence(before: Any, now: str) -> None:
    """A complete reservation needs no second wait, because no receiver got a message since."""
    change = decide.claim(with_kept(kept("A", 5, before)), "A", "run 2", NOW)
    expected: Any = KeptReservation(consumer="A", fence=8, owner="run 2", since=NOW, state=now)  # type: ignore[arg-type]
    assert reservation_of(after(OPEN, change)) == expected


@pytest.mark.parametrize("state", ["reserving", "reserved"])
def test_another_consumer_is_refused_and_learns_who_has_the_entity(state: Any) -> None:
    seen = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with pytest.raises(EntityReservedError) as raised:
        decide.claim(with_kept(kept("A", 5, state)), "B", "run 9", NOW, seen)
    error = raised.value
    assert (error.consumer, error.owner, error.last_seen) == ("A", "run 1", seen)
    assert error.since == datetime(2023, 11, 14, 22, 13, 19, tzinfo=UTC)
    assert error.message == (
        "'Orders' is reserved for the consumer 'A' by 'run 1' since 2023-11-14 22:13:19 UTC and was last seen at "
        "2026-01-02 03:04:05 UTC: the consumer 'B' cannot reserve it too. To end the reservation, run: "
        "python -m sbredis.spark release Orders. An administration client does the same with release_reservation."
    )


REFUSED = [
    (PartitionSettings(topic=True), "it is a topic"),
    (PartitionSettings(sessions=True), "its messages belong to sessions"),
    (PartitionSettings(forwards=True), "it forwards its messages"),
]


@for_each(("settings", "why"), REFUSED, ids=str)
def test_an_entity_of_the_wrong_kind_cannot_be_claimed(settings: PartitionSettings, why: str) -> None:
    with pytest.raises(ServiceBusError, match=f"'Orders' cannot be reserved, because {why}"):
        decide.claim(replace(OPEN, settings=settings), "A", "", NOW)


@for_each("consumer", ["", " ", "a\nb", "x" * 201])
def test_a_consumer_needs_a_printable_name(consumer: str) -> None:
    with pytest.raises(ValueError, match="consumer must be 1 to 200 printable characters"):
        decide.require_consumer(consumer)


def test_a_consumer_is_named_by_text() -> None:
    with pytest.raises(TypeError, match="consumer must be text"):
        decide.require_consumer(7)  # type: ignore[arg-type]


# -- the end of the wait -----------------------------------------------------------------------------------------------


def test_a_claim_is_confirmed_once() -> None:
    record = after(OPEN, decide.claim(OPEN, "A", "", NOW))
    change = decide.confirm(record, 8)
    assert change is not None
    assert change.fence == 8
    assert decide.confirm(after(record, change), 8) is None


LOST = [None, kept("A", 6), kept("B", 6), kept("A", 5, "releasing")]


@for_each("now", LOST)
def test_a_claim_that_was_replaced_or_released_is_not_confirmed(now: KeptReservation | None) -> None:
    record = with_kept(now)
    with pytest.raises(ReservationLostError, match="The reservation of 'Orders' has ended"):
        decide.confirm(record, 5)
    with pytest.raises(ReservationLostError):
        decide.require_own(record, OPEN.incarnation, 5)


def test_an_entity_that_was_created_again_is_judged_by_its_partitions() -> None:
    decide.require_own(OPEN, "another incarnation", 5)


def test_a_claim_is_given_up_only_while_it_waits() -> None:
    record = with_kept(kept("A", 5, "reserving"))
    change = decide.give_up(record, 5)
    assert after(record, change) == replace(OPEN, version=8)
    for other in (None, kept("A", 6, "reserving"), kept("A", 5, "reserved"), kept("A", 5, "releasing")):
        assert decide.give_up(with_kept(other), 5) is None


# -- releases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["reserving", "reserved"])
@pytest.mark.parametrize("consumer", [None, "A"])
def test_a_release_begins_with_a_higher_fence_and_keeps_receivers_out(state: Any, consumer: str | None) -> None:
    record = with_kept(kept("A", 5, state))
    change = decide.begin_release(record, consumer)
    released = after(record, change)
    assert reservation_of(released) == kept("A", 8)._replace(state="releasing")
    assert released.settings.reserved
    assert decide.is_releasing(released)
    assert decide.begin_release(released, consumer) is None


def test_an_open_entity_needs_no_release() -> None:
    assert decide.begin_release(OPEN, None) is None
    assert not decide.is_releasing(OPEN)


def test_the_reservation_of_another_consumer_is_not_released() -> None:
    with pytest.raises(EntityReservedError, match="the reservation of the consumer 'B' cannot be released"):
        decide.begin_release(with_kept(kept("A")), "B")


def test_a_release_ends_with_an_open_entity() -> None:
    record = with_kept(kept("A", 8, "releasing"))
    assert after(record, decide.end_release(record, 8)) == replace(OPEN, version=8)
    for other in (None, kept("A", 9, "releasing"), kept("A", 9, "reserving")):
        assert decide.end_release(with_kept(other), 8) is None


# -- any order of steps ------------------------------------------------------------------------------------------------

Step = tuple[Literal["claim", "confirm", "give_up", "begin_release", "end_release"], str]
STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "confirm", "give_up", "begin_release", "end_release"]), st.sampled_from("AB"))
)


def tried(decision: Callable[..., RecordChange | None], *arguments: object) -> RecordChange | None:
    try:
        return decision(*arguments)
    except (EntityReservedError, ReservationLostError):
        return None


@given(STEPS)
def test_each_fence_is_new_and_only_a_release_or_a_claim_in_vain_opens_an_entity(steps: list[Step]) -> None:
    record, fences = OPEN, dict[str, int]()
    highest = 0
    for step, consumer in steps:
        before, fence = reservation_of(record), fences.get(consumer, 0)
        if step == "claim" and not decide.is_releasing(record):
            change = tried(decide.claim, record, consumer, "", NOW)
            if change is not None:
                assert change.fence > highest
                assert before is None or before.consumer == consumer
                highest = fences[consumer] = change.fence
        elif step == "begin_release":
            change = tried(decide.begin_release, record, consumer)
            if change is not None:
                assert change.fence > highest
                highest = fences[consumer] = change.fence
        elif step == "claim":
            continue
        else:
            change = tried(getattr(decide, step), record, fence)
        record = after(record, change)
        now = reservation_of(record)
        assert record.settings.reserved == (now is not None)
        if before is not None and now is None:
            assert before.state == ("reserving" if step == "give_up" else "releasing")
        if before is not None and now is not None:
            assert before.consumer == now.consumer
        assert record.properties["user_metadata"] == "kept"


# -- the wait ----------------------------------------------------------------------------------------------------------


def test_a_reservation_waits_for_messages_that_may_come_back() -> None:
    counts = {
        1: NO_COUNTS._replace(locked=2, due=4000),
        2: NO_COUNTS._replace(active=9, deferred=3, scheduled=4, transfer=1, dead_locked=5, due=1),
        5: NO_COUNTS._replace(delayed=3, frozen=1, due=2000),
    }
    what = decide.awaited(counts, (7,), 1000.0)
    assert (what.locked, what.delayed, what.frozen, what.partitions, what.unreachable) == (2, 3, 1, (1, 5), (7,))
    assert what.until == datetime.fromtimestamp(1002, UTC)
    assert not what.over
    assert str(decide.timed_out("Orders", 300.0, what)).startswith(
        "'Orders' was not reserved within 300 seconds: messages in partitions 1, 5 are still 2 locked and 3 delayed "
        "and 1 on the way to another entity; partition 7 could not be reached. No lock and no delay of them ends by "
        "itself before 1970-01-01 00:16:42 UTC. Stop the receivers of 'Orders', or give the reservation more time."
    )


@pytest.mark.parametrize("state", ["locked", "delayed", "frozen"])
def test_one_message_that_may_come_back_is_enough_to_wait(state: str) -> None:
    what = decide.awaited({1: NO_COUNTS, 4: NO_COUNTS._replace(**{state: 1})}, (), 1000.0)
    assert (what.over, what.partitions) == (False, (4,))


def test_a_reservation_waits_for_nothing_else() -> None:
    counts = {2: NO_COUNTS._replace(active=9, deferred=3, scheduled=4, transfer=1, dead_locked=5, due=1)}
    what = decide.awaited(counts, (), 1000.0)
    assert what.over
    assert what.until is None


# -- signs of life -----------------------------------------------------------------------------------------------------


def pin(fence: int, at: int) -> Pin:
    return Pin("birth", fence, 1, 0, 0, at, 0)


def test_only_calls_of_the_own_run_are_signs_of_life() -> None:
    pins = [pin(5, 2000), pin(5, 3000), pin(4, 9000), pin(0, 0)]
    assert decide.last_seen(kept("A", 5), pins) == datetime.fromtimestamp(3, UTC)
    assert decide.last_seen(kept("A", 6), pins) is None


def test_a_run_is_stale_after_its_last_call_or_after_its_claim() -> None:
    now = NOW / 1000
    assert not decide.is_stale(kept(), None, now, 2.0)
    assert decide.is_stale(kept(), None, now + 2, 2.0)
    assert not decide.is_stale(kept(), datetime.fromtimestamp(now + 1, UTC), now + 2, 2.0)
    assert not decide.is_stale(kept(), datetime.fromtimestamp(now - 60, UTC), now + 1, 2.0)


# -- the stored form ---------------------------------------------------------------------------------------------------

BROKEN = [7, {}, {"consumer": "A"}, {**with_reservation({}, kept())[RESERVATION_PROPERTY], "state": "lost"}]  # type: ignore[dict-item]


@for_each("stored", BROKEN)
def test_a_reservation_that_cannot_be_read_is_an_error(stored: Any) -> None:
    with pytest.raises(DataLayoutError, match="The reservation of 'Orders' cannot be read"):
        reservation_of(replace(OPEN, properties={RESERVATION_PROPERTY: stored}))


def test_what_a_newer_release_adds_to_a_reservation_is_no_error() -> None:
    stored: Any = with_reservation({}, kept())
    stored[RESERVATION_PROPERTY]["more"] = 1
    assert reservation_of(replace(OPEN, properties=stored)) == kept()
