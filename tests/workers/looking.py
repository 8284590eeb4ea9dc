"""What tests of workers make, and what they look for, on a bus."""

from __future__ import annotations

from typing import Any

from sbredis.model import QueueOptions, ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Worker

__all__ = ["bodies", "dead", "empty", "send_to", "worker_of"]


async def worker_of(bus: Bus, *queues: str, **options: Any) -> Worker:
    """Create queues with the options that queues have. Return a new worker on their bus, with the other options."""
    of_queues = {name: options.pop(name) for name in QueueOptions.__annotations__ if name in options}
    for name in queues:
        await bus.create_queue(name, **of_queues)
    return Worker(bus.url, **options)


async def send_to(bus: Bus, queue: str, messages: ServiceBusMessage | list[ServiceBusMessage]) -> None:
    """Send messages to a queue."""
    async with bus.client.get_queue_sender(queue) as sender:
        await sender.send_messages(messages)


async def empty(bus: Bus, queue: str = "orders") -> bool:
    """Return whether a queue has no active messages."""
    return not await bus.active(queue)


async def dead(bus: Bus, count: int) -> bool:
    """Return whether the queue ``orders`` has this number of dead letters."""
    return len(await bus.dead_lettered("orders")) == count


async def bodies(bus: Bus, queue: str) -> list[bytes]:
    """Return the bodies of the active messages of a queue."""
    return [bytes(message.body) for message in await bus.active(queue)]
