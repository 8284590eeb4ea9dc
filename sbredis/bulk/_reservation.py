"""Reserving an entity for one consumer: the public functions, and the reservation that a consumer works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sbredis.bulk import _claims as decide
from sbredis.bulk._claims import Awaited
from sbredis.bulk._reserving import Claimed, Reservations, statuses
from sbredis.client import connection_of, deadline_of, seconds_of
from sbredis.engine import CallId, Committed, Partition, Planned, Request
from sbredis.model import ReservationStatus
from sbredis.registry import STALE_AFTER

if TYPE_CHECKING:
    from sbredis.client import Connected, Entity

__all__ = ["Reservation", "list_reservations", "release", "reserve"]

_LANE = "n"


class Reservation:
    """The reservation of a queue or subscription for a consumer, as :func:`reserve` returns it.

    In each of its :attr:`partitions`, the consumer plans one range after the other, reads it with :func:`read_range`,
    and stores the position of the range together with its results. The next plan names this position, and only then the
    messages of the range are removed. A consumer that dies begins again at the position that it has stored. Calls to
    different partitions may be made concurrently.

    The reservation has no life of its own: it lasts until :func:`release`, also when the process ends.
    """

    def __init__(self, entity: Entity, claimed: Claimed, consumer: str) -> None:
        self._entity = entity
        self.path = claimed.record.path
        """The queue, or the subscription as ``topic/subscriptions/name``."""
        self.consumer = consumer
        self.fence = claimed.fence
        """A number that is higher than that of every earlier run. The partitions refuse the calls of earlier runs."""
        self.incarnation = claimed.record.incarnation
        """A random text: an entity that was deleted and created again has another one."""
        self.partitions = claimed.record.partitions
        """The numbers of the partitions of the entity."""

    def __repr__(self) -> str:
        return f"<Reservation of {self.path!r} for {self.consumer!r}, fence {self.fence}>"

    async def begin(self, number: int, *, timeout: float = 60.0) -> Committed:
        """Return the position at which a consumer without a position of its own begins in a partition.

        If an earlier run has planned a range and not committed it, the next plan returns this range again.
        """
        return (await self._plan(number, None, 0, 1, deadline_of(timeout))).committed

    async def plan(
        self,
        number: int,
        position: Committed,
        rows: int,
        bytes: int,  # noqa: A002 -- the plain word for a caller's limit
        *,
        accept_loss: bool = False,
        timeout: float = 60.0,
    ) -> Planned:
        """Remove the messages of a partition up to ``position``, and plan the range that follows it.

        The range has up to ``rows`` messages and about ``bytes`` bytes; it has at least one message, if there is one.
        With 0 ``rows`` the call only removes messages. A call with the same position returns the same range, until the
        position of this range is given. ``committed`` of the result is the position after the range.

        Messages are removed in shares. ``timeout`` is the time-out of each share, so a long range may take longer.

        Raises :class:`~sbredis.exceptions.MessagesLostError` if the position does not fit the partition, unless
        ``accept_loss`` says to go on from here. Raises :class:`~sbredis.exceptions.ReservationLostError` if another run
        has taken the reservation over, or if it was released.
        """
        while True:
            planned = await self._plan(number, position, rows, bytes, deadline_of(timeout), accept=accept_loss)
            if not planned.more:
                return planned

    async def show_life(self, *, timeout: float = 60.0) -> None:
        """Note in the partitions that the consumer lives. This plans nothing, and removes nothing.

        A consumer that makes no call for long, because it works on a range or waits, is listed as stale otherwise.
        """
        await asyncio.gather(*(self.begin(number, timeout=timeout) for number in self.partitions))

    async def _plan(
        self, number: int, position: Committed | None, rows: int, room: int, until: float, *, accept: bool = False
    ) -> Planned:
        entity = self._entity

        def make(partition: Partition, call_id: CallId) -> Request[Planned]:
            decide.require_own(entity.record, self.incarnation, self.fence)
            return partition.plan(
                self.fence, position, rows, room=room, accept=accept, call_id=CallId("", 0, call_id.now)
            )

        return await entity.partition_client(number).call(_LANE, make, until, catches_up=False)


async def reserve(
    client: Connected,
    path: str,
    *,
    consumer: str,
    owner: str = "",
    timeout: float = 300.0,
    progress: Callable[[Awaited], None] | None = None,
) -> Reservation:
    """Reserve a queue or subscription for a consumer, which then gets all its messages in ranges.

    ``path`` is the name of a queue, or ``topic/subscriptions/name``. ``owner`` describes this run of the consumer, for
    instance by its host and its application. Other receivers are refused from now on. Those that have messages may
    settle them: the call waits up to ``timeout`` seconds until nothing is locked or delayed. Meanwhile it calls
    ``progress`` with the messages that it waits for. Deferred messages stay where they are.

    If the same consumer has the entity already, this run takes it over, and the calls of the earlier run are refused.

    Raises :class:`~sbredis.exceptions.EntityReservedError` if another consumer has the entity,
    :class:`~sbredis.exceptions.ReservationTimeoutError` if messages are still locked or delayed after ``timeout``
    seconds, and :class:`~sbredis.exceptions.ServiceBusError` for a topic, for an entity with sessions, and for one that
    forwards its messages. After an error the entity is open again, unless the registry cannot be reached.
    """
    connection, seconds = connection_of(client), seconds_of(timeout, "timeout", zero=True)
    reservations = await Reservations.of(connection, deadline_of(None))
    claimed = await reservations.reserve(path, consumer, owner, seconds, progress)
    entity = await connection.entity(path, deadline_of(None))
    if entity.record.version < claimed.record.version or entity.record.incarnation != claimed.record.incarnation:
        await entity.refresh(deadline_of(None))
    return Reservation(entity, claimed, consumer)


async def release(client: Connected, path: str, consumer: str | None = None, *, timeout: float = 60.0) -> bool:
    """End the reservation of a queue or subscription, and open it for receivers. Return whether there was one.

    Messages that were planned, but not removed by a later plan, can be received again. With ``consumer``, only a
    reservation of this consumer is released; if another consumer has the entity, this raises
    :class:`~sbredis.exceptions.EntityReservedError`. A release that was interrupted is finished by the next call.
    """
    until = deadline_of(timeout)
    return await (await Reservations.of(connection_of(client), until)).release(path, consumer, until)


async def list_reservations(
    client: Connected, *, stale_after: float = STALE_AFTER, timeout: float = 60.0
) -> list[ReservationStatus]:
    """Return all reservations of the namespace: who has which entity, since when, and how far the consumer is.

    A reservation is stale if its consumer has made no call for ``stale_after`` seconds.
    """
    found = statuses(connection_of(client), seconds_of(stale_after, "stale_after"), deadline_of(timeout))
    return [status async for status in found]
