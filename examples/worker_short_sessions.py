"""Most sessions have one message: a worker takes the next session at once, and still handles each one in order.

python examples/worker_short_sessions.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

from sbredis import ServiceBusMessage
from sbredis.workers import Context, Router, Worker

CUSTOMERS, LOYAL = 200, 5
"""The number of customers, and of those who order a second time."""

handlers = Router()
orders: dict[str, list[str]] = defaultdict(list)
done = asyncio.Event()


@handlers.queue("orders", create_if_missing={"requires_session": True})
async def place(order: str, context: Context) -> None:
    """Place an order. Orders of different customers are handled at the same time, those of one in their order."""
    assert context.session is not None
    orders[context.session.session_id].append(order)
    if sum(map(len, orders.values())) == CUSTOMERS + LOYAL:
        done.set()


async def main(url: str = "memory://example") -> None:
    """Send an order of each customer, and another one of some."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        first = [ServiceBusMessage("first", session_id=f"customer {number}") for number in range(CUSTOMERS)]
        second = [ServiceBusMessage("second", session_id=f"customer {number}") for number in range(LOYAL)]
        async with worker.client.get_queue_sender("orders") as sender:
            await sender.send_messages(first + second)
        await done.wait()
    print(f"{len(orders)} customers")
    print(f"in order: {all(own in (['first'], ['first', 'second']) for own in orders.values())}")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
