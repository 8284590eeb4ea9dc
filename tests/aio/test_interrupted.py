"""Releasing a message in the middle of the work on it: the next delivery knows."""

from __future__ import annotations

from sbredis.model import ServiceBusReceivedMessage
from tests.aio.queues import both, in_memory, queue_at


@both
async def test_the_next_delivery_sees_the_interruption_and_later_ones_do_not(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a")
        receiver = queue.receiver()

        async def receive() -> ServiceBusReceivedMessage:
            (message,) = await receiver.receive_messages(1, 60)
            return message

        message = await receive()
        assert not message.interrupted
        await receiver.release_message(message, interrupted=True)
        message = await receive()
        assert (message.interrupted, message.delivery_count, message.application_properties) == (True, 1, None)
        await receiver.abandon_message(message)
        message = await receive()
        assert (message.interrupted, message.delivery_count) == (False, 2)
        await receiver.release_message(message, interrupted=True)
        message = await receive()
        await receiver.release_message(message)
        message = await receive()
        assert (message.interrupted, message.delivery_count) == (True, 2)  # nobody has worked on it in between
        await receiver.abandon_message(message)
        assert not (await receive()).interrupted


@in_memory
async def test_a_settler_can_report_an_interruption(url: str) -> None:
    async with queue_at(url) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        token = str(message.lock_token)
        async with queue.client.get_settler("q") as settler:
            await settler.release_message(token, interrupted=True)
        (message,) = await receiver.receive_messages(1, 60)
        assert message.interrupted
