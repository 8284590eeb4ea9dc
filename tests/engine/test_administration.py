"""Fundamentals, part seven: administering a queue: peek, count, purge, limit, destroy."""

from __future__ import annotations

import pytest

from sbredis.engine import Outgoing
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusQuotaExceededError
from tests.engine.bench import START, Bench, set_to
from tests.engine.proof.picture import SENTINEL


@pytest.fixture
async def assorted(bench: Bench) -> Bench:
    """Return a queue with messages in every state, on both sides; their numbers are 1 to 5 and d1 to d4."""
    await bench.send(*(b"%d" % number for number in range(1, 9)))
    one, two, three, four, five, six, seven, eight = await bench.receive()
    await bench.dead_letter(five, six, seven, eight)
    await bench.abandon(one, counted=False)
    await bench.abandon(two, delay=20_000)
    await bench.defer(three)
    await bench.send(b"9", due=START + 50_000)
    first, second, third, _ = await bench.receive(4, side="d")
    await bench.abandon(first)
    await bench.abandon(second, delay=20_000)
    await bench.defer(third)
    assert four.name == "4"
    return bench


# -- peeking and counting ----------------------------------------------------------------------------------------------


async def test_count_reports_the_messages_in_each_state(assorted: Bench) -> None:
    """The answer has a count for each side and state, the stored bytes, the last number, and the next due time."""
    counts = await assorted.count()
    assert (counts.active, counts.locked, counts.delayed, counts.deferred, counts.scheduled) == (1, 1, 1, 1, 1)
    assert (counts.dead_active, counts.dead_locked, counts.dead_delayed, counts.dead_deferred) == (1, 1, 1, 1)
    assert (counts.held, counts.frozen, counts.dead_kept, counts.dead_frozen) == (0, 0, 0, 0)
    records = [message.record for side in ("", "d") for message in await assorted.peek(side="d" if side else "")]
    assert counts.bytes == sum(map(len, records))
    assert (counts.last, counts.due) == (9, START + 20_000 - assorted.now)


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_messages_until_there_is_room(bench: Bench) -> None:
    """Locked messages count towards the quota, and completed messages do not."""
    await bench.change(quota=1000)
    await bench.send(b"x" * 600)
    message = await bench.one()
    with pytest.raises(ServiceBusQuotaExceededError, match=r"of 1000 bytes"):
        await bench.send(b"y" * 600)
    await bench.complete(message)
    await bench.send(b"y" * 600)


async def test_the_quota_counts_the_dead_letter_queue(bench: Bench) -> None:
    """A queue becomes full if its dead letters are never removed."""
    await bench.change(quota=1000)
    await bench.send(b"x" * 600)
    await bench.dead_letter(await bench.one())
    with pytest.raises(ServiceBusQuotaExceededError, match="dead-letter queue included"):
        await bench.send(b"y" * 600)
    await bench.purge(side="d")
    await bench.send(b"y" * 600)


# -- duplicates --------------------------------------------------------------------------------------------------------

WINDOW = 60_000


@set_to(duplicate_window=WINDOW, most_ids=3)
async def test_new_ids_beyond_the_limit_are_refused_until_others_have_left_the_window(bench: Bench) -> None:
    """Repeated ids and messages without an id go on being accepted."""
    await bench.send_all(Outgoing(b"m", message_id=b"a"), Outgoing(b"m", message_id=b"b"))
    bench.later(1)
    before = await bench.whole()
    with pytest.raises(ServiceBusQuotaExceededError, match="remembers 2 of 3 message ids"):
        await bench.send_all(*(Outgoing(b"m", message_id=each) for each in (b"a", b"c", b"d")))
    assert await bench.whole() == before
    assert (await bench.send_all(*(Outgoing(b"m", message_id=each) for each in (b"a", b"c", b"c")))).dropped == 2
    with pytest.raises(ServiceBusQuotaExceededError, match="remembers 3 of 3 message ids"):
        await bench.send_all(Outgoing(b"m", message_id=b"d"))
    assert (await bench.send_all(Outgoing(b"m", message_id=b"c"), Outgoing(b"no id"))).dropped == 1
    bench.later(WINDOW - 1)
    assert (await bench.send_all(Outgoing(b"m", message_id=b"d"), Outgoing(b"m", message_id=b"a"))).dropped == 0


# -- destroying and changing -------------------------------------------------------------------------------------------


async def test_a_destroyed_partition_leaves_no_keys(assorted: Bench) -> None:
    """No key is left, whatever the partition contained; later callers are told that the partition is gone."""
    message = await assorted.one()
    for key in assorted.partition.keys:
        if key.decode() not in await assorted.whole():
            held = ("ZADD", key, 1) if key.endswith(b":grants") else ("HSET", key, "something")
            await assorted.transport.command(*held, "left", key=key)
    assert len(await assorted.whole()) == len(assorted.partition.keys)
    assert not await assorted.tell(assorted.partition.destroy())
    assert await assorted.whole() == {}
    for call in (
        lambda: assorted.send(b"m"),
        assorted.receive,
        lambda: assorted.complete(message),
        assorted.count,
        assorted.peek,
        assorted.due,
        assorted.purge,
    ):
        with pytest.raises(MessagingEntityNotFoundError):
            await call()
    assert await assorted.whole() == {}


async def test_a_partition_without_a_sentinel_works_the_same(bench: Bench) -> None:
    """Such a partition is slower. Changing its settings does not add a sentinel, and it is destroyed like any other."""
    order, entries = bench.partition.keys[1:3]
    await bench.transport.command("ZREM", order, SENTINEL, key=order)
    await bench.transport.command("HDEL", entries, SENTINEL, key=entries)
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.complete(one)
    await bench.change(lock_duration=1)
    await bench.dead_letter(two)
    await bench.abandon(three)
    assert await bench.states() == {"3": "a"}
    assert await bench.states(side="d") == {"d1": "a"}
    assert not await bench.tell(bench.partition.destroy())
    assert await bench.whole() == {}
