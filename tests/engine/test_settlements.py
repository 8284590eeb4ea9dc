"""The stream of settlements: each event in the life of a received message is noted once, in the call that it is in."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbredis.engine import Partition, SettlementColumns, SettlementEvent, SettlementsPlace, SettlementsRead
from sbredis.engine._settlements import Settlement, read_records
from sbredis.exceptions import DataLayoutError
from sbredis.transport import forget_memory
from tests.engine.bench import ENTITY, INCARNATION, NAMESPACE, SALT, SETTINGS, START, Bench, Held, set_to
from tests.engine.opening import open_with_scripts
from tests.engine.terms import EPOCH_LEAP

E, Place = SettlementEvent, SettlementsPlace
AUDITED = set_to(audited=True)
DEAD = set_to(audited=True, dead_letter_expired=True)


async def read(bench: Bench, after: int | SettlementsPlace = 0, wanted: int = 1000) -> SettlementsRead:
    place = Place(after) if isinstance(after, int) else after
    return await bench.tell(bench.partition.read_settlements(place, wanted, call_id=bench.at()))


async def events(bench: Bench, after: int = 0) -> list[tuple[SettlementEvent, str]]:
    return [(each.event, each.name) for each in (await read(bench, after)).settlements]


@AUDITED
async def test_a_message_that_is_given_out_is_noted_with_the_time_when_it_was_enqueued(bench: Bench) -> None:
    await bench.send(b"1", b"2")
    bench.later(10)
    await bench.send(b"3")
    bench.later(5)
    await bench.receive()
    assert (await read(bench)).settlements == tuple(
        Settlement(E.GIVEN, name, START + 15, START + later) for name, later in (("1", 0), ("2", 0), ("3", 10))
    )


@AUDITED
async def test_each_way_to_settle_a_message_is_noted(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(6)))
    first, second, third, fourth, fifth, _ = await bench.receive()
    await bench.complete(first, second)
    await bench.abandon(third)
    await bench.abandon(fourth, counted=False)
    await bench.defer(fifth)
    bench.later(SETTINGS.lock_duration)
    await bench.due()
    assert await events(bench, after=6) == [
        *((E.COMPLETED, name) for name in "12"),
        (E.ABANDONED, "3"),
        (E.RELEASED, "4"),
        (E.DEFERRED, "5"),
        (E.LAPSED, "6"),
    ]


@AUDITED
async def test_a_message_that_is_received_and_deleted_is_noted(bench: Bench) -> None:
    await bench.send(b"1")
    await bench.receive(mode="delete")
    assert (await read(bench)).settlements == (Settlement(E.TAKEN, "1", START, START),)


@AUDITED
async def test_a_deferred_message_that_is_received_is_noted(bench: Bench) -> None:
    await bench.send(b"1", b"2")
    await bench.defer(*await bench.receive())
    ((held,), _) = await bench.receive_deferred("1")
    await bench.complete(held)
    await bench.receive_deferred("2", mode="delete")
    assert await events(bench, after=4) == [(E.GIVEN, "1"), (E.COMPLETED, "1"), (E.TAKEN, "2")]


@AUDITED
async def test_dead_letters_are_noted_under_the_name_that_they_had(bench: Bench) -> None:
    await bench.send(b"1")
    await bench.dead_letter(await bench.one())
    await bench.complete(await bench.one(side="d"))
    await bench.send(b"2")
    for _ in range(SETTINGS.max_delivery_count):
        await bench.abandon(await bench.one())
    told = await events(bench)
    assert told[1:4] == [(E.DEAD_LETTERED, "1"), (E.GIVEN, "d1"), (E.COMPLETED, "d1")]
    assert Counter(event for event, name in told if name == "2") == {
        E.GIVEN: 3,
        E.ABANDONED: 2,
        E.DELIVERIES_EXCEEDED: 1,
    }


@pytest.mark.parametrize(
    "settings", [replace(SETTINGS, audited=True, max_delivery_count=most) for most in (1, 2, 16)], ids=["1", "2", "16"]
)
async def test_a_message_whose_locks_end_up_to_the_delivery_limit_is_noted_as_such(bench: Bench) -> None:
    await bench.send(b"1")
    for _ in range(bench.partition.settings.max_delivery_count):
        await bench.one()
        bench.later(SETTINGS.lock_duration)
        await bench.due()
    assert (await events(bench))[-1] == (E.DELIVERIES_EXCEEDED, "1")


@DEAD
async def test_messages_that_expire_to_the_dead_letter_queue_are_noted(bench: Bench) -> None:
    await bench.send(b"1", b"2", time_to_live=10)
    bench.later(10)
    await bench.due()
    assert await events(bench) == [(E.EXPIRED_TO_DEAD_LETTERS, "1"), (E.EXPIRED_TO_DEAD_LETTERS, "2")]


@AUDITED
async def test_messages_that_expire_for_good_are_noted(bench: Bench) -> None:
    """By themselves, when a lock ends, when they are abandoned, and when a deferred one is asked for."""
    await bench.send(b"1", b"2", b"3", b"4", time_to_live=10)
    _, second, third, fourth = await bench.receive()
    await bench.abandon((await bench.receive() or [second])[0], counted=False)
    await bench.defer(fourth)
    bench.later(10)
    await bench.abandon(third)
    await bench.receive_deferred("4")
    bench.later(SETTINGS.lock_duration)
    await bench.due()
    assert Counter(await events(bench, after=4)) == {
        (E.RELEASED, "2"): 1,
        (E.DEFERRED, "4"): 1,
        **{(E.EXPIRED, name): 1 for name in "1234"},
    }


@AUDITED
async def test_a_repeated_call_is_noted_once(bench: Bench) -> None:
    await bench.send(b"1")
    held = await bench.one()
    request = bench.partition.complete(bench.call_id(), [held.lock()])
    await bench.tell(request)
    before = await events(bench)
    await bench.tell(request)
    assert await events(bench) == before == [(E.GIVEN, "1"), (E.COMPLETED, "1")]


async def test_a_partition_notes_nothing_unless_it_is_audited(bench: Bench) -> None:
    await bench.send(b"1")
    await bench.complete(await bench.one())
    assert await read(bench) == SettlementsRead(SettlementColumns(), Place(), 0, Place(), other=False)
    await bench.change(audited=True)
    await bench.send(b"2")
    await bench.one()
    assert await events(bench) == [(E.GIVEN, "2")]


@AUDITED
async def test_what_was_noted_stays_when_the_partition_is_no_longer_audited(bench: Bench) -> None:
    await bench.send(b"1")
    held = await bench.one()
    await bench.change(audited=False)
    await bench.complete(held)
    assert await events(bench) == [(E.GIVEN, "1")]


@AUDITED
async def test_the_stream_is_read_on_from_any_place(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(10)))
    for _ in range(10):
        await bench.complete(await bench.one())
    whole = await read(bench)
    part = await read(bench, wanted=7)
    rest = await read(bench, part.next)
    assert part.settlements + rest.settlements == whole.settlements
    assert (len(part.settlements), part.next, part.lost, rest.next, rest.lost) == (7, Place(7), 0, Place(20), 0)
    assert await read(bench, 20) == SettlementsRead(SettlementColumns(), Place(20), 0, Place(20), other=False)


@AUDITED
async def test_a_reader_learns_that_settlements_are_lost(bench: Bench) -> None:
    """Here as if 48 settlements had been removed from the stream."""
    await bench.send(b"1", b"2")
    await bench.complete(await bench.one())
    state = bench.partition.keys[0]
    await bench.transport.command("HSET", state, "settlements", 50, key=state)
    await bench.one()
    told = await read(bench, after=1)
    assert (told.next, told.lost, [each.name for each in told.settlements]) == (Place(51), 48, ["1", "2"])


@AUDITED
async def test_a_place_after_the_last_settlement_belongs_to_another_stream(bench: Bench) -> None:
    await bench.send(b"1")
    await bench.one()
    told = await read(bench, after=7)
    assert (told.other, told.lost, [each.name for each in told.settlements]) == (True, 0, ["1"])


@AUDITED
async def test_the_ids_of_records_leap_when_a_failover_may_have_lost_some(bench: Bench) -> None:
    """The leap itself is no loss."""
    bench.run_id = "one"
    await bench.send(b"1", b"2")
    await bench.one()
    first = await read(bench)
    bench.run_id = "another"
    await bench.one()
    told = await read(bench, first.next)
    assert (told.next.record, told.next.leaps) == (first.next.record + EPOCH_LEAP + 1, first.next.leaps + 1)
    assert (told.next.number, told.lost, len(told.settlements)) == (2, 0, 1)


@AUDITED
@pytest.mark.parametrize("target", ["server"], indirect=True)  # the server decides how many records it removes
async def test_the_stream_keeps_about_the_last_million_settlements(bench: Bench) -> None:
    """Also over a leap of the ids. The server removes old records a hundred at a time."""
    bench.run_id = "one"
    await bench.send(b"m")
    for _ in range(60):
        await bench.abandon(await bench.one(), counted=False)
    bench.run_id = "another"
    for _ in range(60):
        await bench.abandon(await bench.one(), counted=False)
    state = bench.partition.keys[0]
    await bench.transport.command("HSET", state, "settlements", 1_000_119, key=state)
    for _ in range(441):
        await bench.abandon(await bench.one(), counted=False)
    told = await read(bench)
    assert told.next.number == told.lost + len(told.settlements)
    assert told.lost >= 1_000_119 - 240 + 100


# -- all together ------------------------------------------------------------------------------------------------------

OPEN = {E.GIVEN}
"""The events after which a receiver has the message."""


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.sampled_from(
            ("send", "receive", "delete", "complete", "abandon", "defer", "dead_letter", "by number", "later")
        ),
        min_size=5,
        max_size=40,
    )
)
def test_the_stream_says_which_messages_are_locked(steps: list[str]) -> None:
    """Random operations: the messages whose last event is that they were given out are those that are locked."""

    async def run() -> None:
        name = uuid4().hex
        async with await open_with_scripts(f"memory://{name}") as transport:
            audited = replace(SETTINGS, audited=True, dead_letter_expired=True)
            bench = Bench(transport, Partition(NAMESPACE, SALT, ENTITY, INCARNATION, 1, audited))
            await bench.tell(bench.partition.configure(create=True, now=bench.now))
            held: list[Held] = []
            for step in steps:
                await one_step(bench, step, held)
                last = {each.name: each.event for each in (await read(bench)).settlements}
                locked = {each.name for side in ("", "d") for each in await bench.peek(side=side, states="l")}
                assert {each for each, event in last.items() if event in OPEN} == locked
        forget_memory(name)

    asyncio.run(run())


async def one_step(bench: Bench, step: str, held: list[Held]) -> None:
    match step:
        case "send":
            await bench.send(b"1", b"2", time_to_live=40_000)
        case "receive":
            held += await bench.receive(2) or await bench.receive(1, side="d")
        case "delete":
            await bench.receive(1, mode="delete")
        case "by number":
            deferred = [each.name for each in await bench.peek(states="f")]
            held += (await bench.receive_deferred(deferred[0]))[0] if deferred else []
        case "later":
            bench.later(SETTINGS.lock_duration // 2)
            await bench.due()
        case _ if held:
            await getattr(bench, step)(held.pop())
        case _:
            pass


# -- reading records ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(E), st.lists(st.integers(1, 1 << 48), min_size=1, unique=True)), min_size=1))
def test_records_are_read_as_they_are_written(notes: list[tuple[SettlementEvent, list[int]]]) -> None:
    text = " ".join(f"{event.value}{','.join(map(str, numbers))}" for event, numbers in notes)
    expected = [Settlement(event, str(number), 5) for event, numbers in notes for number in numbers]
    end = Place(len(expected))
    told = read_records(Place(), end, [(b"%d" % len(expected), b"5", text.encode(), b"0")])
    assert told.settlements == tuple(expected)
    assert told[1:] == (end, 0, end, False)


def test_runs_and_times_are_spelled_out() -> None:
    told = read_records(Place(), Place(4), [(b"4", b"9", b"cd1-2 g7-8=100,-3", b"0")]).settlements
    assert told == (
        Settlement(E.COMPLETED, "d1", 9),
        Settlement(E.COMPLETED, "d2", 9),
        Settlement(E.GIVEN, "7", 9, 100),
        Settlement(E.GIVEN, "8", 9, 97),
    )


@pytest.mark.parametrize("notes", [b"", b"c", b"q1", b"q1;", b"c1,,2", b"g1=x", b"g1=1,2", b"g1-3=1", b"G1"])
def test_a_record_that_is_not_understood_is_an_error(notes: bytes) -> None:
    with pytest.raises(DataLayoutError, match="cannot be read"):
        read_records(Place(), Place(1), [(b"1", b"9", notes, b"0")])


def test_auditing_is_off_unless_it_is_switched_on() -> None:
    assert not SETTINGS.audited
    assert replace(SETTINGS, audited=True).audited
