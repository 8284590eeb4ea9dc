"""The partitions of entities: a call to one of them, or a step in all of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

from sbredis._tasks import loop_time
from sbredis.engine import (
    MOST_SEATS,
    Origin,
    Partition,
    PartitionSettings,
    Request,
    ScriptCaller,
    SettingsStaleError,
    perform,
    slot_salt,
)
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServerUnsuitableError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.registry._entity import EntityRecord
from sbredis.registry._refusals import add_sentence

__all__ = ["UNREACHABLE", "Partitions", "all_of"]

T = TypeVar("T")
_Step = Callable[[Partition, float], Awaitable[object]]

UNREACHABLE = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)


@lru_cache(maxsize=1024)
def _of_many(settings: PartitionSettings) -> PartitionSettings:
    """Return the settings of a partition of an entity that has many."""
    return replace(settings, wide=True)


class Partitions:
    """The partitions of one namespace. ``until`` is the time to give up, by the clock of the event loop."""

    __slots__ = ("_namespace", "_slots", "_told", "_transport")

    def __init__(self, transport: ScriptCaller, namespace: str, slots: int, told: Callable[[], int | None]) -> None:
        self._transport = transport
        self._namespace = namespace
        self._slots = slots
        self._told = told

    def one(self, record: EntityRecord, number: int) -> Partition:
        """Return one of the partitions of an entity."""
        if number not in record.partitions:
            raise ValueError(f"'{record.path}' is not in partition {number}, but in {record.partitions}")
        settings = record.settings
        return Partition(
            self._namespace,
            slot_salt(self._namespace, number, self._slots),
            record.id,
            record.incarnation,
            record.version,
            settings if len(record.partitions) <= MOST_SEATS else _of_many(settings),
            record.store,
        )

    async def everywhere(self, record: EntityRecord, step: _Step, until: float) -> None:
        """Take a step in all partitions concurrently.

        The step is tried in every partition; then the first error is raised. It names the partitions that could not be
        reached.
        """
        unreachable: list[int] = []

        async def take(number: int) -> None:
            try:
                await step(self.one(record, number), until)
            except UNREACHABLE as error:
                if not isinstance(error, ServerUnsuitableError):
                    unreachable.append(number)
                raise

        try:
            await all_of(partial(take, number) for number in record.partitions)
        except ServiceBusError as error:
            if unreachable:
                error.unreachable_partitions = tuple(sorted(unreachable))
                numbers = ", ".join(map(str, error.unreachable_partitions))
                add_sentence(error, f"Partitions of '{record.path}' that could not be reached: {numbers}.")
            raise

    async def make(self, partition: Partition, until: float) -> None:
        """Make a partition."""
        await self.ask(partition.configure(create=True, now=self.now()), until)

    async def make_again(self, partition: Partition, until: float) -> None:
        """Make a partition if it does not exist."""
        with suppress(SettingsStaleError):  # the partition exists, and has newer settings
            await self.make(partition, until)

    async def tell(self, partition: Partition, until: float, *, use: bool = False) -> None:
        """Give a partition the settings of its record."""
        with suppress(SettingsStaleError):  # another client has given the partition newer settings
            await self.ask(partition.configure(use=use, now=self.now()), until)

    async def shut(self, partition: Partition, until: float) -> None:
        """Let a partition refuse every call."""
        with suppress(MessagingEntityNotFoundError):  # the partition of this incarnation is already deleted
            await self.ask(partition.destroy(share=0), until)

    async def destroy(self, record: EntityRecord, until: float) -> tuple[list[Origin], set[str]]:
        """Delete all partitions of an entity. Return them, and the entities to which they have moved messages."""
        origins: list[Origin] = []
        destinations: set[str] = set()

        async def destroy_one(partition: Partition, until: float) -> None:
            with suppress(MessagingEntityNotFoundError):  # the partition of this incarnation is already deleted
                more = True
                while more:
                    destroyed = await self.ask(partition.destroy_source(), until)
                    more, birth, told = destroyed
                    destinations.update(told)
                    if birth:
                        origins.append(Origin(record.id, birth))

        await self.everywhere(record, destroy_one, until)
        return list(dict.fromkeys(origins)), destinations

    def now(self) -> int | None:
        """Return the time for partitions with a test clock."""
        return self._told()

    async def ask(self, request: Request[T], until: float) -> T:
        """Send a request to a partition."""
        return await perform(self._transport, request, timeout=until - loop_time())


async def all_of(steps: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Take steps concurrently. All steps are tried; then the first error is raised."""
    errors: list[ServiceBusError] = []

    async def one(step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except ServiceBusError as error:
            errors.append(error)

    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(one(step))
    if errors:
        raise errors[0]
