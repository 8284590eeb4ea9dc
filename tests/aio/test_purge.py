"""Deleting messages without receiving them: a given number, all, or those before a time. Locked and scheduled ones
stay.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.aio.queues import HandClock, Queue, bodies, both, queue_at, receive_exactly


@pytest.mark.conformance
@both
async def test_all_messages_except_locked_and_scheduled_ones_are_purged(queue: Queue, clock: HandClock) -> None:
    receiver = queue.receiver()
    await queue.send("locked", "deferred", "dead", at=-1)
    locked, deferred, dead = await receive_exactly(receiver, 3)
    await receiver.defer_message(deferred)
    await receiver.dead_letter_message(dead)
    await queue.send("scheduled", at=0, due=clock.told() + 60_000)
    await queue.send(*"abcdef")
    assert await receiver.purge_messages() == 7
    counts = await queue.counts()
    assert (counts.active, counts.deferred, counts.locked, counts.scheduled) == (0, 0, 1, 1)
    assert counts.dead_active == 1
    assert await receiver.purge_messages() == 0
    assert await queue.receiver(sub_queue="deadletter").purge_messages() == 1
    await receiver.complete_message(locked)
    clock.move(60)
    assert bodies(await receiver.receive_messages(1, 60)) == ["scheduled"]


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_the_requested_number_of_messages_is_deleted_oldest_first(queue: Queue) -> None:
    await queue.send(*"abcdef", at=-1)
    receiver = queue.receiver()
    assert await receiver.delete_messages(2) == 2
    assert bodies(await receiver.peek_messages(10)) == list("cdef")
    await queue.send("g", at=0)
    assert await receiver.delete_messages(4000) == 5
    assert await receiver.delete_messages(1) == 0


@both
async def test_only_messages_enqueued_before_a_time_are_deleted(queue: Queue, clock: HandClock) -> None:
    receiver = queue.receiver()
    await queue.send(*"abc")
    clock.move(10)
    moment = datetime.fromtimestamp(clock.utc(), UTC)
    await queue.send(*"def")
    assert await receiver.purge_messages(before_enqueued_time_utc=moment - timedelta(seconds=11)) == 0
    assert await receiver.delete_messages(2, before_enqueued_time_utc=moment) == 2
    assert await receiver.purge_messages(before_enqueued_time_utc=moment) == 1
    assert sorted(bodies(await receiver.peek_messages(10))) == list("def")


@both
async def test_a_purge_takes_as_many_calls_as_it_needs(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, partitions=2) as queue:
        for place in range(len(queue.partitions)):
            await queue.fill(1300, at=place)
        count = 1300 * len(queue.partitions)
        receiver = queue.receiver()
        assert await receiver.delete_messages(1200) == 1200
        assert await receiver.purge_messages() == count - 1200
        assert (await queue.counts()).bytes == 0
