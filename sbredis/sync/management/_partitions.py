"""Showing the partitions of an entity, and whether maintenance is done, from a thread."""

from __future__ import annotations

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._partitions import PartitionAdministration as Twin
from sbredis.model import PartitionRuntimeProperties
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["PartitionAdministration"]


@documented_by(Twin)
class PartitionAdministration(Facade[ServiceBusAdministrationClient]):
    def list_partitions(
        self, entity_path: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[PartitionRuntimeProperties]:
        return ItemPaged(self._bridge, self._aio.list_partitions(entity_path, skip=skip, top=top, timeout=timeout))

    def has_maintenance(self, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.has_maintenance, timeout=timeout)
