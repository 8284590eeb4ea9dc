"""Reserve an entity for a consumer, release it again, and list reservations.

The theory and the decisions are in :mod:`sbredis.bulk._claims`. Every function may be interrupted after each of its
steps. The next call of any client continues from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Self

import anyio

from sbredis._tasks import loop_time
from sbredis.bulk import _claims as decide
from sbredis.bulk._claims import Awaited, RecordChange, is_stale, last_seen
from sbredis.client import Clock
from sbredis.engine import CallId, Pin, Planned, ScriptCaller, Unpinned
from sbredis.entities import PATIENCE, Answers, AskedPartition, Counter, PartitionAsker
from sbredis.exceptions import (
    DataLayoutError,
    EntityReservedError,
    MessagingEntityNotFoundError,
    Outcome,
    ReservationLostError,
    ServiceBusCommunicationError,
    ServiceBusError,
)
from sbredis.model import ReservationPosition, ReservationStatus, moment
from sbredis.registry import EntityChangedError, EntityRecord, Namespace, reservation_of, split_path

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["SHOWING_LIFE", "Claimed", "Reservations", "status_of", "statuses"]

SHOWING_LIFE = 60.0
"""The seconds between two signs of life. To wait for receivers, and to work on a range, may take much longer than a
consumer without a call counts as alive.
"""
_CALLING = 60.0
"""The seconds for a step in the registry. A reservation may have less time to wait for other receivers."""
_GIVING_UP = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class Claimed(NamedTuple):
    """A reservation that was made."""

    record: EntityRecord
    fence: int


class Reservations:
    """The reservations of a namespace."""

    def __init__(self, transport: ScriptCaller, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock
        self._asker = PartitionAsker(transport, namespace, clock)
        self._counter = Counter(transport, namespace, clock)

    @classmethod
    async def of(cls, connection: Connection, until: float) -> Self:
        """Return the reservations of the namespace of a connection; open the connection first."""
        await connection.open(until)
        return cls(connection.transport, connection.namespace, connection.clock)

    # -- reserving -----------------------------------------------------------------------------------------------------

    async def reserve(
        self, path: str, consumer: str, owner: str, timeout: float, progress: Callable[[Awaited], None] | None = None
    ) -> Claimed:
        """Take an entity for a consumer, and wait up to ``timeout`` seconds until no receiver has a message of it."""
        split_path(path)
        decide.require_consumer(consumer)
        fence: int | None = None
        try:
            while fence is None:
                fence = await self._claim(path, consumer, owner)
            record = await self._quiet(path, fence, timeout, progress)
            return Claimed(await self._confirmed(record, fence), fence)
        except ReservationLostError:
            raise
        except BaseException:
            if fence is not None:
                with anyio.CancelScope(shield=True), suppress(ServiceBusError):
                    await self._give_up(path, fence)
            raise

    async def _claim(self, path: str, consumer: str, owner: str) -> int | None:
        """Try to write a claim. Return its fence, or ``None`` if the registry must be read again."""
        record = await self._read(path)
        if decide.is_releasing(record):
            await self._released(record, _until(_CALLING))
            return None
        now = int(self._clock.utc() * 1000)
        try:
            change = decide.claim(record, consumer, owner, now)
        except EntityReservedError:
            decide.claim(record, consumer, owner, now, await self._last_seen(record))
            raise
        fence = change.fence
        try:
            await self._replace(record, change)
        except EntityChangedError:
            return None
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(ServiceBusError):
                await self._give_up(path, fence)
            raise
        return fence

    async def _quiet(
        self, path: str, fence: int, timeout: float, progress: Callable[[Awaited], None] | None
    ) -> EntityRecord:
        """Wait until nothing is locked, delayed or frozen in the entity. Return its record."""
        record, until, pause = await self._read(path), _until(timeout), _FIRST_PAUSE
        silent_until = _until(SHOWING_LIFE)
        while decide.confirm(record, fence) is not None:
            tally = await self._counter.count(record, max(until, _until(PATIENCE)))
            record = tally.record
            what = decide.awaited(tally.counts, tally.unreachable, self._clock.utc())
            if what.over:
                break
            if progress is not None:
                progress(what)
            left = until - loop_time()
            if left <= 0:
                raise decide.timed_out(path, timeout, what)
            if loop_time() >= silent_until:
                await self._show_life(record, fence)
                silent_until = _until(SHOWING_LIFE)
            await anyio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return record

    async def _show_life(self, record: EntityRecord, fence: int) -> None:
        """Note in the partitions that the consumer lives, although it has the entity not yet. This plans nothing."""

        async def one(asked: AskedPartition, until: float) -> Planned:
            request = asked.partition.plan(fence, None, 0, room=1, call_id=CallId("", 0, asked.told))
            return await self._asker.perform(asked, request, until)

        with suppress(ServiceBusError):  # the next look at the entity tells what is wrong
            await self._asker.ask_all(record, one, _until(PATIENCE))

    async def _confirmed(self, record: EntityRecord, fence: int) -> EntityRecord:
        """Write that nothing is in the way of the consumer any more, if the reservation is still its own."""
        while (change := decide.confirm(record, fence)) is not None:
            try:
                return await self._replace(record, change)
            except EntityChangedError:
                record = await self._read(record.path)
        return record

    async def _give_up(self, path: str, fence: int) -> None:
        """Open the entity again, if the claim of this fence has closed it."""
        with anyio.move_on_after(_GIVING_UP):
            while (change := decide.give_up(record := await self._read(path), fence)) is not None:
                with suppress(EntityChangedError):
                    await self._replace(record, change)
                    return

    # -- releasing -----------------------------------------------------------------------------------------------------

    async def release(self, path: str, consumer: str | None, until: float) -> bool:
        """End the reservation of an entity. Return whether there was one."""
        split_path(path)
        if consumer is not None:
            decide.require_consumer(consumer)
        while True:
            record = await self._read(path)
            if reservation_of(record) is None:
                return False
            change = decide.begin_release(record, consumer)
            try:
                if change is not None:
                    record = await self._replace(record, change, until)
            except EntityChangedError:
                continue
            await self._released(record, until)
            return True

    async def _released(self, record: EntityRecord, until: float) -> None:
        """Finish a release that has begun: unpin all partitions, and then open the entity."""
        reservation = reservation_of(record)
        assert reservation is not None
        fence = reservation.fence

        async def one(asked: AskedPartition, until: float) -> Unpinned:
            request = asked.partition.unpin(fence, call_id=CallId("", 0, asked.told))
            while (unpinned := await self._asker.perform(asked, request, until)).more:
                pass
            return unpinned

        while (change := decide.end_release(record, fence)) is not None:
            try:
                _require_all(await self._asker.ask_all(record, one, until))
                await self._replace(record, change, until)
            except (EntityChangedError, ReservationLostError):
                seen, record = record, await self._read(record.path)
                if record.stamp == seen.stamp:
                    raise
            else:
                return

    # -- looking -------------------------------------------------------------------------------------------------------

    async def pins(self, record: EntityRecord, until: float) -> Answers[Pin]:
        """Return how far the reservation of an entity is in each partition."""

        async def one(asked: AskedPartition, until: float) -> Pin:
            return await self._asker.perform(asked, asked.partition.read_pin(call_id=CallId("", 0, asked.told)), until)

        return await self._asker.ask_all(record, one, until)

    async def _last_seen(self, record: EntityRecord) -> datetime | None:
        """Return the time of the last call of the consumer that has reserved an entity, if it is known."""
        reservation = reservation_of(record)
        if reservation is None:
            return None
        try:
            pins = await self.pins(record, _until(PATIENCE))
        except ServiceBusError:
            return None
        return decide.last_seen(reservation, pins.by_number.values())

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _read(self, path: str) -> EntityRecord:
        return await self._namespace.get_entity(path, timeout=_CALLING)

    async def _replace(self, record: EntityRecord, change: RecordChange, until: float | None = None) -> EntityRecord:
        left = _CALLING if until is None else max(until - loop_time(), 0.001)
        return await self._namespace.update_entity(record, change.settings, properties=change.properties, timeout=left)


def _until(seconds: float) -> float:
    return loop_time() + seconds


def _require_all(answers: Answers[Unpinned]) -> None:
    """Raise if a partition could not be reached, because the entity must not be opened before it is unpinned."""
    if answers.unreachable:
        error = ServiceBusCommunicationError(
            f"The release of '{answers.record.path}' is not finished, because partitions of it could not be reached: "
            f"{', '.join(map(str, answers.unreachable))}. Release it again when they can be reached.",
            outcome=Outcome.UNKNOWN,
        )
        error.unreachable_partitions = answers.unreachable
        raise error


_PAGE = 1000


async def statuses(connection: Connection, stale_after: float, until: float) -> AsyncIterator[ReservationStatus]:
    """Yield all reservations of the connection's namespace, in the order of the names of their entities."""
    reservations = await Reservations.of(connection, until)
    async for record in _entities(connection.namespace, until):
        if _is_reserved(record):
            with suppress(MessagingEntityNotFoundError):  # the entity was deleted meanwhile
                status = await _status(reservations, record, connection.clock.utc(), stale_after, until)
                if status is not None:
                    yield status


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
    entities = namespace.entities()
    while not entities.ended:
        for record in (await entities.next(_PAGE, until)).records:
            if record.kind == "topic":
                async for subscription in _subscriptions(namespace, record.path, until):
                    yield subscription
            elif record.state == "active":
                yield record
    if (error := entities.error) is not None:
        raise error


async def _subscriptions(namespace: Namespace, topic: str, until: float) -> AsyncIterator[EntityRecord]:
    after, listed = "", namespace.list_subscriptions
    with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
        while page := await listed(topic, after, _PAGE, timeout=until - loop_time()):
            for record in page:
                if record.state == "active":
                    yield record
            after = page[-1].name
