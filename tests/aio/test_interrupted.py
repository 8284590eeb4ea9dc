"""Releasing a message in the middle of the work on it: the next delivery knows."""

from __future__ import annotations

import pytest

from tests.aio.queues import in_memory, queue_at


@in_memory
@pytest.mark.parametrize("by", ["receiver", "settler"])
async def test_the_next_delivery_sees_the_interruption_and_later_ones_do_not(url: str, by: str) -> None:
    async with queue_at(url) as queue, queue.client.get_settler("q") as settler:
        await queue.send("a")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        assert not message.interrupted
        if by == "receiver":
            await receiver.release_message(message, interrupted=True)
        else:
            await settler.release_message(str(message.lock_token), interrupted=True)
        (message,) = await receiver.receive_messages(1, 60)
        assert (message.interrupted, message.delivery_count, message.application_properties) == (True, 1, None)
        await receiver.abandon_message(message)
        (message,) = await receiver.receive_messages(1, 60)
        assert (message.interrupted, message.delivery_count) == (False, 2)
