"""Two workers have the same schedule: each tick is sent by one of them, and handled once.

python examples/worker_schedules.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from sbredis.workers import Context, Router, Worker

handlers = Router()
ticks: list[object] = []
done = asyncio.Event()


@handlers.cron(every=timedelta(seconds=1))
async def count_the_stock(context: Context) -> None:
    """Take the message of a tick. The queue has the name of the function, and is created by the first worker."""
    if context.tick is not None and not done.is_set():
        print(f"counted the stock at second {context.tick:%S}")
        ticks.append(context.message.message_id)  # it is made of the name and the time
        if len(ticks) == 2:
            done.set()


@handlers.cron("0 3 * * *", tz="Europe/Berlin", queue="count_the_stock", missed="latest")
async def report() -> None:
    """Write a report at three o'clock in the night, or when the first worker starts again after that."""
    print("reported")


async def main(url: str = "memory://example") -> None:
    """Run two workers until two ticks have come."""
    one, two = Worker(url), Worker(url)
    one.include(handlers)
    two.include(handlers)
    async with one.running(), two.running():
        await done.wait()
    print(f"{len(set(ticks))} messages, each sent once")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
