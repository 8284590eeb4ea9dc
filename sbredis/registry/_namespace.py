"""A namespace, and what is done with its entities as a whole. What that takes step by step is in ``_steps.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import anyio

from sbredis.engine import (
    Caller,
    Partition,
    PartitionSettings,
    entity_name,
    namespace_name,
    new_token,
    partition_for_name,
    perform,
    salts,
)
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.registry._entity import EntityDescription, EntityRecord, Json, require_properties
from sbredis.registry._refusals import EntityChangedError, NamespaceMissingError, changed, exists, missing, refusals
from sbredis.registry._registry import register_namespace
from sbredis.registry._steps import Steps

__all__ = ["Namespace"]

_PARTITIONS = 16


class Namespace:
    """The entities of a namespace. Every call ends, one way or the other, within its ``timeout`` in seconds.

    A call that fails in the middle leaves an entity half made or half deleted, and says so; the next call that names it
    goes on with it. Several clients may do anything at the same time. Names are compared without regard to case.
    """

    __slots__ = ("_steps", "created_at", "name", "partitions")

    def __init__(self, transport: Caller, name: str, partitions: int, created_at: int) -> None:
        """For a namespace that is known to be there; others are opened."""
        self._steps = Steps(transport, name, partitions)
        self.name = name
        self.partitions = partitions
        self.created_at = created_at

    @classmethod
    async def open(cls, transport: Caller, name: str, partitions: int | None = None, *, timeout: float = 60.0) -> Self:
        """The namespace of this name, made with ``partitions``, or 16, where there is none.

        The number cannot change: :class:`NamespacePartitionsError` where another was asked for than it has.
        """
        namespace_name(name)
        wanted = _PARTITIONS if partitions is None else partitions
        salts(wanted)  # raises for what is no number of partitions
        request = register_namespace(name, wanted, exact=partitions is not None)
        facts = await perform(transport, request, timeout=timeout, refusals=refusals(name))
        return cls(transport, name, facts.partitions, facts.created_at)

    async def create_entity(
        self,
        name: str,
        settings: PartitionSettings,
        *,
        partitioned: bool = False,
        colocate_with: str | None = None,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Create a queue: in all partitions, or in one that its name or ``colocate_with``, another entity, decides.

        One that is being deleted under this name is deleted first. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is one; of several clients that create
        it at once, one succeeds.
        """
        entity_name(name)
        if properties is not None:
            require_properties(properties)
        if settings.shared:
            raise ValueError(f"the queue {name!r} stores its messages itself: its settings cannot be shared")
        if partitioned and colocate_with is not None:
            raise ValueError(
                f"{name!r} is to be partitioned, and so beside every other entity: leave out colocate_with"
            )
        until = anyio.current_time() + timeout
        beside = None if colocate_with is None else await self._steps.existing(entity_name(colocate_with), until)
        description = EntityDescription(
            name=name,
            partitioned=partitioned,
            partitions=tuple(range(self.partitions)) if partitioned else (self._place(name, beside),),
            colocated_with=None if beside is None else beside.path,
            settings=settings,
            properties=properties or {},
        )
        steps = self._steps
        registration = steps.registry.register(description, new_token())
        while True:
            try:
                record = await steps.ask(registration, until, name)
            except NamespaceMissingError:
                await steps.ask(register_namespace(self.name, self.partitions, exact=True), until)
            except MessagingEntityAlreadyExistsError:
                found = await steps.ask(steps.registry.read(name), until, name)
                if found is not None and await steps.settled(found, until) is not None:
                    raise exists(self.name, found.path) from None
            else:
                settled = await steps.settled(record, until)
                if settled is None:  # it was there for a moment, and somebody else has deleted it
                    raise missing(self.name, name)
                return settled

    async def get_entity(self, name: str, *, timeout: float = 60.0) -> EntityRecord:
        """The entity of this name; one that is half made or half deleted is made or deleted first.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none.
        """
        return await self._steps.existing(entity_name(name), anyio.current_time() + timeout)

    async def update_entity(
        self,
        record: EntityRecord,
        settings: PartitionSettings,
        *,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Give an entity other settings; ``properties`` stay as they are if they are left out.

        ``record`` is what was read before. If somebody else has changed the entity since, this raises
        :class:`EntityChangedError` and changes nothing. A partition that cannot be reached is told by the next call
        that reaches it; that it could not be is raised all the same.
        """
        _check_changes(record, settings)
        if properties is not None:
            require_properties(properties)
        if record.state != "active":
            raise changed(record.path, f"it was {record.state} then; get_entity goes on with that")
        until = anyio.current_time() + timeout
        revised = replace(
            record,
            version=record.version + 1,
            settings=settings,
            properties=record.properties if properties is None else properties,
        )
        record = await self._steps.ask(self._steps.registry.revise(revised, new_token()), until, record.path)
        await self._steps.told(record, until)
        return record

    async def delete_entity(self, name: str, *, timeout: float = 60.0) -> None:
        """Delete an entity with all its messages. A deletion that somebody else has begun is brought to its end.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none.
        """
        entity_name(name)
        until = anyio.current_time() + timeout
        steps = self._steps
        while True:
            record = await steps.ask(steps.registry.read(name), until, name)
            if record is None:
                raise missing(self.name, name)
            if record.state != "deleting":
                deletion = steps.registry.revise(replace(record, state="deleting"), new_token())
                try:
                    record = await steps.ask(deletion, until, name)
                except (EntityChangedError, MessagingEntityNotFoundError):
                    continue  # somebody else was first: with what, the record says
            await steps.settled(record, until)
            return

    async def restore_entity(self, record: EntityRecord, *, timeout: float = 60.0) -> EntityRecord:
        """Make those partitions of an entity again that a failover has lost, empty, and leave the others as they are.

        For who is told by a partition that there is no such entity, while the registry says that there is. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the registry does not, or no longer.
        """
        return await self._steps.restored(record, anyio.current_time() + timeout)

    async def list_entities(
        self, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[EntityRecord, ...]:
        """The entities in the order of their names in small letters, from after the name ``after`` on, 1 to 1000.

        The next page begins after the last name of this one; behind an empty one there is none. Those that are half
        made or half deleted are listed too, as such, and left as they are.
        """
        return await self._steps.ask(self._steps.registry.listed(after, limit), anyio.current_time() + timeout)

    def partition(self, record: EntityRecord, number: int) -> Partition:
        """One of the partitions of an entity; :class:`ValueError` if it is not there."""
        return self._steps.partition(record, number)

    def _place(self, name: str, beside: EntityRecord | None) -> int:
        """The one partition of an entity that is not partitioned."""
        if beside is None:
            return partition_for_name(name, self.partitions)
        if beside.partitioned:
            raise ValueError(f"{name!r} cannot be put beside '{beside.path}', which is partitioned and so everywhere")
        return beside.partitions[0]


def _check_changes(record: EntityRecord, settings: PartitionSettings) -> None:
    """Raise for a change of what is fixed, before the registry says what no partition would do."""
    before = record.settings
    for what, then, now in (
        ("its clock", before.clock, settings.clock),
        ("where its messages are stored", before.shared, settings.shared),
        ("whether duplicates are detected", before.duplicate_window is None, settings.duplicate_window is None),
    ):
        if then != now:
            raise ValueError(f"'{record.path}' cannot be changed so: {what} was decided when it was created")
