"""A handler's sends go out in the transaction that completes its message, so a worker that fails sends nothing twice.

python examples/worker_transactions.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

from sbredis.workers import Context, Idempotency, Retries, Router, Worker

CARTS = 20

handlers = Router()
invoices: Counter[str] = Counter()
failures = 0
done = asyncio.Event()


@handlers.queue("carts", create_if_missing=True, retries=Retries(first_delay=0), middleware=[Idempotency()])
async def check_out(cart: int, context: Context) -> None:
    """Send an invoice and a parcel for a cart: both or neither, and only once for each message id."""
    global failures  # noqa: PLW0603 -- for the report
    context.send("invoices", f"invoice for cart {cart}")
    if cart % 2 and context.attempt == 1:
        failures += 1
        raise RuntimeError("it failed halfway")  # nothing was sent
    context.send("invoices", f"parcel for cart {cart}")


@handlers.queue("invoices", create_if_missing={"colocate_with": "carts"})
async def collect(text: str) -> None:
    """Count what was sent."""
    invoices[text] += 1
    if text == "all were sent":
        done.set()


async def main(url: str = "memory://example") -> None:
    """Send each cart twice, as a sender does that got no answer."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        for _ in range(2):
            for cart in range(CARTS):
                await worker.send("carts", cart, message_id=f"cart-{cart}")
        while await worker.client.get_queue_receiver("carts").peek_messages():  # noqa: ASYNC110 -- the broker knows it
            await asyncio.sleep(0.02)
        await worker.send("invoices", "all were sent")
        await done.wait()
    del invoices["all were sent"]
    print(f"{failures > 0}: some handlers failed halfway")
    print(f"{len(invoices)} invoices and parcels, {sum(count > 1 for count in invoices.values())} of them twice")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
