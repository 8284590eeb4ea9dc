"""Count the content of an entity in all partitions at the same time. The result names those that were not reached."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, TypedDict

from sbredis._tasks import loop_time
from sbredis.client import Clock, do_due, read_after_due
from sbredis.engine import CallId, Counts, Inspection, ScriptCaller
from sbredis.entities._asking import AskedPartition, PartitionAsker
from sbredis.model import (
    EntityAvailabilityStatus,
    PartitionRuntimeProperties,
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
    moment,
)
from sbredis.registry import EntityRecord, Namespace, TopicFacts

__all__ = ["Counter", "Tally", "partition_counts", "queue_counts", "subscription_counts", "topic_counts"]

_ACTIVE = ("active", "held", "locked", "delayed", "deferred")
_DEAD = ("dead_active", "dead_kept", "dead_locked", "dead_delayed", "dead_deferred", "dead_frozen")
_TRANSFER = ("transfer", "frozen")
_TRANSFER_DEAD = tuple(field for field in Counts._fields if field.startswith("transfer_dead_"))
_UNSCHEDULED = (*_ACTIVE, *_DEAD, *_TRANSFER, *_TRANSFER_DEAD)
_LIMITED = EntityAvailabilityStatus.LIMITED


class Tally(NamedTuple):
    """The counts of an entity."""

    record: EntityRecord
    """The record of the entity at the time of the count."""
    counts: Mapping[int, Counts]
    """A mapping from the number of each partition that answered to its counts."""
    unreachable: tuple[int, ...]

    @property
    def approximate(self) -> bool:
        """Whether the counts may be wrong, because they leave out some of the work that was due in a partition."""
        return any(each.more for each in self.counts.values())

    def all(self, *places: str) -> int:
        """Return the sum of these fields of the counts: numbers of messages, or bytes."""
        return sum(getattr(each, place) for each in self.counts.values() for place in places)

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

    def facts(self) -> _RuntimeFields:
        """Return the properties that entities of every kind have."""
        updated = moment(self.record.updated_at)
        return {
            "name": self.record.name,
            "created_at_utc": moment(self.record.created_at),
            "updated_at_utc": updated,
            "accessed_at_utc": moment(
                max((each.used for each in self.counts.values()), default=0) or self.record.updated_at
            ),
            "availability_status": _LIMITED if self.unreachable else EntityAvailabilityStatus.AVAILABLE,
            "unreachable_partitions": self.unreachable,
            "is_approximate": self.approximate,
        }


class _RuntimeFields(TypedDict):
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


def partition_counts(
    tally: Tally, inspections: Mapping[int, Inspection], servers: Mapping[int, str | None]
) -> list[PartitionRuntimeProperties]:
    """Return the contents of each partition of an entity as users get them, in the order of the numbers."""
    found: list[PartitionRuntimeProperties] = []
    for number in tally.record.partitions:
        counts, inspection = tally.counts.get(number), inspections.get(number)
        if counts is None or inspection is None:
            found.append(PartitionRuntimeProperties(number=number, server=servers[number], available=False))
            continue
        found.append(
            PartitionRuntimeProperties(
                number=number,
                server=servers[number],
                active_message_count=counts.active,
                locked_message_count=counts.locked + counts.held,
                delayed_message_count=counts.delayed,
                deferred_message_count=counts.deferred,
                scheduled_message_count=counts.scheduled,
                transfer_message_count=counts.transfer + counts.frozen,
                dead_letter_message_count=sum(getattr(counts, field) for field in _DEAD),
                transfer_dead_letter_message_count=sum(getattr(counts, field) for field in _TRANSFER_DEAD),
                size_in_bytes=counts.bytes,
                oldest_enqueued_at_utc=None if inspection.oldest is None else moment(inspection.oldest),
                waiting_receiver_count=inspection.waiting,
                waiting_session_count=inspection.free_sessions,
                locked_session_count=inspection.locked_sessions,
                numbers_given_out=counts.last,
            )
        )
    return found


class Counter:
    """Counts entities, with a limited number of calls under way at the same time."""

    def __init__(self, transport: ScriptCaller, namespace: Namespace, clock: Clock) -> None:
        self._asker = PartitionAsker(transport, namespace, clock)

    async def count(self, record: EntityRecord, until: float) -> Tally:
        """Count the content of an entity before the loop time ``until``.

        If ``record`` is out of date, it is read again. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the entity is gone.
        """
        answers = await self._asker.ask_all(record, self._count, until)
        return Tally(answers.record, answers.by_number, answers.unreachable)

    async def _count(self, asked: AskedPartition, until: float) -> Counts:
        asker, request = self._asker, asked.partition.count(CallId("", 0, asked.told))
        return await read_after_due(
            asked,
            lambda: asker.perform(asked, request, until),
            lambda: do_due(asker.transport, asked.partition, asked.told, until - loop_time()),
        )

    async def inspect(self, record: EntityRecord, until: float) -> Mapping[int, Inspection]:
        """Return what the partitions of an entity report beside their counts. Those that do not answer are left out."""

        async def inspect(asked: AskedPartition, until: float) -> Inspection:
            return await self._asker.perform(asked, asked.partition.inspect(CallId("", 0, asked.told)), until)

        return (await self._asker.ask_all(record, inspect, until)).by_number
