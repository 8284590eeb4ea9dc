"""Peeking at and deleting the messages of one session without a lock on the session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusSessionFilter
from tests.aio.queues import Calls, bodies, both, in_memory, queue_at
from tests.aio.session_queues import SessionQueue, session_queue_at


async def filled(queue: SessionQueue) -> tuple[str, str]:
    """Send three messages to each of two sessions in one partition. Return the names of the sessions."""
    mine, other = queue.sessions_in(0, 2)
    for text in "123":
        await queue.send_to(mine, text)
        await queue.send_to(other, f"other {text}")
    return mine, other


@both
async def test_a_session_can_be_peeked_while_another_receiver_holds_it(url: str, partitioned: bool) -> None:
    """Each session has its own position for the next peek. The peeks neither lock nor release anything."""
    async with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = await filled(queue)
        async with queue.session(mine) as holder:
            (held,) = await holder.receive_messages(1, 60)
            looker = queue.receiver()
            assert bodies(await looker.peek_messages(2, session_id=mine)) == ["1", "2"]
            assert bodies(await looker.peek_messages(1, session_id=other)) == ["other 1"]
            assert bodies(await looker.peek_messages(2, session_id=mine)) == ["3"]
            assert await looker.peek_messages(2, session_id=mine) == []
            assert bodies(await looker.peek_messages(5, session_id=other)) == ["other 2", "other 3"]
            assert bodies(await looker.peek_messages(5, session_id=mine, sequence_number=1)) == ["1", "2", "3"]
            assert await looker.peek_messages(5, session_id="never sent to") == []
            assert await queue.locked_sessions() == 1
            await holder.complete_message(held)


@both
async def test_a_session_receiver_can_peek_and_delete_without_accepting_its_session(
    url: str, partitioned: bool
) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = await filled(queue)
        receiver = queue.session(mine)
        assert bodies(await receiver.peek_messages(5)) == ["1", "2", "3"]
        assert await receiver.delete_messages(2) == 2
        assert await receiver.purge_messages(session_id=mine) == 1
        assert receiver._session is None
        assert await queue.locked_sessions() == 0
        async with queue.session(other) as holder:
            assert bodies(await holder.receive_messages(5, 60)) == ["other 1", "other 2", "other 3"]


@both
async def test_one_session_is_purged_except_received_and_scheduled_messages(url: str, partitioned: bool) -> None:
    """Received and scheduled messages and all other sessions stay. This holds even if a receiver has the session."""
    async with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = await filled(queue)
        await queue.send_to(mine, "later", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
        async with queue.session(mine) as holder:
            (first,) = await holder.receive_messages(1, 60)
            purger = queue.receiver()
            assert await purger.purge_messages(session_id=mine) == 2
            await holder.complete_message(first)
        assert await purger.purge_messages(session_id=mine) == 0
        assert bodies(await purger.peek_messages(5, session_id=mine)) == ["later"]
        assert bodies(await purger.peek_messages(5, session_id=other)) == ["other 1", "other 2", "other 3"]
        assert await purger.delete_messages(2, session_id=other) == 2
        before = datetime(2020, 1, 1, tzinfo=UTC)
        assert await purger.delete_messages(2, session_id=other, before_enqueued_time_utc=before) == 0
        assert await purger.purge_messages() == 1


@pytest.mark.slow
@both
async def test_the_purge_of_a_session_takes_as_many_calls_as_it_needs(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        (mine,) = queue.sessions_in(0)
        async with queue.client.get_queue_sender("q") as sender:
            for _ in range(2):
                await sender.send_messages([ServiceBusMessage("m", session_id=mine) for _ in range(600)])
        assert await queue.receiver().purge_messages(session_id=mine) == 1200
        assert (await queue.counts()).bytes == 0


@in_memory
async def test_a_peek_of_the_next_available_session_accepts_the_session(url: str) -> None:
    async with session_queue_at(url) as queue:
        await queue.send_to("s", "1", "2")
        async with queue.session(ServiceBusSessionFilter.NEXT_AVAILABLE) as receiver:
            assert bodies(await receiver.peek_messages(5)) == ["1", "2"]
            assert await receiver.purge_messages(session_id="s") == 2
            with pytest.raises(ValueError, match="another session"):
                await receiver.purge_messages(session_id="t")


@in_memory
async def test_an_invalid_or_foreign_session_is_refused_before_any_call(url: str) -> None:
    async with session_queue_at(url) as queue:
        await queue.send_to("s", "1")
        receivers = [queue.session("t"), queue.receiver(sub_queue="deadletter")]
        with Calls(queue.transport) as calls:
            for receiver, message in zip(receivers, ("another session", "no sessions"), strict=True):
                for call in (receiver.peek_messages, receiver.purge_messages):
                    with pytest.raises(ValueError, match=message):
                        await call(session_id="s")
            wrong: list[Any] = [1, b"s", "s" * 129]
            for name in wrong:
                with pytest.raises((TypeError, ValueError), match="session_id"):
                    await queue.receiver().delete_messages(1, session_id=name)
        assert not calls.by_script
        assert (await queue.counts()).active == 1


@both
async def test_a_queue_without_sessions_refuses_to_peek_at_or_purge_a_session(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        for call in (receiver.peek_messages, receiver.purge_messages):
            with pytest.raises(ServiceBusError, match="has no sessions"):
                await call(session_id="s")
        assert (await queue.counts()).active == 1
