"""Fundamentals, part three: messages have a time to live, and then expire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import NEVER, Outgoing
from sbredis.engine._lifecycle import State
from tests.engine.bench import SETTINGS, START, Bench, set_to

pytestmark = pytest.mark.anyio

LOCK = SETTINGS.lock_duration

either_way = pytest.mark.parametrize(
    "settings", [SETTINGS, replace(SETTINGS, dead_letter_expired=True)], ids=["gone", "kept"]
)


async def expired(bench: Bench) -> list[bytes]:
    """Check that no message is active; return the dead letters, all of which must have expired."""
    assert (await bench.count()).active == 0
    held = await bench.receive(side="d")
    assert {message.reason for message in held} <= {"T"}
    return [message.payload for message in held]


@either_way
async def test_an_expired_message_is_never_received(bench: Bench) -> None:
    """Expiry is exact to the millisecond. The settings of the entity decide whether an expired message is dead-lettered
    or deleted.
    """
    await bench.send(b"m", time_to_live=1000)
    bench.later(999)
    await bench.abandon(await bench.one(), counted=False)
    bench.later(1)
    assert await bench.receive() == []
    kept = bench.partition.settings.dead_letter_expired
    assert await expired(bench) == ([b"m"] if kept else [])
    assert ((await bench.count()).bytes > 0) is kept


@either_way
@pytest.mark.parametrize("longer", [False, True], ids=["alone", "behind longer ones"])
async def test_a_locked_message_expires_no_sooner_than_its_lock_ends(bench: Bench, longer: bool) -> None:
    """The holder can still complete the message. If the holder gives it back, even with a delay, it expires."""
    if longer:
        await bench.send(b"longer", time_to_live=100_000)
        await bench.complete(await bench.one())
    await bench.send(b"done", b"abandoned", b"delayed", b"unread", b"lapsed", time_to_live=1000)
    done, abandoned, delayed, unread, _ = await bench.receive()
    bench.later(1000)
    assert (await bench.count()).locked == 5
    assert (await bench.complete(done)).lost == ()
    await bench.abandon(abandoned)
    await bench.abandon(delayed, delay=1)
    await bench.abandon(unread, counted=False)
    counts = await bench.count()
    assert (counts.active, counts.delayed, counts.locked) == (0, 0, 1)
    bench.later(LOCK)
    assert await bench.receive() == []
    kept = [b"abandoned", b"delayed", b"unread", b"lapsed"] if bench.partition.settings.dead_letter_expired else []
    assert await expired(bench) == kept


@set_to(dead_letter_expired=True, max_delivery_count=1)
async def test_the_delivery_limit_takes_precedence_over_expiry(bench: Bench) -> None:
    await bench.send(b"m", time_to_live=1000)
    message = await bench.one()
    bench.later(1000)
    await bench.abandon(message)
    assert (await bench.one(side="d")).reason == "M"


async def test_a_message_does_not_expire_while_its_lock_is_renewed(bench: Bench) -> None:
    """A locked message does not expire, however often its lock is renewed."""
    await bench.send(b"m", time_to_live=1000)
    message = await bench.one()
    for _ in range(3):
        bench.later(LOCK - 1)
        assert (await bench.renew(message)).lost == ()
    assert (await bench.complete(message)).lost == ()


@set_to(time_to_live=1000)
async def test_a_message_without_a_time_to_live_gets_that_of_the_entity(bench: Bench) -> None:
    """The time to live of the entity is the default."""
    await bench.send(b"m")
    assert (await bench.peek())[0].record[:1] == b"x"
    bench.later(999)
    message = await bench.one()
    assert message.record.expires == START + 1000
    await bench.abandon(message, counted=False)
    bench.later(1)
    assert await bench.receive() == []


@set_to(time_to_live=1000)
async def test_no_message_lives_longer_than_the_entity_allows(bench: Bench) -> None:
    """The time to live of the entity is the maximum. A message keeps its own time to live if that is shorter."""
    await bench.send(b"long", time_to_live=5000)
    await bench.send(b"short", time_to_live=400)
    bench.later(400)
    held = await bench.receive()
    assert [(message.payload, message.record.expires) for message in held] == [(b"long", START + 1000)]
    await bench.abandon(*held)
    bench.later(600)
    assert await bench.receive() == []


async def test_a_new_maximum_time_to_live_applies_to_later_sends(bench: Bench) -> None:
    """Stored messages keep their time to live when the maximum changes."""
    await bench.send(b"first")
    await bench.change(time_to_live=1000)
    await bench.send(b"second")
    await bench.change(time_to_live=3000)
    await bench.send(b"third")
    await bench.change(time_to_live=100)
    await bench.send(b"fourth")
    for passed, there in ((100, [b"first", b"second", b"third"]), (900, [b"first", b"third"]), (2000, [b"first"])):
        bench.later(passed)
        held = await bench.receive()
        assert [message.payload for message in held] == there
        await bench.abandon(*held, counted=False)


@pytest.mark.parametrize("whose", ["message", "entity", "scheduled"])
async def test_a_time_to_live_of_centuries_is_valid(bench: Bench, whose: str) -> None:
    """A message whose time to live ends at or after the last possible time never expires."""
    for time_to_live in (NEVER - bench.now - 1, NEVER - bench.now, NEVER - bench.now + 1, NEVER - 1, NEVER):
        enqueued = bench.now
        if whose == "entity":
            await bench.change(time_to_live=time_to_live)
            await bench.send(b"m")
        elif whose == "message":
            await bench.send(b"m", time_to_live=time_to_live)
        else:
            enqueued += 1
            await bench.send(b"m", time_to_live=time_to_live, due=enqueued)
            bench.later(1)
        message = await bench.one()
        assert message.payload == b"m"
        assert message.record.expires == min(enqueued + time_to_live, NEVER)
        assert (await bench.complete(message)).lost == ()
        assert (await bench.count()).bytes == 0


async def test_a_message_with_a_time_to_live_of_zero_is_never_received(bench: Bench) -> None:
    """A time to live of 0 means that the message has expired when it arrives."""
    await bench.send(b"m", time_to_live=0)
    assert await bench.receive() == []
    assert (await bench.count()).bytes == 0


@set_to(dead_letter_expired=True)
async def test_messages_expire_in_the_order_in_which_their_times_to_live_end(bench: Bench) -> None:
    """The messages have long and short times to live, or none, in mixed order and on several levels."""
    lives = (5000, 100, None, 3000, 4000, 2000, 6000)
    await bench.send_all(*(Outgoing(b"%d" % (ttl or 0), ttl, level=place % 3) for place, ttl in enumerate(lives)))
    seen: list[bytes] = []
    for _ in range(6):
        bench.later(1000)
        await bench.due()
        seen += [message.payload for message in await bench.receive(side="d")]
    assert seen == [b"100", b"2000", b"3000", b"4000", b"5000", b"6000"]
    assert await bench.payloads() == [b"0"]


@set_to(dead_letter_expired=True)
async def test_messages_expire_even_if_no_client_receives(bench: Bench) -> None:
    """A scheduled message expires after it has been active for its time to live. Messages on all levels expire."""
    await bench.send(b"scheduled", time_to_live=500, due=START + 600)
    bench.later(600)
    assert (await bench.due()).due == 500
    bench.later(500)
    assert (await bench.due()).due == 0
    assert await expired(bench) == [b"scheduled"]
    for level in range(8):
        await bench.send(b"%d" % level, time_to_live=1000 + level, level=level)
    bench.later(1007)
    await bench.due()
    assert await expired(bench) == [b"%d" % level for level in range(8)]


async def test_each_receive_removes_a_bounded_number_of_expired_messages(bench: Bench) -> None:
    """Each call reports that due work is left, until a call reaches the message that has not expired and returns it."""
    await bench.send(*(b"m" for _ in range(450)), time_to_live=1000)
    await bench.send(b"alive")
    bench.later(1000)
    calls = 0
    while True:
        held, received = await bench.receive_more()
        calls += 1
        if held:
            break
        assert received.more
    assert ([message.payload for message in held], calls) == ([b"alive"], 4)


@set_to(max_delivery_count=10)
async def test_time_does_not_expire_deferred_messages(bench: Bench) -> None:
    """A deferred message does not expire while it waits or when it is given back, but when a call asks for it."""
    await bench.send(b"m", time_to_live=1000)
    await bench.defer(await bench.one())
    ((message,), _) = await bench.receive_deferred("1")
    await bench.abandon(message)
    ((message,), _) = await bench.receive_deferred("1")
    bench.later(LOCK)
    await bench.due()
    assert await bench.states() == {"1": "f"}
    assert await bench.receive_deferred("1") == ([], ("1",))


@set_to(dead_letter_expired=True)
async def test_a_delayed_message_does_not_outlive_its_time_to_live(bench: Bench) -> None:
    """The message expires when its time to live ends, not when the delay ends."""
    await bench.send(b"m", time_to_live=1000)
    await bench.abandon(await bench.one(), delay=50_000)
    bench.later(999)
    assert await bench.states() == {"1": "w"}
    assert (await bench.due()).due == 1
    bench.later(1)
    await bench.due()
    assert await expired(bench) == [b"m"]


async def test_an_expired_message_is_hidden_even_while_it_is_still_stored(bench: Bench) -> None:
    """Peeking and counting show the effects of time at once; `due` writes them."""
    await bench.send(b"m", time_to_live=1000)
    bench.later(1000)
    assert await bench.peek() == ()
    assert ((await bench.count()).active, await bench.stored(State.ACTIVE)) == (0, 1)
    awoken = await bench.due()
    assert (awoken.more, awoken.due) == (False, 0)
    assert ((await bench.count()).active, await bench.stored(State.ACTIVE)) == (0, 0)
