"""Large messages: a call reads and writes only a limited number of their bytes, and reports whether more is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_REPLY_BYTES,
    NEXT_SESSION,
    Outgoing,
    PartitionSettings,
    new_token,
)
from tests.engine.bench import SETTINGS, Bench
from tests.engine.granting import grantors, names
from tests.engine.holding import put
from tests.engine.taking import first_token
from tests.engine.terms import State

pytestmark = pytest.mark.parametrize("target", ["memory", "server"], indirect=True)

LARGE = b"x" * 500_000


@pytest.fixture
def settings() -> PartitionSettings:
    return replace(SETTINGS, largest_message=10_000_000)


async def sent(bench: Bench, *messages: Outgoing) -> None:
    """Send messages, each in its own call."""
    for message in messages:
        await bench.send_all(message)


async def counted(bench: Bench) -> tuple[int, int]:
    counts = await bench.tell(bench.partition.count(bench.at()))
    return counts.active, counts.scheduled


async def test_a_receive_respects_its_room_when_large_messages_follow_many_small_ones(bench: Bench) -> None:
    small = [Outgoing(b"s%d" % number) for number in range(40)]
    await bench.send_all(*small)
    await sent(bench, *[Outgoing(LARGE)] * 10)
    held = await bench.receive(100)
    assert MAXIMUM_REPLY_BYTES // (len(LARGE) + 15) == len(held) - 40 == 3
    assert [len(await bench.receive(100)) for _ in range(3)] == [3, 3, 1]


@pytest.mark.parametrize("settings", [replace(SETTINGS, largest_message=10_000_000, sessions=True)])
async def test_the_sessions_of_a_reply_share_its_room(bench: Bench) -> None:
    """The first message of a session comes whatever its size. The partition announces the other sessions."""
    for number in range(8):
        await put(bench, f"s{number}", b"x" * 900_000, b"y" * 900_000)
    a = await (await grantors(bench))("a")
    reply = await a.grant(8, source=NEXT_SESSION, first=10, first_size=MAXIMUM_REPLY_BYTES, announced=True)
    sessions = [gift.session for gift in reply.gifts if gift.session is not None]
    assert [sum(len(first.messages) for first in session.gifts) for session in sessions] == [2, 1]
    assert reply.there
    assert await a.pushed() == [""]


async def test_the_receivers_of_a_call_share_the_room_of_its_reply(bench: Bench) -> None:
    """The others learn that there is more."""
    await sent(bench, *[Outgoing(b"x" * 900_000)] * 10)
    make = await grantors(bench)
    receivers = [await make(name) for name in "abcde"]
    grants = [each.sent(2, size_limit=MAXIMUM_REPLY_BYTES) for each in receivers]
    granted = await bench.tell(bench.partition.grant(grants, bench.at()))
    assert [len(names(reply)) for reply in granted.credits] == [2, 1, 0, 0, 0]
    assert all(reply.there for reply in granted.credits)


async def test_a_message_larger_than_the_room_is_given_out_alone(bench: Bench) -> None:
    await sent(bench, Outgoing(b"x" * 5_000_000), Outgoing(b"next"))
    (held,) = await bench.receive(10)
    assert len(held.payload) == 5_000_000
    assert [message.payload for message in await bench.receive(10)] == [b"next"]


async def test_a_peek_shows_messages_up_to_its_room(bench: Bench) -> None:
    await sent(bench, Outgoing(b"small"), *[Outgoing(LARGE)] * 10, Outgoing(b"last"))
    seen: list[str] = []
    pages = 0
    while shown := await bench.peek(int(seen[-1]) + 1 if seen else 0):
        assert sum(len(message.record) for message in shown) <= MAXIMUM_CALL_BYTES
        seen += [message.name for message in shown]
        pages += 1
    assert seen == [str(number) for number in range(1, 13)]
    assert pages == 2


# Each message takes 116 bytes in a reply: 16 of its record, and 100 of its changed properties.
CHANGED, FITTING = 60, 55
ROOM = FITTING * 116 + 115


@pytest.mark.parametrize(("room", "fitting"), [(ROOM, FITTING), (MAXIMUM_CALL_BYTES, CHANGED), (1, 1)])
async def test_a_receive_and_a_peek_count_changed_properties(bench: Bench, room: int, fitting: int) -> None:
    await bench.send(*[b"m"] * CHANGED)
    await bench.abandon(*await bench.receive(CHANGED), changes=b"c" * 100)
    shown = await bench.tell(bench.partition.peek(0, CHANGED, room=room, call_id=bench.at()))
    received = await bench.tell(bench.receiving(first_token(), CHANGED, room=room))
    for messages in (shown.messages, received.messages):
        assert [one.name for one in messages] == [str(number) for number in range(1, fitting + 1)]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("room", "fitting"), [(ROOM, FITTING), (MAXIMUM_CALL_BYTES, CHANGED), (1, 1)])
async def test_a_call_by_number_counts_changed_properties(bench: Bench, room: int, fitting: int, wide: bool) -> None:
    await bench.send(*[b"m"] * CHANGED)
    held = await bench.receive(CHANGED)
    await (bench.abandon if wide else bench.defer)(*held, changes=b"c" * 100)
    names = [one.name for one in held]
    request = bench.partition.receive_deferred(bench.call_id(), new_token(), names, room=room, wide=wide)
    received = await bench.tell(request)
    assert [one.name for one in received.messages] == names[:fitting]
    assert received.left == CHANGED - fitting


async def test_a_redrive_counts_changed_properties(bench: Bench) -> None:
    await bench.send(*[b"m"] * CHANGED)
    await bench.dead_letter(*await bench.receive(CHANGED), changes=b"c" * 50_000)
    redriven = await bench.redrive(*[f"d{number}" for number in range(1, CHANGED + 1)])
    assert redriven.left == CHANGED - (2 << 20) // 50_016


async def test_each_call_activates_a_bounded_share_of_large_scheduled_messages(bench: Bench) -> None:
    await sent(bench, *[Outgoing(LARGE, due=bench.now + 1000)] * 12)
    bench.later(1000)
    calls = 1
    while (await bench.due()).more:
        assert await bench.stored(State.ACTIVE) == 5 * calls
        calls += 1
    assert await bench.stored(State.ACTIVE) == 12
    assert await counted(bench) == (12, 0)
    assert calls == 3


async def test_each_call_removes_a_bounded_share_of_large_expired_messages(bench: Bench) -> None:
    await bench.change(time_to_live=1000)
    await sent(bench, *[Outgoing(LARGE)] * 12)
    bench.later(1000)
    assert (await bench.due()).more
    active, _ = await counted(bench)
    assert 0 < active < 12
    while (await bench.due()).more:
        pass
    assert await counted(bench) == (0, 0)


async def test_each_purge_step_of_large_messages_continues_where_the_previous_step_ended(bench: Bench) -> None:
    await sent(bench, *[Outgoing(LARGE)] * 20)
    steps, onwards = 0, 0
    while True:
        step = await bench.purge(start=onwards)
        steps += 1
        if step.onwards is None:
            break
        onwards = step.onwards
    assert steps == 3
    assert await counted(bench) == (0, 0)
