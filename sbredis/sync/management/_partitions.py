"""What an operator wants to see of an entity: its partitions one by one, and whether somebody does maintenance."""

# Made by tools/make_sync from sbredis/aio/management/_partitions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from sbredis.aio import management as aio
from sbredis.model import PartitionRuntimeProperties
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["PartitionAdministration"]


class PartitionAdministration(Facade[aio.ServiceBusAdministrationClient]):
    """The calls of an administration client that show partitions, and whether maintenance is done."""

    def list_partitions(
        self, entity_path: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[PartitionRuntimeProperties]:
        """List the partitions of an entity with their servers and contents, to iterate over with ``for``.

        ``entity_path`` is the name of a queue or topic, or ``topic/subscriptions/name``. A partition that does not
        answer is listed as ``available=False``. All partitions are on one page, in the order of their numbers. The
        first ``skip`` partitions are left out, and at most ``top`` are listed. This method is an addition of sbredis.
        """
        return ItemPaged(self._bridge, self._aio.list_partitions(entity_path, skip=skip, top=top, timeout=timeout))

    def has_maintenance(self, *, timeout: float | None = None) -> bool:
        """Return whether clients do all work of maintenance: publishing, moving and deleting on time.

        A client with ``maintenance=True`` does it, and so does a worker. Without such a client, messages wait that are
        scheduled on a topic, are forwarded, or were sent to another entity by a transaction. This method is an addition
        of sbredis.
        """
        return self._bridge.call(self._aio.has_maintenance, timeout=timeout)
