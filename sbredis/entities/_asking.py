"""Ask all partitions of an entity at the same time. Leave out partitions that cannot be reached.

The result names these partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from sbredis._tasks import loop_time
from sbredis.client import Clock
from sbredis.engine import Partition, Request, ScriptCaller, SettingsBehindError, SettingsStaleError, perform
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServerUnsuitableError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.registry import EntityRecord, Namespace

__all__ = ["PATIENCE", "Answers", "AskedPartition", "PartitionAsker"]

R = TypeVar("R")

PATIENCE = 5.0
"""A partition that does not answer within this number of seconds is left out. A failover takes less time."""
_TRIES = 3
_AT_ONCE = 64
_UNREACHABLE = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)


class AskedPartition(NamedTuple):
    """One partition of an entity that is asked."""

    record: EntityRecord
    number: int
    partition: Partition
    told: int | None
    """The time to send to the partition, if it has a test clock."""

    def __str__(self) -> str:
        return f"{self.record.path}, partition {self.number}"


class Answers(NamedTuple, Generic[R]):
    """The answers of the partitions of an entity."""

    record: EntityRecord
    """The record of the entity at the time of the answers."""
    by_number: Mapping[int, R]
    """A mapping from the number of each partition that answered to its answer."""
    unreachable: tuple[int, ...]


class PartitionAsker:
    """Asks the partitions of entities, with a limited number of calls under way at the same time."""

    def __init__(self, transport: ScriptCaller, namespace: Namespace, clock: Clock) -> None:
        self.transport = transport
        self._namespace = namespace
        self._clock = clock
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def ask_all(
        self, record: EntityRecord, ask: Callable[[AskedPartition, float], Awaitable[R]], until: float
    ) -> Answers[R]:
        """Call ``ask`` for each partition of an entity, with the loop time ``until``.

        If ``record`` is out of date, it is read again, and all partitions are asked again. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the entity is gone.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._ask_all(record, ask, until)
            except (MessagingEntityNotFoundError, SettingsStaleError, SettingsBehindError) as error:
                lost = isinstance(error, MessagingEntityNotFoundError)
                record = await self._read_again(record, until, lost=lost)
        return await self._ask_all(record, ask, until)

    async def perform(self, asked: AskedPartition, request: Request[R], until: float) -> R:
        """Make a call to a partition. If the partition has older settings, give it the settings first."""
        patient = min(until, loop_time() + PATIENCE)
        try:
            return await perform(self.transport, request, timeout=patient - loop_time())
        except SettingsBehindError:  # the partition could not be reached when the settings were changed
            behind = asked.partition.configure(now=asked.told)
            await perform(self.transport, behind, timeout=patient - loop_time())
            return await perform(self.transport, request, timeout=patient - loop_time())

    async def _ask_all(
        self, record: EntityRecord, ask: Callable[[AskedPartition, float], Awaitable[R]], until: float
    ) -> Answers[R]:
        answers: dict[int, R] = {}
        unreachable: list[int] = []
        errors: list[ServiceBusError] = []

        async def one(number: int) -> None:
            try:
                async with self._room:
                    answers[number] = await ask(self._asked(record, number), until)
            except ServerUnsuitableError as error:  # this error says what to change
                errors.append(error)
            except _UNREACHABLE:
                unreachable.append(number)
            except ServiceBusError as error:
                errors.append(error)

        async with asyncio.TaskGroup() as group:
            for number in record.partitions:
                group.create_task(one(number))
        if errors:
            raise errors[0]
        return Answers(record, answers, tuple(sorted(unreachable)))

    def _asked(self, record: EntityRecord, number: int) -> AskedPartition:
        partition, told = self._namespace.partition(record, number), None
        if partition.settings.clock == "test":
            told = self._clock.told()
            told = int(self._clock.utc() * 1000) if told is None else told
        return AskedPartition(record, number, partition, told)

    async def _read_again(self, seen: EntityRecord, until: float, *, lost: bool) -> EntityRecord:
        """Return the current record of the entity. Create partitions that a failover has lost again."""
        record = await self._namespace.get_entity(seen.path, kind=seen.kind, timeout=until - loop_time())
        if lost and record.incarnation == seen.incarnation:
            return await self._namespace.restore_entity(record, timeout=until - loop_time())
        return record
