"""Listing and ending reservations, and forgetting bulk writers, from a thread."""

from __future__ import annotations

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._bulk import BulkAdministration as Twin
from sbredis.model import ReservationStatus
from sbredis.registry import STALE_AFTER
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["BulkAdministration"]


@documented_by(Twin)
class BulkAdministration(Facade[ServiceBusAdministrationClient]):
    def list_reservations(
        self,
        *,
        entity_path: str | None = None,
        stale_after: float = STALE_AFTER,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[ReservationStatus]:
        found = self._aio.list_reservations(
            entity_path=entity_path, stale_after=stale_after, skip=skip, top=top, timeout=timeout
        )
        return ItemPaged(self._bridge, found)

    def release_reservation(
        self, entity_path: str, *, consumer: str | None = None, timeout: float | None = None
    ) -> bool:
        return self._bridge.call(self._aio.release_reservation, entity_path, consumer=consumer, timeout=timeout)

    def forget_writer(self, entity_path: str, writer: str, *, timeout: float | None = None) -> int:
        return self._bridge.call(self._aio.forget_writer, entity_path, writer, timeout=timeout)
