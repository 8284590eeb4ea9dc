"""Peeking at and deleting the messages of one session without a lock on the session."""

# Made by tools/make_sync from tests/aio/test_unlocked_sessions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusSessionFilter
from tests.sync.queues import SessionQueue, bodies, both, in_memory, queue_at, session_queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def filled(queue: SessionQueue) -> tuple[str, str]:
    """Send three messages to each of two sessions in one partition. Return the names of the sessions."""
    mine, other = queue.sessions_in(0, 2)
    for text in "123":
        queue.send_to(mine, text)
        queue.send_to(other, f"other {text}")
    return mine, other


@both
def test_a_session_can_be_peeked_while_another_receiver_holds_it(url: str, partitioned: bool) -> None:
    """Each session has its own position for the next peek. The peeks neither lock nor release anything."""
    with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = filled(queue)
        with queue.session(mine) as holder:
            (held,) = holder.receive_messages(1, 60)
            looker = queue.receiver()
            assert bodies(looker.peek_messages(2, session_id=mine)) == ["1", "2"]
            assert bodies(looker.peek_messages(1, session_id=other)) == ["other 1"]
            assert bodies(looker.peek_messages(2, session_id=mine)) == ["3"]
            assert looker.peek_messages(2, session_id=mine) == []
            assert bodies(looker.peek_messages(5, session_id=other)) == ["other 2", "other 3"]
            assert bodies(looker.peek_messages(5, session_id=mine, sequence_number=1)) == ["1", "2", "3"]
            assert looker.peek_messages(5, session_id="never sent to") == []
            assert queue.locked_sessions() == 1
            holder.complete_message(held)


@both
def test_one_session_is_purged_except_received_and_scheduled_messages(url: str, partitioned: bool) -> None:
    """Received and scheduled messages and all other sessions stay. This holds even if a receiver has the session."""
    with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = filled(queue)
        queue.send_to(mine, "later", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
        with queue.session(mine) as holder:
            (first,) = holder.receive_messages(1, 60)
            purger = queue.receiver()
            assert purger.purge_messages(session_id=mine) == 2
            holder.complete_message(first)
        assert purger.purge_messages(session_id=mine) == 0
        assert bodies(purger.peek_messages(5, session_id=mine)) == ["later"]
        assert bodies(purger.peek_messages(5, session_id=other)) == ["other 1", "other 2", "other 3"]
        assert purger.delete_messages(2, session_id=other) == 2
        before = datetime(2020, 1, 1, tzinfo=UTC)
        assert purger.delete_messages(2, session_id=other, before_enqueued_time_utc=before) == 0
        assert purger.purge_messages() == 1


@pytest.mark.slow
@both
def test_the_purge_of_a_session_takes_as_many_calls_as_it_needs(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        (mine,) = queue.sessions_in(0)
        with queue.client.get_queue_sender("q") as sender:
            for _ in range(2):
                sender.send_messages([ServiceBusMessage("m", session_id=mine) for _ in range(600)])
        assert queue.receiver().purge_messages(session_id=mine) == 1200
        assert (queue.counts()).bytes == 0


@in_memory
def test_a_peek_of_the_next_available_session_accepts_the_session(url: str) -> None:
    with session_queue_at(url) as queue:
        queue.send_to("s", "1", "2")
        with queue.session(ServiceBusSessionFilter.NEXT_AVAILABLE) as receiver:
            assert bodies(receiver.peek_messages(5)) == ["1", "2"]
            assert receiver.purge_messages(session_id="s") == 2
            with pytest.raises(ValueError, match="another session"):
                receiver.purge_messages(session_id="t")


@both
def test_a_queue_without_sessions_refuses_to_peek_at_or_purge_a_session(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a")
        receiver = queue.receiver()
        for call in (receiver.peek_messages, receiver.purge_messages):
            with pytest.raises(ServiceBusError, match="has no sessions"):
                call(session_id="s")
        assert (queue.counts()).active == 1
