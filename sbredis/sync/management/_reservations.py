"""Listing and ending the reservations of entities, from a thread."""

from __future__ import annotations

from sbredis.aio.management._reservations import ReservationAdministration as Twin
from sbredis.model import ReservationStatus
from sbredis.sync._docstrings import documented_by
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["ReservationAdministration"]


@documented_by(Twin)
class ReservationAdministration(Calls):
    def list_reservations(
        self, *, stale_after: float = 900.0, timeout: float | None = None
    ) -> ItemPaged[ReservationStatus]:
        return ItemPaged(self._portal, self._aio.list_reservations(stale_after=stale_after, timeout=timeout))

    def release_reservation(
        self, entity_path: str, *, consumer: str | None = None, timeout: float | None = None
    ) -> bool:
        return self._portal.call(self._aio.release_reservation, entity_path, consumer=consumer, timeout=timeout)
