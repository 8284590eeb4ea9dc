"""Listing and ending the reservations of entities, from a thread."""

from __future__ import annotations

from sbredis.aio.management._reservations import ReservationAdministration as Twin
from sbredis.model import ReservationStatus
from sbredis.registry import STALE_AFTER
from sbredis.sync._docstrings import documented_by
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["ReservationAdministration"]


@documented_by(Twin)
class ReservationAdministration(Calls):
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
        return ItemPaged(self._portal, found)

    def release_reservation(
        self, entity_path: str, *, consumer: str | None = None, timeout: float | None = None
    ) -> bool:
        return self._portal.call(self._aio.release_reservation, entity_path, consumer=consumer, timeout=timeout)
