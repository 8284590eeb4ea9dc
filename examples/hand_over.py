"""Settling in another process: a program receives orders and ends, and a worker settles them by their lock tokens.

python examples/hand_over.py [CONNECTION STRING]

With a connection string of a server, the two parts can be two programs on two machines.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.aio import ServiceBusClient
from sbredis.workers import Worker


async def take_orders(url: str) -> None:
    """Receive orders, hand their lock tokens over as text, and end without settling."""
    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("orders", create_if_missing=True) as sender:
            await sender.send_messages([ServiceBusMessage(text) for text in ("3 cakes", "0 cakes")])
        await client.ensure_queue("checks")
        async with client.get_queue_receiver("orders") as receiver, client.get_queue_sender("checks") as checks:
            for order in await receiver.receive_messages(2, max_wait_time=20):
                token = str(order.lock_token)
                await checks.send_messages(ServiceBusMessage(str(order), application_properties={"token": token}))
                print(f"handed over: {order}")


async def main(url: str = "memory://example") -> None:
    """Let a worker settle what another client has received."""
    await take_orders(url)
    worker, checked = Worker(url), asyncio.Semaphore(0)

    @worker.queue("checks", max_concurrent_calls=1)
    async def check(order: str, message: ServiceBusReceivedMessage) -> None:
        token = UUID(str((message.application_properties or {})["token"]))
        async with worker.client.get_settler("orders") as settler:
            await settler.renew_message_lock(token)
            if order.startswith("0"):
                await settler.dead_letter_message(token, "Empty", "An order needs at least one cake.")
                print(f"refused: {order}")
            else:
                await settler.complete_message(token)
                print(f"accepted: {order}")
        checked.release()

    async with worker.running():
        await checked.acquire()
        await checked.acquire()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
