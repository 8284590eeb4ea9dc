"""A message whose handler ends the process becomes a dead letter alone: the messages beside it are handled.

python examples/worker_poison.py [CONNECTION STRING]

A worker in memory cannot die alone, so the example then starts a server. It takes half a minute, because the locks of a
process that has died must end first.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, suppress
from datetime import timedelta

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.servers import LocalServer

FOOD = ("tea", "milk", "poison", "bread")
KITCHEN = """
import asyncio, os, signal, sys
from sbredis.workers import Worker

worker = Worker(sys.argv[1])

@worker.queue("kitchen", max_concurrent_calls=16)
async def eat(food: str) -> None:
    if food == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.3)

asyncio.run(worker.run())
"""
"""A worker whose handler dies of poison."""


async def settled(client: ServiceBusClient) -> list[str]:
    """Wait until all food is eaten or dead, and return what is dead, and why."""
    living, dead = client.get_queue_receiver("kitchen"), client.get_queue_receiver("kitchen", sub_queue="deadletter")
    async with living, dead:
        while await living.peek_messages(1, sequence_number=1):  # noqa: ASYNC110 -- another process handles them
            await asyncio.sleep(0.1)
        found = await dead.peek_messages(10, sequence_number=1)
        return [f"{message}: {message.dead_letter_error_description}" for message in found]


async def main(url: str = "memory://example") -> None:
    """Send poison among other food, and start a worker as often as it dies."""
    with ExitStack() as stack:
        if url.startswith("memory:"):
            url = stack.enter_context(LocalServer()).url
        async with ServiceBusClient(url) as client:
            await client.ensure_queue("kitchen", lock_duration=timedelta(seconds=5), max_delivery_count=3)
            async with client.get_queue_sender("kitchen") as sender:
                await sender.send_messages([ServiceBusMessage(food) for food in FOOD])
            ending, deaths = asyncio.create_task(settled(client)), 0
            while not ending.done():
                worker = await asyncio.create_subprocess_exec(sys.executable, "-c", KITCHEN, url)
                dying = asyncio.create_task(worker.wait())
                await asyncio.wait((ending, dying), return_when=asyncio.FIRST_COMPLETED)
                deaths += dying.done()
                with suppress(ProcessLookupError):
                    worker.terminate()
                await dying
            print(f"{deaths} deaths", "dead letters:", *await ending, sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
