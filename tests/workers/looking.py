"""What tests of workers look for on a bus."""

from __future__ import annotations

from sbredis.testing import Bus

__all__ = ["bodies", "dead", "empty"]


async def empty(bus: Bus, queue: str = "orders") -> bool:
    """Return whether a queue has no active messages."""
    return not await bus.active(queue)


async def dead(bus: Bus, count: int) -> bool:
    """Return whether the queue ``orders`` has this number of dead letters."""
    return len(await bus.dead_lettered("orders")) == count


async def bodies(bus: Bus, queue: str) -> list[bytes]:
    """Return the bodies of the active messages of a queue."""
    return [bytes(message.body) for message in await bus.active(queue)]
