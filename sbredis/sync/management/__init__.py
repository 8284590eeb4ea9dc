"""The administration of entities for code without an event loop. :mod:`sbredis.management` exports it."""

from __future__ import annotations

from sbredis.sync._paging import ItemPaged, Pages
from sbredis.sync.management._administration import ServiceBusAdministrationClient

__all__ = ["ItemPaged", "Pages", "ServiceBusAdministrationClient"]
