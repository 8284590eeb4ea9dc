"""A handler that computes runs in processes of its own, and a message that kills its process becomes a dead letter.

python examples/worker_processes.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from sbredis import ServiceBusReceivedMessage
from sbredis.workers import Retries, Router, SyncContext, Worker

handlers = Router()
results: asyncio.Queue[str] = asyncio.Queue()


@handlers.queue(
    "numbers",
    execution="process",
    max_concurrent_calls=2,
    retries=Retries(first_delay=0, attempts=2),
    create_if_missing=True,
)
def factorise(number: int, context: SyncContext) -> None:
    """Find the prime factors of a number. This holds the GIL of another process than that of the worker."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does it when there is no memory left
    factors: list[int] = []
    divisor, left = 2, number
    while left > 1:
        while left % divisor == 0:
            factors.append(divisor)
            left //= divisor
        divisor += 1
    context.send("factors", f"{number} = {' x '.join(map(str, factors))}")


@handlers.queue("factors", create_if_missing={"colocate_with": "numbers"})
async def collect(text: str) -> None:
    """Collect the results in the process of the worker."""
    results.put_nowait(text)


@handlers.queue("numbers", sub_queue="deadletter")
async def buried(number: int, message: ServiceBusReceivedMessage) -> None:
    """Collect the numbers that no process could handle."""
    results.put_nowait(f"{number}: {message.dead_letter_reason}: {message.dead_letter_error_description}")


async def main(url: str = "memory://example") -> None:
    """Send three numbers, one of which kills its process at each attempt."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        for number in 600_851_475_143, 360, -1:
            await worker.send("numbers", number)
        print(*sorted([await results.get() for _ in range(3)]), sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
