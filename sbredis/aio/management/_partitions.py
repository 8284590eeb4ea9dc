"""What an operator wants to see of an entity: its partitions one by one, and whether somebody does maintenance."""

from __future__ import annotations

from collections.abc import Mapping

from sbredis.aio.management._calls import Calls
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.client import IDLE, MOVE, ROUTE, is_held
from sbredis.entities import AsyncItemPaged, ListPage, partition_counts
from sbredis.model import PartitionRuntimeProperties
from sbredis.registry import EntityRecord

__all__ = ["PartitionAdministration"]


class PartitionAdministration(Calls):
    """The calls of an administration client that show partitions, and whether maintenance is done."""

    def list_partitions(
        self, entity_path: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[PartitionRuntimeProperties]:
        """List the partitions of an entity with their servers and contents, to iterate over with ``async for``.

        ``entity_path`` is the name of a queue or topic, or ``topic/subscriptions/name``. A partition that does not
        answer is listed as ``available=False``. All partitions are on one page, in the order of their numbers. The
        first ``skip`` partitions are left out, and at most ``top`` are listed. This method is an addition of sbredis.
        """
        part = list_part(skip, top)

        async def page(_: str) -> ListPage[PartitionRuntimeProperties]:
            until = self._deadline(timeout)
            record = await self._ask(
                entity_path, until, lambda left: self._namespace.get_entity(entity_path, timeout=left)
            )
            tally = await self._count(record, until)
            inspections = await self._counts.inspect(tally.record, until)
            return ListPage(part.of(partition_counts(tally, inspections, self._servers(tally.record))), None)

        return AsyncItemPaged(page)

    async def has_maintenance(self, *, timeout: float | None = None) -> bool:
        """Return whether clients do all work of maintenance: publishing, moving and deleting on time.

        A client with ``maintenance=True`` does it, and so does a worker. Without such a client, messages wait that are
        scheduled on a topic, are forwarded, or were sent to another entity by a transaction. This method is an addition
        of sbredis.
        """
        await self._connection.open(self._deadline(timeout))
        transport, namespace = self._connection.transport, self._namespace.name
        return all([await is_held(transport, namespace, role) for role in (ROUTE, MOVE, IDLE)])

    def _servers(self, record: EntityRecord) -> Mapping[int, str | None]:
        """Return a mapping from the number of each partition to the server that has it."""
        of = self._connection.transport.endpoint_of
        found = {number: of(self._namespace.partition(record, number).keys[0]) for number in record.partitions}
        return {number: None if server is None else str(server) for number, server in found.items()}
