"""Deleting messages without receiving them: a given number, all, or those before a time. Locked and scheduled ones
stay.
"""

# Made by tools/make_sync from tests/aio/test_purge.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.sync.queues import HandClock, bodies, both, queue_at, receive_exactly

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


@both
def test_all_messages_except_locked_and_scheduled_ones_are_purged(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        receiver = queue.receiver()
        queue.send("locked", "deferred", "dead", at=-1)
        locked, deferred, dead = receive_exactly(receiver, 3)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead)
        queue.send("scheduled", at=0, due=clock.told() + 60_000)
        queue.send(*"abcdef")
        assert receiver.purge_messages() == 7
        counts = queue.counts()
        assert (counts.active, counts.deferred, counts.locked, counts.scheduled) == (0, 0, 1, 1)
        assert counts.dead_active == 1
        assert receiver.purge_messages() == 0
        assert queue.receiver(sub_queue="deadletter").purge_messages() == 1
        receiver.complete_message(locked)
        clock.move(60)
        assert bodies(receiver.receive_messages(1, 60)) == ["scheduled"]


@both
def test_the_requested_number_of_messages_is_deleted_oldest_first(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send(*"abcdef", at=-1)
        receiver = queue.receiver()
        assert receiver.delete_messages(2) == 2
        assert bodies(receiver.peek_messages(10)) == list("cdef")
        queue.send("g", at=0)
        assert receiver.delete_messages(4000) == 5
        assert receiver.delete_messages(1) == 0


@both
def test_only_messages_enqueued_before_a_time_are_deleted(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue:
        receiver = queue.receiver()
        queue.send(*"abc")
        clock.move(10)
        moment = datetime.fromtimestamp(clock.utc(), UTC)
        queue.send(*"def")
        assert receiver.purge_messages(before_enqueued_time_utc=moment - timedelta(seconds=11)) == 0
        assert receiver.delete_messages(2, before_enqueued_time_utc=moment) == 2
        assert receiver.purge_messages(before_enqueued_time_utc=moment) == 1
        assert sorted(bodies(receiver.peek_messages(10))) == list("def")


@both
def test_a_purge_takes_as_many_calls_as_it_needs(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, partitions=2) as queue:
        for place in range(len(queue.partitions)):
            queue.fill(1300, at=place)
        count = 1300 * len(queue.partitions)
        receiver = queue.receiver()
        assert receiver.delete_messages(1200) == 1200
        assert receiver.purge_messages() == count - 1200
        assert (queue.counts()).bytes == 0
