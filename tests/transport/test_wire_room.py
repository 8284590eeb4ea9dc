"""The room for calls on one connection: waiting calls get room in order, and no event makes the wire forget a call."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.exceptions import Outcome
from sbredis.transport import WireLimits
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._wire import Wire
from tests.transport.hand import NOSCRIPT, HandStream, call, in_seconds, running, turns

ONE_AT_A_TIME = WireLimits(calls=1, bytes=1000)


async def submit_in_turn(wire: Wire, argument: bytes | int, seconds: float = 60) -> Any:
    """Submit a call in the same way as a node does."""
    deadline = in_seconds(seconds)
    if not await wire.room(deadline):
        return wire.failure or "no room"
    return await wire.submit(call(argument), deadline)


async def test_a_call_above_the_limit_of_calls_waits() -> None:
    async with running(WireLimits(calls=3, bytes=3_000_000)) as (wire, stream):
        tasks = [asyncio.create_task(submit_in_turn(wire, number)) for number in range(4)]
        await turns()
        assert stream.said == [b"0", b"1", b"2"]
        assert not wire.has_room
        stream.reply(b"a")
        await turns()
        assert stream.said == [b"0", b"1", b"2", b"3"]
        stream.reply(b"b", b"c", b"d")
        assert await asyncio.gather(*tasks) == [b"a", b"b", b"c", b"d"]
        assert wire._room == 3_000_000


async def test_a_call_larger_than_the_limit_of_bytes_is_sent_alone() -> None:
    async with running(WireLimits(calls=1000, bytes=10_000)) as (wire, stream):
        tasks = [asyncio.create_task(submit_in_turn(wire, bytes(20_000))) for _ in range(2)]
        await turns()
        assert len(stream.commands) == 1
        stream.reply(b"a")
        await turns()
        assert len(stream.commands) == 2
        stream.reply(b"b")
        assert await asyncio.gather(*tasks) == [b"a", b"b"]


async def test_waiting_calls_get_room_in_order_whatever_their_size() -> None:
    """A large call uses the room of several calls. A waiter that was woken too early keeps its place in the queue."""
    async with running(WireLimits(calls=4, bytes=4000)) as (wire, stream):
        first = asyncio.create_task(submit_in_turn(wire, bytes(3900)))
        await turns()
        sizes = [3900, 1, 1, 3900, 1, 1]
        tasks = [asyncio.create_task(submit_in_turn(wire, b"%d" % number * size)) for number, size in enumerate(sizes)]
        await turns()
        while not all(task.done() for task in tasks):
            stream.reply(*[b"ok"] * len(wire._in_flight))
            await turns()
        assert [argument[:1] for argument in stream.said[1:]] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert first.done()


async def test_later_calls_do_not_overtake_waiting_ones() -> None:
    async with running(ONE_AT_A_TIME) as (wire, stream):
        tasks = [asyncio.create_task(submit_in_turn(wire, number)) for number in range(2)]
        await turns()
        stream.reply(b"a")
        assert not wire.has_room  # the waiting call has the first claim to the free room
        tasks.append(asyncio.create_task(submit_in_turn(wire, 2)))
        for _ in range(2):
            await turns()
            stream.reply(b"ok")
        await asyncio.gather(*tasks)
        assert stream.said == [b"0", b"1", b"2"]


async def test_a_cancelled_call_passes_its_room_to_the_next_one() -> None:
    async with running(ONE_AT_A_TIME) as (wire, stream):
        tasks = [asyncio.create_task(submit_in_turn(wire, number)) for number in range(3)]
        await turns()
        stream.reply(b"a")
        tasks[1].cancel()
        await turns()
        assert stream.said == [b"0", b"2"]
        stream.reply(b"c")
        assert await tasks[2] == b"c"


async def test_a_call_that_times_out_passes_its_room_to_the_next_one() -> None:
    """The deadline passes in the same turn of the event loop in which the call is offered room."""
    async with running(ONE_AT_A_TIME) as (wire, stream):
        _ = wire.submit(call(0), in_seconds(60))
        deadline = in_seconds(0.02)
        asyncio.get_running_loop().call_at(deadline, stream.reply, b"a")
        hasty = asyncio.create_task(wire.room(deadline))
        await turns()
        patient = asyncio.create_task(submit_in_turn(wire, 2))
        assert not await hasty
        await turns()
        assert stream.said == [b"0", b"2"]
        stream.reply(b"ok")
        assert await patient == b"ok"


async def test_a_call_waits_for_room_only_until_its_deadline() -> None:
    async with running(ONE_AT_A_TIME) as (wire, stream):
        _ = wire.submit(call(), in_seconds(60))
        assert await submit_in_turn(wire, 1, seconds=0.01) == "no room"
        assert await submit_in_turn(wire, 2, seconds=-1) == "no room"
        assert not wire._line
        stream.reply(b"a")
        assert wire.has_room


async def test_a_lost_connection_ends_all_waits_for_room() -> None:
    async with running(ONE_AT_A_TIME) as (wire, stream):
        _ = wire.submit(call(), in_seconds(60))
        tasks = [asyncio.create_task(submit_in_turn(wire, number)) for number in range(3)]
        await turns()
        stream.lost("gone")
        results = await asyncio.gather(*tasks)
        assert [(result.kind, result.outcome) for result in results] == [(FailureKind.LOST, Outcome.NEVER_SENT)] * 3


# -- random steps ------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 3000)),
        st.tuples(st.just("submit in turn"), st.integers(0, 3000)),
        st.tuples(st.just("submit too late"), st.integers(0, 3000)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.sampled_from(["answer", "forget scripts"]), st.integers(1, 5)),
        st.tuples(st.sampled_from(["turn", "pause", "resume"]), st.just(0)),
    ),
    max_size=60,
)


def act(wire: Wire, stream: HandStream, step: str, number: int, ends: list[asyncio.Future[Any]]) -> None:
    """Do one step of a caller, of the network, or of the server."""
    match step:
        case "submit" | "submit too late":
            ends.append(wire.submit(call(bytes(number)), in_seconds(60 if step == "submit" else -1)))
        case "submit in turn":
            ends.append(asyncio.create_task(submit_in_turn(wire, bytes(number))))
        case "cancel" if ends:
            ends[number % len(ends)].cancel()
        case "answer" | "forget scripts":
            reply = b"ok" if step == "answer" else NOSCRIPT
            stream.reply(*[reply] * min(number, len(wire._in_flight)))
        case "pause":
            stream.pause()
        case "resume":
            stream.resume()


async def live_through(steps: list[tuple[str, int]], *, is_lost: bool) -> None:
    limits = WireLimits(calls=4, bytes=8000)
    async with running(limits) as (wire, stream):
        ends: list[asyncio.Future[Any]] = []
        for step, number in steps:
            act(wire, stream, step, number, ends)
            await turns(2 if step == "turn" else 0)
        if is_lost:
            stream.lost("gone")
        else:
            stream.resume()
            for _ in range(len(ends) * 4 + 4):
                stream.reply(*[b"ok"] * len(wire._in_flight))
                await turns()
        await turns()
        assert [end for end in ends if not end.done()] == []
        assert not wire.owes
        assert not wire._line
        assert wire._room == (0 if is_lost else limits.bytes)
        for end in ends:
            if not end.cancelled():
                result = end.result()
                assert result == b"ok" or isinstance(result, Failure)
                assert is_lost or result == b"ok" or result.outcome is Outcome.NEVER_SENT


@settings(deadline=None)
@given(STEPS, st.booleans())
def test_every_call_ends_exactly_once_and_all_room_is_free_at_the_end(
    steps: list[tuple[str, int]], is_lost: bool
) -> None:
    asyncio.run(live_through(steps, is_lost=is_lost))
