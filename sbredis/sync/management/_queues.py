"""Creating, finding, changing, counting, listing and deleting queues."""

# Made by tools/make_sync from sbredis/aio/management/_queues.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio import management as aio
from sbredis.model import QueueOptions, QueueProperties, QueueRuntimeProperties, names_keywords
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["QueueAdministration"]


class QueueAdministration(Facade[aio.ServiceBusAdministrationClient]):
    """The calls of an administration client for queues."""

    @names_keywords(QueueOptions)
    def create_queue(
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
        return self._bridge.call(self._aio.create_queue, queue_name, timeout=timeout, **properties)

    def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """Return the queue of this name. If it does not exist, create it as :meth:`create_queue` does.

        An existing queue is not changed. Properties that can be changed may differ from ``properties``: change them
        with :meth:`update_queue`. A difference in a property that cannot be changed (partitions, duplicate detection,
        sessions, the neighbour) raises a :class:`ValueError` that names the property. Any number of clients may call
        this at the same time. This method is an addition of sbredis.
        """
        return self._bridge.call(self._aio.ensure_queue, queue_name, timeout=timeout, **properties)

    def get_queue(self, queue_name: str, *, timeout: float | None = None) -> QueueProperties:
        """Return the properties of a queue.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no queue of this name.
        """
        return self._bridge.call(self._aio.get_queue, queue_name, timeout=timeout)

    def queue_exists(self, queue_name: str, *, timeout: float | None = None) -> bool:
        """Return whether there is a queue of this name. This method is an addition of sbredis."""
        return self._bridge.call(self._aio.queue_exists, queue_name, timeout=timeout)

    def get_queue_runtime_properties(self, queue_name: str, *, timeout: float | None = None) -> QueueRuntimeProperties:
        """Return the message counts and the size of a queue. All its partitions are counted at the same time.

        A partition that does not answer causes no error. In that case ``availability_status`` is ``Limited``,
        ``unreachable_partitions`` names the partition, and the counts are the sums over the other partitions.
        """
        return self._bridge.call(self._aio.get_queue_runtime_properties, queue_name, timeout=timeout)

    def update_queue(
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
        self._bridge.call(self._aio.update_queue, queue, timeout=timeout, **kwargs)

    def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        """Delete a queue with all its messages.

        The call is refused while messages of transactions wait in the queue to be moved to other entities. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no queue of this name.
        """
        self._bridge.call(self._aio.delete_queue, queue_name, timeout=timeout)

    def list_queues(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[QueueProperties]:
        """List all queues, ordered by name, to iterate over with ``for``.

        The first ``skip`` queues are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        queues. Queues that are half created or half deleted are listed too, and their status shows this.
        """
        return ItemPaged(self._bridge, self._aio.list_queues(skip=skip, top=top, timeout=timeout))

    def list_queues_runtime_properties(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[QueueRuntimeProperties]:
        """List the counts of all queues, ordered by name, to iterate over with ``for``.

        The first ``skip`` queues are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        queues. Queues that are half created or half deleted, or that are deleted meanwhile, are left out.
        """
        return ItemPaged(self._bridge, self._aio.list_queues_runtime_properties(skip=skip, top=top, timeout=timeout))
