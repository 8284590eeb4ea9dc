"""The administration of entities, on asyncio. Its arguments and results are in :mod:`sbredis.management`."""

from __future__ import annotations

from sbredis.aio.entities._paging import AsyncItemPaged, AsyncPages
from sbredis.aio.management._administration import ServiceBusAdministrationClient

__all__ = ["AsyncItemPaged", "AsyncPages", "ServiceBusAdministrationClient"]
