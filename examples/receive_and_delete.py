"""Messages that may be lost: they are received and deleted in one step, without locks and settlements.

python examples/receive_and_delete.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage, ServiceBusReceiveMode
from sbredis.aio import ServiceBusClient


async def main(url: str = "memory://example") -> None:
    """Count ticks. If this process ended in the middle, the ticks that it had received would be lost."""
    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("ticks", create_if_missing=True) as sender:
            await sender.send_stream(ServiceBusMessage(b"tick") for _ in range(1_000))

        async with client.get_queue_receiver(
            "ticks", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=0.5
        ) as receiver:
            count = 0
            while messages := await receiver.receive_messages(max_message_count=200):
                count += len(messages)
        print(f"counted {count} ticks; there was nothing to settle")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
