"""Listing the reservations of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from sbredis.bulk._claims import is_stale, last_seen
from sbredis.bulk._reserving import Reservations
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError
from sbredis.model import ReservationPosition, ReservationStatus, moment
from sbredis.registry import EntityRecord, Namespace, reservation_of

if TYPE_CHECKING:
    from sbredis.client._connection import Connection

__all__ = ["status_of", "statuses"]

_PAGE = 1000


async def statuses(connection: Connection, stale_after: float, until: float) -> list[ReservationStatus]:
    """Return all reservations of the connection's namespace, in the order of the names of their entities."""
    reservations = await Reservations.of(connection, until)
    found: list[ReservationStatus] = []
    async for record in _entities(connection.namespace, until):
        if _is_reserved(record):
            with suppress(MessagingEntityNotFoundError):  # the entity was deleted meanwhile
                status = await _status(reservations, record, connection.clock.utc(), stale_after, until)
                found += [] if status is None else [status]
    return found


async def status_of(
    connection: Connection, record: EntityRecord, stale_after: float, until: float
) -> ReservationStatus | None:
    """Return the reservation of one entity, or ``None`` if it has none."""
    if reservation_of(record) is None:
        return None
    reservations = await Reservations.of(connection, until)
    return await _status(reservations, record, connection.clock.utc(), stale_after, until)


async def _status(
    reservations: Reservations, seen: EntityRecord, now: float, stale_after: float, until: float
) -> ReservationStatus | None:
    """Return the reservation of an entity, or ``None`` if it was released meanwhile."""
    record, pins, unreachable = await reservations.pins(seen, until)
    reservation = reservation_of(record)
    if reservation is None:
        return None
    seen_at = last_seen(reservation, pins.values())
    return ReservationStatus(
        path=record.path,
        consumer=reservation.consumer,
        owner=reservation.owner,
        since=moment(reservation.since),
        last_seen=seen_at,
        state=reservation.state,
        stale=is_stale(reservation, seen_at, now, stale_after),
        positions={
            number: ReservationPosition(
                plan=pin.plan,
                committed=pin.floor,
                planned=pin.end,
                left=pin.left,
                last_seen=last_seen(reservation, [pin]),
            )
            for number, pin in sorted(pins.items())
        },
        unreachable_partitions=unreachable,
    )


def _is_reserved(record: EntityRecord) -> bool:
    """Return whether an entity has a reservation that can be read. One bad record must not hide the other ones."""
    try:
        return reservation_of(record) is not None
    except DataLayoutError:
        return False


async def _entities(namespace: Namespace, until: float) -> AsyncIterator[EntityRecord]:
    """Return all queues and subscriptions that are complete."""
    after = ""
    while page := await namespace.list_entities(after, _PAGE, timeout=until - anyio.current_time()):
        for record in page:
            if record.kind == "topic":
                async for subscription in _subscriptions(namespace, record.path, until):
                    yield subscription
            elif record.state == "active":
                yield record
        after = page[-1].name


async def _subscriptions(namespace: Namespace, topic: str, until: float) -> AsyncIterator[EntityRecord]:
    after, listed = "", namespace.list_subscriptions
    with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
        while page := await listed(topic, after, _PAGE, timeout=until - anyio.current_time()):
            for record in page:
                if record.state == "active":
                    yield record
            after = page[-1].name
