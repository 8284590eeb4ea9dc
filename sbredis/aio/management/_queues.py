"""Creating, finding, changing, counting, listing and deleting queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio.management._calls import Calls
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.engine import entity_name
from sbredis.entities import QUEUES, AsyncItemPaged, given_in, queue_counts
from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    names_keywords,
)
from sbredis.registry import EntityRecord

__all__ = ["QueueAdministration"]


class QueueAdministration(Calls):
    """The calls of an administration client for queues."""

    @names_keywords(QueueOptions)
    async def create_queue(
        self,
        queue_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[QueueOptions],
    ) -> QueueProperties:
        """Create a queue; :class:`~sbredis.management.QueueProperties` explains the arguments.

        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if ``colocate_with`` or a destination of forwarding
        names no entity. Destinations that make a circle or too long a chain raise :class:`ValueError`.
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
        """Return the queue of this name. If it does not exist, create it as :meth:`create_queue` does.

        An existing queue is not changed. Properties that can be changed may differ from ``properties``: change them
        with :meth:`update_queue`. A difference in a property that cannot be changed (partitions, duplicate detection,
        sessions, the neighbour) raises a :class:`ValueError` that names the property. Any number of clients may call
        this at the same time. This method is an addition of sbredis.
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
        """Return the properties of a queue.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no queue of this name.
        """
        return self._described(QUEUES, await self._found(QUEUES, entity_name(queue_name), self._deadline(timeout)))

    async def queue_exists(self, queue_name: str, *, timeout: float | None = None) -> bool:
        """Return whether there is a queue of this name. This method is an addition of sbredis."""
        return await self._exists(QUEUES, entity_name(queue_name), self._deadline(timeout))

    async def get_queue_runtime_properties(
        self, queue_name: str, *, timeout: float | None = None
    ) -> QueueRuntimeProperties:
        """Return the message counts and the size of a queue. All its partitions are counted at the same time.

        A partition that does not answer causes no error. In that case ``availability_status`` is ``Limited``,
        ``unreachable_partitions`` names the partition, and the counts are the sums over the other partitions.
        """
        return queue_counts(await self._counted(QUEUES, entity_name(queue_name), self._deadline(timeout)))

    async def update_queue(
        self,
        queue: QueueProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[QueueOptions],
    ) -> None:
        """Update a queue with the properties in ``queue``, and with those given by name, which take precedence.

        ``queue`` is a result of :meth:`get_queue` with some attributes assigned, or a mapping with ``name``. Properties
        that the update does not contain keep their values. If several clients change a queue at the same time, each
        property gets its value from the last update that contains it. So an update that contains only the changes, such
        as ``update_queue({"name": "orders"}, max_delivery_count=5)``, keeps the changes of other clients.

        Changed settings apply to later calls. A change of a property that cannot be changed raises :class:`ValueError`.
        A new destination of forwarding is checked as in :meth:`create_queue`.
        If the change could not be sent to a partition, the call raises an error, and the next call that reaches the
        partition sends it.
        """
        given = given_in("update_queue", QueueProperties, queue, kwargs)
        name = entity_name(given.name)
        await self._ask(
            name, self._deadline(timeout), lambda left: QUEUES.revise(self._namespace, name, left, given.given)
        )

    async def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        """Delete a queue with all its messages.

        The call is refused while messages of transactions wait in the queue to be moved to other entities. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no queue of this name.
        """
        entity_name(queue_name)
        await self._delete("queue", queue_name, timeout)

    def list_queues(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[QueueProperties]:
        """List all queues, ordered by name, to iterate over with ``async for``.

        The first ``skip`` queues are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        queues. Queues that are half created or half deleted are listed too, and their status shows this.
        """
        return self._list(QUEUES, self._entities(), list_part(skip, top), timeout)

    def list_queues_runtime_properties(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[QueueRuntimeProperties]:
        """List the counts of all queues, ordered by name, to iterate over with ``async for``.

        The first ``skip`` queues are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        queues. Queues that are half created or half deleted, or that are deleted meanwhile, are left out.
        """

        async def count(record: EntityRecord, until: float) -> QueueRuntimeProperties:
            return queue_counts(await self._count(record, until))

        return self._list_counts(QUEUES, self._entities(), count, list_part(skip, top), timeout)
