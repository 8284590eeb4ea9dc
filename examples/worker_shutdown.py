"""A worker that is stopped lets its handlers finish, and gives the messages of the others back without counting them.

python examples/worker_shutdown.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sbredis.workers import Context, Router, Worker

handlers = Router()
started: asyncio.Queue[str] = asyncio.Queue()
oven = asyncio.Event()


@handlers.queue("jobs", max_concurrent_calls=2, create_if_missing=True)
async def work(job: str, context: Context) -> None:
    """Do a job. The second worker sees that the first one was stopped."""
    before = ", interrupted before" if context.interrupted else ""
    print(f"{job}: attempt {context.attempt}{before}")
    started.put_nowait(job)
    try:
        if job == "bake a cake":
            await oven.wait()
        elif job == "dig a well" and not context.interrupted:
            await asyncio.sleep(3600)
    except asyncio.CancelledError:
        print(f"{job}: cancelled")  # a place to save what was done
        raise
    print(f"{job}: done")


@asynccontextmanager
async def lifespan(_: Worker) -> AsyncGenerator[None]:
    """Surround the work: what is opened here is there before the first message and after the last one."""
    print("opened")
    yield
    print("closed")


async def main(url: str = "memory://example") -> None:
    """Stop a worker in the middle of two jobs, and let another worker take over. A third job has not started yet."""
    worker = Worker(url, shutdown_timeout=1.0, lifespan=lifespan)
    worker.include(handlers)
    async with worker.running():
        for job in "bake a cake", "dig a well", "sweep":
            await worker.send("jobs", job)
        await started.get()
        await started.get()
        oven.set()
    # The end of the block has stopped the worker, as SIGTERM does it with `run_sync()` and `python -m sbredis.workers`.

    worker = Worker(url, max_concurrent_calls=1, lifespan=lifespan)
    worker.include(handlers)
    async with worker.running():
        await started.get()
        await started.get()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
