"""Several handlers share a queue: each message goes to the handler of its subject.

python examples/worker_routing.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusReceivedMessage
from sbredis.workers import Context, Router, Worker

handlers = Router()
done = asyncio.Event()


def is_large(message: ServiceBusReceivedMessage) -> bool:
    """Return whether an order is large. A condition may look at everything, but it should be quick."""
    count = (message.application_properties or {}).get("count")
    return isinstance(count, int) and count >= 100


@handlers.queue("shop", max_concurrent_calls=1)
async def anything_else(text: str, message: ServiceBusReceivedMessage) -> None:
    """Take the messages that no other handler takes."""
    print(f"{message.subject}: {text}")
    done.set()


@handlers.queue("shop", when=is_large)
async def large(text: str, context: Context) -> None:
    """Take large orders, whatever their subject is: among conditions, the first that is true wins."""
    print(f"a large order: {text}")
    context.send("shop", "by hand", subject="checked")


@handlers.queue("shop", subject="order.placed")
async def placed(text: str) -> None:
    """Take new orders."""
    print(f"a new order: {text}")


@handlers.queue("shop", subject="order.cancelled")
async def cancelled(text: str) -> None:
    """Take cancelled orders."""
    print(f"cancelled: {text}")


async def main(url: str = "memory://example") -> None:
    """Send messages with several subjects."""
    worker = Worker(url)
    worker.include(handlers)
    worker.entity("shop", create_if_missing=True)  # options that all handlers of an entity share
    async with worker.running():
        await worker.send("shop", "a teapot", subject="order.placed")
        await worker.send("shop", "a cup", subject="order.cancelled")
        await worker.send("shop", "200 spoons", subject="order.placed", application_properties={"count": 200})
        await done.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
