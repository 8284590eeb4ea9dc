"""Count the content of an entity in all partitions at the same time. Leave out partitions that cannot be reached.

The result names these partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict

import anyio

from sbredis.aio.calls._catching_up import do_due, read_after_due
from sbredis.aio.calls._clock import Clock
from sbredis.engine import CallId, Counts, ScriptCaller, SettingsBehindError, SettingsStaleError, perform
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServerUnsuitableError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.model import (
    EntityAvailabilityStatus,
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
    moment,
)
from sbredis.registry import EntityRecord, Namespace, TopicFacts

__all__ = ["PATIENCE", "Counter", "Tally", "queue_counts", "subscription_counts", "topic_counts"]

PATIENCE = 5.0
"""A partition that does not answer within this number of seconds is left out. A failover takes less time."""
_ACTIVE = ("active", "held", "locked", "delayed", "deferred")
_DEAD = ("dead_active", "dead_kept", "dead_locked", "dead_delayed", "dead_deferred", "dead_frozen")
_TRANSFER = ("transfer", "frozen")
_TRANSFER_DEAD = tuple(field for field in Counts._fields if field.startswith("transfer_dead_"))
_UNSCHEDULED = (*_ACTIVE, *_DEAD, *_TRANSFER, *_TRANSFER_DEAD)
_LIMITED = EntityAvailabilityStatus.LIMITED
_TRIES = 3
_AT_ONCE = 64
_UNREACHABLE = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)


class Tally(NamedTuple):
    """The counts of an entity."""

    record: EntityRecord
    """The record of the entity at the time of the count."""
    counts: Sequence[Counts]
    unreachable: tuple[int, ...]

    @property
    def approximate(self) -> bool:
        """Whether the counts may be wrong, because they leave out some of the work that was due in a partition."""
        return any(each.more for each in self.counts)

    def all(self, *places: str) -> int:
        """Return the sum of these fields of the counts: numbers of messages, or bytes."""
        return sum(getattr(each, place) for each in self.counts for place in places)

    def messages(self) -> _MessageCounts:
        """Return the counts of messages that queues and subscriptions have.

        If the messages are forwarded, those that can be received wait for their move and for no receiver. The same is
        true for dead letters.
        """
        ready = self.all("active") if self.record.settings.forwards else 0
        dead = self.all("dead_active") if self.record.settings.forwards_dead else 0
        return {
            "active_message_count": self.all(*_ACTIVE) - ready,
            "dead_letter_message_count": self.all(*_DEAD) - dead,
            "transfer_message_count": self.all(*_TRANSFER) + ready + dead,
            "transfer_dead_letter_message_count": self.all(*_TRANSFER_DEAD),
        }

    def facts(self) -> _Facts:
        """Return the properties that entities of every kind have."""
        updated = moment(self.record.updated_at)
        return {
            "name": self.record.name,
            "created_at_utc": moment(self.record.created_at),
            "updated_at_utc": updated,
            "accessed_at_utc": moment(max((each.used for each in self.counts), default=0) or self.record.updated_at),
            "availability_status": _LIMITED if self.unreachable else EntityAvailabilityStatus.AVAILABLE,
            "unreachable_partitions": self.unreachable,
            "is_approximate": self.approximate,
        }


class _Facts(TypedDict):
    name: str
    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    availability_status: EntityAvailabilityStatus
    unreachable_partitions: tuple[int, ...]
    is_approximate: bool


class _MessageCounts(TypedDict):
    active_message_count: int
    dead_letter_message_count: int
    transfer_message_count: int
    transfer_dead_letter_message_count: int


def queue_counts(tally: Tally) -> QueueRuntimeProperties:
    """Return the counts of a queue as users get them."""
    return QueueRuntimeProperties(
        **tally.facts(),
        **tally.messages(),
        scheduled_message_count=tally.all("scheduled"),
        total_message_count=tally.all("scheduled", *_UNSCHEDULED),
        size_in_bytes=tally.all("bytes"),
    )


def topic_counts(tally: Tally, facts: TopicFacts) -> TopicRuntimeProperties:
    """Return the counts of a topic as users get them."""
    return TopicRuntimeProperties(
        **tally.facts(),
        subscription_count=facts.subscriptions,
        sql_filter_count=facts.sql_filters,
        correlation_filter_count=facts.correlation_filters,
        scheduled_message_count=tally.all("scheduled"),
        transfer_message_count=tally.all(*_TRANSFER),
        transfer_dead_letter_message_count=tally.all(*_TRANSFER_DEAD),
        size_in_bytes=tally.all("bytes"),
    )


def subscription_counts(tally: Tally) -> SubscriptionRuntimeProperties:
    """Return the counts of a subscription as users get them."""
    return SubscriptionRuntimeProperties(
        **tally.facts(), **tally.messages(), total_message_count=tally.all(*_UNSCHEDULED)
    )


class Counter:
    """Counts entities, with a limited number of calls under way at the same time."""

    def __init__(self, transport: ScriptCaller, namespace: Namespace, clock: Clock) -> None:
        self._transport = transport
        self._namespace = namespace
        self._clock = clock
        self._room = anyio.Semaphore(_AT_ONCE)

    async def count(self, record: EntityRecord, until: float) -> Tally:
        """Count the content of an entity before the loop time ``until``.

        If ``record`` is out of date, it is read again. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the entity is gone.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._tally(record, until)
            except (MessagingEntityNotFoundError, SettingsStaleError, SettingsBehindError) as error:
                lost = isinstance(error, MessagingEntityNotFoundError)
                record = await self._read_again(record, until, lost=lost)
        return await self._tally(record, until)

    async def _tally(self, record: EntityRecord, until: float) -> Tally:
        counts: list[Counts] = []
        unreachable: list[int] = []
        errors: list[ServiceBusError] = []

        async def ask(number: int) -> None:
            try:
                counts.append(await self._ask(record, number, until))
            except ServerUnsuitableError as error:  # this error says what to change
                errors.append(error)
            except _UNREACHABLE:
                unreachable.append(number)
            except ServiceBusError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for number in record.partitions:
                group.start_soon(ask, number)
        if errors:
            raise errors[0]
        return Tally(record, counts, tuple(sorted(unreachable)))

    async def _ask(self, record: EntityRecord, number: int, until: float) -> Counts:
        partition = self._namespace.partition(record, number)
        async with self._room:
            told = self._told() if partition.settings.clock == "test" else None
            request = partition.count(CallId("", 0, told))

            async def count() -> Counts:
                patient = min(until, anyio.current_time() + PATIENCE)
                try:
                    return await perform(self._transport, request, timeout=patient - anyio.current_time())
                except SettingsBehindError:  # the partition could not be reached when the settings were changed
                    behind = partition.configure(now=told)
                    await perform(self._transport, behind, timeout=patient - anyio.current_time())
                    return await perform(self._transport, request, timeout=patient - anyio.current_time())

            async def due() -> bool:
                return await do_due(self._transport, partition, told, until)

            return await read_after_due(f"{record.path}, partition {number}", count, due)

    async def _read_again(self, seen: EntityRecord, until: float, *, lost: bool) -> EntityRecord:
        """Return the current record of the entity. Create partitions that a failover has lost again."""
        record = await self._namespace.get_entity(seen.path, kind=seen.kind, timeout=until - anyio.current_time())
        if lost and record.incarnation == seen.incarnation:
            return await self._namespace.restore_entity(record, timeout=until - anyio.current_time())
        return record

    def _told(self) -> int:
        told = self._clock.told()
        return int(self._clock.utc() * 1000) if told is None else told
