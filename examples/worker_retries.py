"""A handler that fails is called again, each time later. A message that always fails becomes a dead letter.

python examples/worker_retries.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusReceivedMessage
from sbredis.workers import Context, DeadLetter, Retries, Router, Worker

handlers = Router()
attempts: list[str] = []
buried: asyncio.Queue[str] = asyncio.Queue()


class AddressUnknownError(Exception):
    """An error that no retry can mend."""


@handlers.queue(
    "letters",
    create_if_missing=True,
    retries=Retries(first_delay=0.05, factor=2, jitter=False, attempts=3),
    no_retry=(AddressUnknownError,),
)
async def deliver(address: str, context: Context) -> DeadLetter | None:
    """Deliver a letter, or fail in one of several ways."""
    attempts.append(f"{address}: attempt {context.attempt}")
    if address == "nowhere":
        raise AddressUnknownError(f"there is no {address}")
    if address == "moved" and context.attempt < 3:
        raise ConnectionError("nobody is at home")
    if address == "closed":
        raise ConnectionError("the house is closed")
    return DeadLetter("Refused", "the reader refused the letter") if address == "refused" else None


@handlers.queue("letters", sub_queue="deadletter")
async def bury(address: str, message: ServiceBusReceivedMessage) -> None:
    """Handle a dead letter."""
    buried.put_nowait(f"{address}: {message.dead_letter_reason}: {message.dead_letter_error_description}")


async def main(url: str = "memory://example") -> None:
    """Send four letters: one arrives at the third attempt, and three become dead letters."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        for address in "moved", "nowhere", "refused", "closed":
            await worker.send("letters", address)
        lines = [await buried.get() for _ in range(3)]
    print(*sorted(attempts), *sorted(lines), sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
