"""Messages that cannot be handled: how they become dead letters, and how to send them again.

python examples/dead_letters.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage, ServiceBusSubQueue
from sbredis.aio import ServiceBusClient


async def main(url: str = "memory://example") -> None:
    """Dead-letter one message and let another fail too often; then correct both messages and send them again."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("letters", max_delivery_count=3)
        async with client.get_queue_sender("letters") as sender:
            await sender.send_messages([ServiceBusMessage("unreadable"), ServiceBusMessage("fails")])

        async with client.get_queue_receiver("letters", max_wait_time=1) as receiver:
            async for message in receiver:
                if str(message) == "unreadable":
                    await receiver.dead_letter_message(message, "Unreadable", "It is not JSON.")
                else:
                    print(f"{message}: delivery {message.delivery_count} failed")
                    await receiver.abandon_message(message, delay=0.05)

        async with (
            client.get_queue_receiver("letters", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=1) as dead,
            client.get_queue_sender("letters") as sender,
        ):
            async for letter in dead:
                print(f"{letter}: {letter.dead_letter_reason}: {letter.dead_letter_error_description}")
                await sender.send_messages(ServiceBusMessage(f"{letter}, mended"))
                await dead.complete_message(letter)

        async with client.get_queue_receiver("letters", max_wait_time=1) as receiver:
            async for message in receiver:
                print(f"received: {message}")
                await receiver.complete_message(message)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
