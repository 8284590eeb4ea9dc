"""A receiver that prefetches messages, handles them one after the other, and renews their locks.

python examples/prefetch.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.aio import AutoLockRenewer, ServiceBusClient


async def handle(message: ServiceBusReceivedMessage) -> None:
    """Handle a message: here a service would do its work."""
    assert message.body.startswith(b"job")
    await asyncio.sleep(0)


async def main(url: str = "memory://example") -> None:
    """Send 1,000 jobs and handle them."""
    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("jobs", create_if_missing=True) as sender:
            await sender.send_stream(ServiceBusMessage(f"job {number}") for number in range(1_000))

        async with (
            AutoLockRenewer(max_lock_renewal_duration=600) as renewer,
            client.get_queue_receiver(
                "jobs", prefetch_count=200, adaptive_prefetch=True, auto_lock_renewer=renewer, max_wait_time=1
            ) as receiver,
        ):
            handled = 0
            async for message in receiver:  # the loop ends when no message has arrived for a second
                await handle(message)
                await receiver.complete_message(message)
                handled += 1
        print(f"handled {handled} jobs; prefetched messages that were not handled are back in the queue")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
