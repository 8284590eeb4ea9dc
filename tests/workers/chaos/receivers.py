"""A process with many receivers of one client, without a worker. They write down all that they do.

python -m tests.workers.chaos.receivers
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from tests.workers.chaos.notes import complete_one_noting, note, noted

__all__ = ["main"]

_AGAIN = 0.1
"""The seconds after which a receiver goes on whose iteration has failed."""


async def _handle(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    body, fence = str(message), message.fence

    async def work() -> None:
        note("start", body, fence, attempt=message.delivery_count)
        await asyncio.sleep(json.loads(body)["takes"])
        note("done", body, fence)

    await noted([message], work)
    await complete_one_noting(receiver, message)


async def _receive(receiver: ServiceBusReceiver) -> None:
    while True:
        try:
            async for message in receiver:
                await _handle(receiver, message)
        except ServiceBusError:  # the server is away, or the lock has ended
            await asyncio.sleep(_AGAIN)


async def main(given: dict[str, Any]) -> None:
    async with ServiceBusClient(given["url"], namespace=given["namespace"]) as client:
        receivers = [client.get_queue_receiver("receivers") for _ in range(given["at_once"]["receivers"])]
        await asyncio.gather(*map(_receive, receivers))


if __name__ == "__main__":
    asyncio.run(main(json.loads(os.environ["CHAOS"])))
