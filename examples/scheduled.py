"""Scheduled messages: schedule them, peek at them, cancel them, and receive them when they are due.

python examples/scheduled.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def main(url: str = "memory://example") -> None:
    """Schedule three reminders, cancel the first, wait for the second, and leave the third."""
    async with ServiceBusClient(url) as client:
        now = datetime.now(UTC)
        async with client.get_queue_sender("reminders", create_if_missing=True) as sender:
            (soon,) = await sender.schedule_messages(ServiceBusMessage("soon"), now + timedelta(seconds=3))
            (never,) = await sender.schedule_messages(ServiceBusMessage("never"), now + timedelta(minutes=1))
            await sender.send_messages(
                ServiceBusMessage("tomorrow", scheduled_enqueue_time_utc=now + timedelta(days=1))
            )
            await sender.cancel_scheduled_messages(never)
            print(f"scheduled 3: number {soon} is due soon, number {never} was cancelled")

        async with client.get_queue_receiver("reminders") as receiver:
            for message in await receiver.peek_messages(10):
                due = message.scheduled_enqueue_time_utc
                print(f"waiting: {message}, on {due:%d %b at %H:%M:%S}, {message.state.name}")
            (message,) = await receiver.receive_messages(max_wait_time=10)  # the call returns when the message is due
            print(f"received: {message}")
            await receiver.complete_message(message)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
