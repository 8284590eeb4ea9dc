"""The steps in which an entity comes, changes and goes, so made that anybody can go on with them.

Theory
------

The registry is written first, and says what is to be; the partitions follow::

    (none) ── register ──► creating ── every partition made ──► active ──┐ change: the version
                              │                                  │  ▲    │ rises, every partition
                              │                                  │  └────┘ is told
                              └──────────► deleting ◄────────────┘
                                              │
                                              └── every partition taken away, unregister ──► (none)

Whoever stops in the middle, for whatever reason, leaves a record that says what is to be, and whoever meets the record
goes on. Each step may be taken by several at once, and again: partitions are made and taken away by incarnation, and
of those who replace a record only one is the first. The others read what it is now, and go on from there.

One who goes on with a creation may be slower than others who end it and then delete the entity, and so make a partition
after it was taken away. It learns of that when it would replace the record, and takes away what it has made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import anyio

from sbredis.engine import Caller, Partition, Request, SettingsStaleError, new_token, perform, salts
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.registry._entity import EntityRecord
from sbredis.registry._refusals import EntityChangedError, missing, refusals
from sbredis.registry._registry import Registry

__all__ = ["Steps"]

T = TypeVar("T")
_Step = Callable[[Partition, float], Awaitable[object]]


class Steps:
    """The steps of one namespace. ``until`` is when to give up, by the clock of the event loop."""

    __slots__ = ("_namespace", "_salts", "_transport", "registry")

    def __init__(self, transport: Caller, namespace: str, partitions: int) -> None:
        self._transport = transport
        self._namespace = namespace
        self._salts = salts(partitions)
        self.registry = Registry(namespace, partitions)

    async def ask(self, request: Request[T], until: float, about: str = "") -> T:
        """Ask the registry, about an entity or about all."""
        timeout = until - anyio.current_time()
        return await perform(self._transport, request, timeout=timeout, refusals=refusals(self._namespace, about))

    async def existing(self, name: str, until: float) -> EntityRecord:
        """The entity of this name, all of it there, or the error that there is none."""
        while True:
            record = await self.ask(self.registry.read(name), until, name)
            if record is None:
                raise missing(self._namespace, name)
            settled = await self.settled(record, until)
            if settled is not None:
                return settled

    async def settled(self, record: EntityRecord, until: float) -> EntityRecord | None:
        """Go on with a record to the end: what it is then, or None if the entity is gone."""
        with _saying(f"The entity '{record.path}' may be half made or half deleted: the next call about it goes on."):
            while record.state == "creating":
                try:
                    await self._everywhere(record, self._make, until)
                    active = self.registry.revise(replace(record, state="active"), new_token())
                    record = await self.ask(active, until, record.path)
                except (EntityChangedError, MessagingEntityNotFoundError, SettingsStaleError):
                    found = await self.ask(self.registry.read(record.path), until, record.path)
                    if found is None or found.incarnation != record.incarnation:
                        await self._everywhere(record, self._take_away, until)
                        return None
                    if found.stamp == record.stamp:
                        raise
                    record = found
            if record.state == "active":
                return record
            await self._everywhere(record, self._take_away, until)
            await self.ask(self.registry.unregister(record), until, record.path)
            return None

    async def told(self, record: EntityRecord, until: float) -> None:
        """Give all partitions the settings of a record."""
        says = f"The registry has version {record.version} of the settings of '{record.path}', but a partition may not."
        try:
            with _saying(says):
                await self._everywhere(record, self._tell, until)
        except MessagingEntityNotFoundError:
            await self.restored(record, until)

    async def restored(self, record: EntityRecord, until: float) -> EntityRecord:
        """Make those partitions of an entity again that are not there, although the registry says so.

        A failover may have lost them. The entity goes through its creation once more, so that whoever deletes it at
        the same time is noticed.
        """
        found = await self.existing(record.path, until)  # raises, if it has been deleted meanwhile
        if found.incarnation != record.incarnation:
            raise missing(self._namespace, record.path)
        again = self.registry.revise(replace(found, state="creating"), new_token())
        with suppress(EntityChangedError):  # somebody else does it, or what else is to be done
            await self.ask(again, until, record.path)
        return await self.existing(record.path, until)

    def partition(self, record: EntityRecord, number: int) -> Partition:
        """One of the partitions of an entity."""
        if number not in record.partitions:
            raise ValueError(f"'{record.path}' is not in partition {number}, but in {record.partitions}")
        salt = self._salts[number]
        return Partition(self._namespace, salt, record.id, record.incarnation, record.version, record.settings)

    async def _everywhere(self, record: EntityRecord, step: _Step, until: float) -> None:
        """Take a step in all partitions at once. All are tried, and then the first error is raised."""
        errors: list[ServiceBusError] = []

        async def one(number: int) -> None:
            try:
                await step(self.partition(record, number), until)
            except ServiceBusError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for number in record.partitions:
                group.start_soon(one, number)
        if errors:
            raise errors[0]

    async def _make(self, partition: Partition, until: float) -> None:
        await self._ask_partition(partition.configure(create=True), until)

    async def _tell(self, partition: Partition, until: float) -> None:
        with suppress(SettingsStaleError):  # somebody else has told it more
            await self._ask_partition(partition.configure(), until)

    async def _take_away(self, partition: Partition, until: float) -> None:
        with suppress(MessagingEntityNotFoundError):  # another incarnation is there, and so this one is not
            while await self._ask_partition(partition.destroy(), until):
                pass

    async def _ask_partition(self, request: Request[T], until: float) -> T:
        return await perform(self._transport, request, timeout=until - anyio.current_time())


@contextmanager
def _saying(what: str) -> Generator[None]:
    """Let an error out of several steps say how far they may have come: what it knows of is the last one only."""
    try:
        yield
    except ServiceBusError as error:
        error.message = f"{error.message} {what}"
        error.outcome = Outcome.UNKNOWN
        raise
