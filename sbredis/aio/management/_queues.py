"""Creating, finding, changing, counting, listing and deleting queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio.entities._counting import queue_counts
from sbredis.aio.entities._definitions import QUEUES, given_in
from sbredis.aio.entities._paging import AsyncItemPaged
from sbredis.aio.management._calls import Calls
from sbredis.engine import entity_name
from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    names_keywords,
)
from sbredis.registry import EntityRecord

__all__ = ["QueueAdministration"]


class QueueAdministration(Calls):
    """What an administration client does with queues."""

    @names_keywords(QueueOptions)
    async def create_queue(
        self,
        queue_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[QueueOptions],
    ) -> QueueProperties:
        """Create a queue; the arguments are explained in :class:`~sbredis.management.QueueProperties`.

        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of the name ``colocate_with``.
        """
        kept = QUEUES.check("create_queue", queue_name, properties, clock=self._connection.clock.kind)
        return self._described(
            QUEUES,
            await self._ask(
                queue_name, self._deadline(timeout), lambda left: QUEUES.create(self._namespace, queue_name, left, kept)
            ),
        )

    async def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """The queue of this name, created with ``properties``, those of :meth:`create_queue`, where there is none.

        A queue that is there stays as it is: what can be changed and differs from ``properties`` is left to
        :meth:`update_queue`. A difference in what cannot be changed (partitions, duplicate detection, sessions, the
        neighbour) is a :class:`ValueError` that names it. Any number of clients may call this at once. An addition of
        sbredis.
        """
        clock = self._connection.clock.kind
        QUEUES.check("ensure_queue", queue_name, properties, clock=clock)
        return self._described(
            QUEUES,
            await self._ask(
                queue_name,
                self._deadline(timeout),
                lambda left: QUEUES.create_or_get(self._namespace, queue_name, left, properties, clock=clock),
            ),
        )

    async def get_queue(self, queue_name: str, *, timeout: float | None = None) -> QueueProperties:
        """The properties of a queue.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        return self._described(QUEUES, await self._found(QUEUES, entity_name(queue_name), self._deadline(timeout)))

    async def queue_exists(self, queue_name: str, *, timeout: float | None = None) -> bool:
        """Whether there is a queue of this name. An addition of sbredis."""
        return await self._exists(QUEUES, entity_name(queue_name), self._deadline(timeout))

    async def get_queue_runtime_properties(
        self, queue_name: str, *, timeout: float | None = None
    ) -> QueueRuntimeProperties:
        """What is in a queue, counted in all its partitions at once.

        A partition that does not answer is no error: ``availability_status`` is then ``Limited``,
        ``unreachable_partitions`` names it, and the counts are those of the others.
        """
        return queue_counts(await self._counted(QUEUES, entity_name(queue_name), self._deadline(timeout)))

    async def update_queue(
        self,
        queue: QueueProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[QueueOptions],
    ) -> None:
        """Give a queue other properties: those of ``queue``, and above them those that are given by name.

        ``queue`` is what :meth:`get_queue` returned, with some assigned anew, or a mapping with ``name``. What it does
        not say stays as it is. Of several who change a queue at once the last one wins, in what it says: so a mapping
        of what is to change only, ``update_queue({"name": "orders"}, max_delivery_count=5)``, leaves the changes of
        others alone.

        Changed settings hold for calls that come after. A change of what cannot be changed is a :class:`ValueError`. If
        a partition could not be told, that is raised, and the next call that reaches the partition tells it.
        """
        given = given_in("update_queue", QueueProperties, queue, kwargs)
        name = entity_name(given.name)
        await self._ask(
            name, self._deadline(timeout), lambda left: QUEUES.revise(self._namespace, name, left, given.given)
        )

    async def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        """Delete a queue with all its messages. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        entity_name(queue_name)
        await self._ask(
            queue_name,
            self._deadline(timeout),
            lambda left: self._namespace.delete_entity(queue_name, kind="queue", timeout=left),
        )

    def list_queues(self, *, timeout: float | None = None) -> AsyncItemPaged[QueueProperties]:
        """All queues by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted are listed as such by their status.
        """
        return self._list(QUEUES, self._entities, timeout)

    def list_queues_runtime_properties(self, *, timeout: float | None = None) -> AsyncItemPaged[QueueRuntimeProperties]:
        """What is in all queues, by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted, or are deleted meanwhile, are left out.
        """

        async def count(record: EntityRecord, until: float) -> QueueRuntimeProperties:
            return queue_counts(await self._count(record, until))

        return self._list_counts(QUEUES, self._entities, count, timeout)
