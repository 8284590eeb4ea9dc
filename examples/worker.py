"""A worker calls a decorated function for each message of a queue.

python examples/worker.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from sbredis.workers import Context, Router, Worker

handlers = Router()  # the handlers of this module; a program with one module puts them on the worker itself
done = asyncio.Event()


@dataclass
class Order:
    """An order, as it is in the body of a message."""

    article: str
    count: int


@handlers.queue("orders", create_if_missing=True, max_concurrent_calls=32)
async def place(order: Order, context: Context) -> None:
    """Place an order. The message is completed when the function returns."""
    print(f"{context.entity}, attempt {context.attempt}: {order.count} x {order.article}")
    if order.article == "saucer":
        done.set()


async def main(url: str = "memory://example") -> None:
    """Run the worker for three orders. A program that runs for ever uses `python -m sbredis.workers` instead."""
    worker = Worker(url, max_concurrent_calls=1)  # for all handlers that do not say it themselves
    worker.include(handlers)
    async with worker.running():
        for order in Order("teapot", 2), Order("cup", 6), Order("saucer", 6):
            await worker.send("orders", order)
        await done.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
