"""A message whose handler ends the process takes no others with it. The kills are real."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusSubQueue
from sbredis.servers import LocalServer
from tests.waiting import eventually
from tests.workers.worker_programs import program

pytestmark = pytest.mark.anyio

KILLED = """
    import asyncio, os, signal
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", max_concurrent_calls=16)
    async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.3)
"""
"""A worker whose handler kills its process for a message."""
INNOCENT = 15


@asynccontextmanager
async def running(url: str, folder: Path, processes: int, app: str) -> AsyncIterator[None]:
    """Run a worker program, and start it again whenever it ends."""

    async def run() -> None:
        while True:
            async with program(url, folder, "--processes", str(processes), app=app) as worker:
                await worker.end()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def there(client: ServiceBusClient, sub_queue: ServiceBusSubQueue | None = None) -> list[str]:
    """Return the bodies of the messages of the queue, locked ones included, or of its dead letters."""
    async with client.get_queue_receiver("orders", sub_queue=sub_queue) as receiver:
        return [bytes(message.body).decode() for message in await receiver.peek_messages(1000, sequence_number=1)]


async def dead(client: ServiceBusClient) -> list[str]:
    return await there(client, ServiceBusSubQueue.DEAD_LETTER)


def starts(folder: Path) -> Counter[str]:
    """Return how often the handler of each message has started."""
    log = folder / "log"
    return Counter(line.split()[1] for line in log.read_text().splitlines()) if log.exists() else Counter()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("most", [3, 10])
async def test_one_message_that_kills_takes_no_others_with_it(
    server: LocalServer, tmp_path: Path, processes: int, most: int
) -> None:
    async with ServiceBusClient(server.url) as client:
        await client.ensure_queue("orders", lock_duration=timedelta(seconds=5), max_delivery_count=most)
        async with client.get_queue_sender("orders") as sender:
            texts = [f"m{number}" for number in range(INNOCENT)]
            await sender.send_messages([ServiceBusMessage(text) for text in [*texts[:7], "die", *texts[7:]]])
        async with running(server.url, tmp_path, processes, KILLED):

            async def done() -> bool:
                return not await there(client) and await dead(client) == ["die"]

            await eventually(done, 240)
        count = starts(tmp_path)
        assert set(count) == {*texts, "die"}
        assert count["die"] == most
        assert max(count[text] for text in texts) <= 3
