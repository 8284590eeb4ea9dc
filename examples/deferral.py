"""Deferring messages: steps of an order arrive out of order, and are handled in order.

python examples/deferral.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def main(url: str = "memory://example") -> None:
    """Handle three steps in order, although the last one arrives first."""
    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("steps", create_if_missing=True) as sender:
            steps = [ServiceBusMessage(f"step {step}", application_properties={"step": step}) for step in (3, 1, 2)]
            await sender.send_messages(steps)

        async with client.get_queue_receiver("steps", max_wait_time=1) as receiver:
            expected, deferred = 1, dict[int, int]()
            async for message in receiver:
                step = (message.application_properties or {})["step"]
                assert isinstance(step, int)
                if step != expected:
                    deferred[step] = message.sequence_number  # needed to receive it later
                    await receiver.defer_message(message)
                    print(f"{message} came too early: deferred")
                    continue
                print(f"{message} handled")
                await receiver.complete_message(message)
                expected += 1
                while expected in deferred:
                    (waiting,) = await receiver.receive_deferred_messages(deferred.pop(expected))
                    print(f"{waiting} handled after it was deferred")
                    await receiver.complete_message(waiting)
                    expected += 1


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
