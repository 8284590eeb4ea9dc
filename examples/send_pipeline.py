"""A pipeline that sends a stream of readings: memory is bounded, results are in order, and failures are reported.

python examples/send_pipeline.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def readings(count: int) -> AsyncIterator[ServiceBusMessage]:
    """Yield readings, as from a sensor. The sender asks for the next reading only when it has room."""
    for number in range(count):
        yield ServiceBusMessage(json.dumps({"sensor": number % 7, "value": number / 10}), subject="reading")


async def main(url: str = "memory://example") -> None:
    """Send 5,000 readings with at most 500 in flight, and a message that is too large."""
    async with (
        ServiceBusClient(url) as client,
        client.get_queue_sender("readings", create_if_missing=True, max_in_flight=500) as sender,
    ):
        sent = await sender.send_stream(readings(5_000))
        print(f"sent {sent} readings, at most 500 at a time")

        source = [ServiceBusMessage(b"small"), ServiceBusMessage(bytes(2_000_000)), ServiceBusMessage(b"small again")]
        async for result in sender.send_stream(source, errors="return"):
            what = f"number {result.sequence_number}" if result.error is None else str(result.error)
            print(f"message {result.index}: {what}")

    # Separate calls share round trips too. The throttle limits them to 500 messages in flight.
    async with ServiceBusClient(url) as client, client.get_queue_sender("readings", max_in_flight=500) as sender:
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(b"by itself")) for _ in range(2_000)))
        print("sent 2000 more, each awaited by its own caller")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
