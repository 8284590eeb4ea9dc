"""Listing the entities and rules whose records in the registry cannot be read, from a thread."""

from __future__ import annotations

from sbredis.aio.management._unreadable import UnreadableAdministration as Twin
from sbredis.model import UnreadableEntity
from sbredis.sync._docstrings import documented_by
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["UnreadableAdministration"]


@documented_by(Twin)
class UnreadableAdministration(Calls):
    def list_unreadable_entities(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[UnreadableEntity]:
        return ItemPaged(self._portal, self._aio.list_unreadable_entities(skip=skip, top=top, timeout=timeout))
