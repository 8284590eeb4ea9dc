"""Branches forward their sales to one collector, and a client moves them. Without the collector, a sale comes back.

python examples/collector.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage, ServiceBusSubQueue
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient

BRANCHES = {"north": ["a kettle", "a lamp"], "south": ["a chair", "a table", "a rug"]}


async def main(url: str = "memory://example") -> None:
    """Sell in two branches. Read all sales at the collector. When the collector is gone, a sale comes back."""
    async with ServiceBusClient(url, maintenance=True) as client:  # this client also moves the messages
        await client.ensure_queue("sales")
        for branch in BRANCHES:
            await client.ensure_queue(f"sales-{branch}", forward_to="sales")

        for branch, sales in BRANCHES.items():
            async with client.get_queue_sender(f"sales-{branch}") as sender:
                await sender.send_messages([ServiceBusMessage(sale, subject=branch) for sale in sales])

        total = sum(map(len, BRANCHES.values()))
        found: list[str] = []
        async with client.get_queue_receiver("sales") as receiver:
            while len(found) < total:
                for message in await receiver.receive_messages(max_message_count=total, max_wait_time=10):
                    found.append(f"{message.subject} sold {message}")
                    await receiver.complete_message(message)
        print(*sorted(found), sep="\n")

        async with ServiceBusAdministrationClient(url) as administration:
            await administration.delete_queue("sales")
        async with client.get_queue_sender("sales-north") as sender:
            await sender.send_messages(ServiceBusMessage("a clock"))
        async with client.get_queue_receiver("sales-north", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=10)
            print(f"{message} came back: {message.dead_letter_reason}")
            await receiver.complete_message(message)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
