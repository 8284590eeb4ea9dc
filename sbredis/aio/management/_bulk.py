"""What bulk readers and writers leave in entities: reservations to list and end, and writers to forget."""

from __future__ import annotations

from sbredis import bulk
from sbredis.aio.management._calls import Calls, page_of_all
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.client import seconds_of
from sbredis.entities import AsyncItemPaged, ListPage
from sbredis.model import ReservationStatus
from sbredis.registry import STALE_AFTER

__all__ = ["BulkAdministration"]


class BulkAdministration(Calls):
    """The calls of an administration client for reading and writing in bulk, such as with Spark."""

    def list_reservations(
        self,
        *,
        entity_path: str | None = None,
        stale_after: float = STALE_AFTER,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[ReservationStatus]:
        """List the reservations of all queues and subscriptions, to iterate over with ``async for``.

        With ``entity_path``, which is the name of a queue or ``topic/subscriptions/name``, only the reservation of this
        entity is read.

        They are in the order of the names of queues and topics. A reservation says which consumer has the entity, since
        when, and how far the consumer is. It is ``stale`` if the consumer has made no call for ``stale_after`` seconds,
        15 minutes by default. All reservations are on one page. The first ``skip`` reservations are left out, and at
        most ``top`` are listed. This method is an addition of sbredis.
        """
        part = list_part(skip, top)
        seconds = seconds_of(stale_after, "stale_after")

        async def page(token: str) -> ListPage[ReservationStatus]:
            until = self._deadline(timeout)
            if entity_path is not None:
                return ListPage(part.of(await self._reservation(entity_path, seconds, until)), None)
            return await page_of_all(bulk.statuses(self._connection, seconds, until), part, token)

        return AsyncItemPaged(page)

    async def _reservation(self, entity_path: str, stale_after: float, until: float) -> list[ReservationStatus]:
        record = await self._ask(entity_path, until, lambda left: self._namespace.get_entity(entity_path, timeout=left))
        status = await bulk.status_of(self._connection, record, stale_after, until)
        return [] if status is None else [status]

    async def release_reservation(
        self, entity_path: str, *, consumer: str | None = None, timeout: float | None = None
    ) -> bool:
        """End the reservation of a queue or subscription, and open it for receivers. Return whether there was one.

        ``entity_path`` is the name of a queue, or ``topic/subscriptions/name``. Stop the consumer first: it is refused
        from now on. Messages that it has read, but not removed by its next step, can be received again. With
        ``consumer``, only a reservation of this consumer is released: if another consumer has the entity, this raises
        :class:`~sbredis.exceptions.EntityReservedError`. If the release fails in the middle, the next call completes
        it. This method is an addition of sbredis.
        """
        until = self._deadline(timeout)

        async def release(_: float) -> bool:
            return await (await bulk.Reservations.of(self._connection, until)).release(entity_path, consumer, until)

        return await self._ask(entity_path, until, release)

    async def forget_writer(self, entity_path: str, writer: str, *, timeout: float | None = None) -> int:
        """Forget what a queue or topic remembers of a bulk writer, for instance of a Spark query.

        Return the number of entries that were forgotten. An entity remembers which rows of a writer it has, so that no
        row is stored twice; a partition has room for 10,000 entries. Forget a writer only if it will not run again:
        otherwise it would store the rows of its last batch a second time. This method is an addition of sbredis.
        """
        until = self._deadline(timeout)

        async def forget(_: float) -> int:
            return await bulk.forget_marks(await self._connection.entity(entity_path, until), writer, until)

        return await self._ask(entity_path, until, forget)
