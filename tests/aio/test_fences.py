"""Fences: each lock of a message or of a session gets a higher number than all earlier locks in its partition."""

from __future__ import annotations

from tests.aio.queues import Queue, in_memory
from tests.aio.session_queues import session_queue_at


async def test_each_lock_of_a_message_has_a_higher_fence(queue: Queue) -> None:
    await queue.send("a", "b")
    async with queue.receiver() as receiver:
        (first,) = await receiver.receive_messages(1, 60)
        (message,) = await receiver.receive_messages(1, 60)
        fences = [first.fence, message.fence]
        await receiver.abandon_message(message)
        (message,) = await receiver.receive_messages(1, 60)
        fences.append(message.fence)
        await receiver.defer_message(message)
        (message,) = await receiver.receive_deferred_messages(message.sequence_number)
        fences.append(message.fence)
        assert fences == [1, 2, 3, 4]


@in_memory
async def test_messages_of_one_call_share_a_fence_that_renewing_keeps(queue: Queue) -> None:
    await queue.send("a", "b")
    async with queue.receiver() as receiver:
        one, two = await receiver.receive_messages(2, 60)
        before = one.fence
        assert one.fence == two.fence
        await receiver.renew_message_lock(one)
        assert one.fence == before


@in_memory
async def test_a_message_without_a_lock_has_no_fence(queue: Queue) -> None:
    await queue.send("a", "b")
    async with queue.receiver() as receiver, queue.receiver(receive_mode="receiveanddelete") as deleting:
        (peeked,) = await receiver.peek_messages()
        (deleted,) = await deleting.receive_messages(1, 60)
        (settled,) = await receiver.receive_messages(1, 60)
        await receiver.complete_message(settled)
        assert [each.fence for each in (peeked, deleted, settled)] == [None] * 3


async def test_a_session_and_its_messages_share_the_fence_of_the_lock_on_the_session(url: str) -> None:
    async with session_queue_at(url) as queue:
        await queue.send_to("s", "a", "b")
        async with queue.session("s") as receiver:
            before = receiver.session.fence
            for _ in range(2):
                (message,) = await receiver.receive_messages(1, 60)
                assert message.fence == before
            await receiver.session.renew_lock()
            assert receiver.session.fence == before
        async with queue.session("s") as receiver:
            assert receiver.session.fence > before
