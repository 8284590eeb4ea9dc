"""What bulk readers and writers leave in entities: reservations to list and end, and writers to forget."""

# Made by tools/make_sync from sbredis/aio/management/_bulk.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from sbredis.aio import management as aio
from sbredis.model import ReservationStatus
from sbredis.registry import STALE_AFTER
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["BulkAdministration"]


class BulkAdministration(Facade[aio.ServiceBusAdministrationClient]):
    """The calls of an administration client for reading and writing in bulk, such as with Spark."""

    def list_reservations(
        self,
        *,
        entity_path: str | None = None,
        stale_after: float = STALE_AFTER,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[ReservationStatus]:
        """List the reservations of all queues and subscriptions, to iterate over with ``for``.

        With ``entity_path``, which is the name of a queue or ``topic/subscriptions/name``, only the reservation of this
        entity is read.

        They are in the order of the names of queues and topics. A reservation says which consumer has the entity, since
        when, and how far the consumer is. It is ``stale`` if the consumer has made no call for ``stale_after`` seconds,
        15 minutes by default. All reservations are on one page. The first ``skip`` reservations are left out, and at
        most ``top`` are listed. This method is an addition of sbredis.
        """
        return ItemPaged(
            self._bridge,
            self._aio.list_reservations(
                entity_path=entity_path, stale_after=stale_after, skip=skip, top=top, timeout=timeout
            ),
        )

    def release_reservation(
        self, entity_path: str, *, consumer: str | None = None, timeout: float | None = None
    ) -> bool:
        """End the reservation of a queue or subscription, and open it for receivers. Return whether there was one.

        ``entity_path`` is the name of a queue, or ``topic/subscriptions/name``. Stop the consumer first: it is refused
        from now on. Messages that it has read, but not removed by its next step, can be received again. With
        ``consumer``, only a reservation of this consumer is released: if another consumer has the entity, this raises
        :class:`~sbredis.exceptions.EntityReservedError`. If the release fails in the middle, the next call completes
        it. This method is an addition of sbredis.
        """
        return self._bridge.call(self._aio.release_reservation, entity_path, consumer=consumer, timeout=timeout)

    def forget_writer(self, entity_path: str, writer: str, *, timeout: float | None = None) -> int:
        """Forget what a queue or topic remembers of a bulk writer, for instance of a Spark query.

        Return the number of entries that were forgotten. An entity remembers which rows of a writer it has, so that no
        row is stored twice; a partition has room for 10,000 entries. Forget a writer only if it will not run again:
        otherwise it would store the rows of its last batch a second time. This method is an addition of sbredis.
        """
        return self._bridge.call(self._aio.forget_writer, entity_path, writer, timeout=timeout)
