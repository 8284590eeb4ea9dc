"""The administration of entities, on asyncio. Its arguments and results are in :mod:`sbredis.management`."""

from __future__ import annotations

from sbredis.aio.management._administration import ServiceBusAdministrationClient
from sbredis.entities import AsyncItemPaged, AsyncPages

__all__ = ["AsyncItemPaged", "AsyncPages", "ServiceBusAdministrationClient"]
