"""Listing the entities and rules whose records in the registry cannot be read, from a thread."""

from __future__ import annotations

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._unreadable import UnreadableAdministration as Twin
from sbredis.model import UnreadableEntity
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["UnreadableAdministration"]


@documented_by(Twin)
class UnreadableAdministration(Facade[ServiceBusAdministrationClient]):
    def list_unreadable_entities(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[UnreadableEntity]:
        return ItemPaged(self._bridge, self._aio.list_unreadable_entities(skip=skip, top=top, timeout=timeout))
