"""Count the messages that are left in the entities of a worker, for the live line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sbredis.exceptions import ServiceBusError
from sbredis.workers.declaring._handlers import HandlerSource

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["watch_depths"]

_EVERY: Final = 2.0


async def watch_depths(
    administration: ServiceBusAdministrationClient, sources: Iterable[HandlerSource], depths: dict[str, int]
) -> None:
    """Count the messages of each entity again and again, until cancelled. An entity that cannot be read is left out."""
    async with administration:
        while True:
            for source in sources:
                depths.pop(source.path, None)
                with suppress(ServiceBusError):
                    depths[source.path] = await _depth(administration, source)
            await asyncio.sleep(_EVERY)


async def _depth(administration: ServiceBusAdministrationClient, source: HandlerSource) -> int:
    found = (
        await administration.get_queue_runtime_properties(source.name)
        if source.topic is None
        else await administration.get_subscription_runtime_properties(source.topic, source.name)
    )
    if source.sub_queue is None:
        return found.active_message_count
    if source.sub_queue.startswith("$Transfer"):
        return found.transfer_dead_letter_message_count
    return found.dead_letter_message_count
