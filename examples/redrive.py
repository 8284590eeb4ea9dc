"""A redrive with a budget: dead letters go back to their queue, until too many of them die again.

python examples/redrive.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import RedriveBudget, ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def handle(client: ServiceBusClient, down: asyncio.Event, max_wait_time: float | None = None) -> None:
    """Handle orders. As long as the shop is down, dead-letter them."""
    async with client.get_queue_receiver("shop-orders", max_wait_time=max_wait_time) as receiver:
        async for message in receiver:
            if down.is_set():
                await receiver.dead_letter_message(message, "ShopDown", f"order {message} failed: no answer in 30 s")
            else:
                await receiver.complete_message(message)


async def main(url: str = "memory://example") -> None:
    """Let orders die, look at the dead letters, redrive them too early, and redrive them when the shop is up again."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("shop-orders")
        down = asyncio.Event()
        down.set()
        async with client.get_queue_sender("shop-orders") as sender:
            await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(100)])
        await handle(client, down, max_wait_time=1)

        async with client.get_queue_receiver("shop-orders", sub_queue="deadletter") as letters:
            found = await letters.redrive_messages(dry_run=True)
            for fingerprint, count in found.by_fingerprint.items():
                print(f"{count} dead letters: {fingerprint}")

            async with asyncio.TaskGroup() as tasks:
                handler = tasks.create_task(handle(client, down))
                budget = RedriveBudget(share=0.2, minimum=10)
                result = await letters.redrive_messages(cursor=found.cursor, rate=50, budget=budget)
                print("too early:", result.completed, result.stopped_because)

                down.clear()
                result = await letters.redrive_messages(reason="ShopDown", rate=1000, budget=budget)
                print("now:", result.completed, result.stopped_because)
                left = await letters.redrive_messages(dry_run=True)
                print(f"{left.matched} dead letters are left")
                handler.cancel()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
