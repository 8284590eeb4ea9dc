"""Forgetting bulk writers."""

from __future__ import annotations

from sbredis.aio.management._calls import Calls
from sbredis.bulk._marks import forget_marks

__all__ = ["BulkWriterAdministration"]


class BulkWriterAdministration(Calls):
    """The calls of an administration client for writers of many messages, such as Spark queries."""

    async def forget_writer(self, entity_path: str, writer: str, *, timeout: float | None = None) -> int:
        """Forget what a queue or topic remembers of a bulk writer, for instance of a Spark query.

        Return the number of entries that were forgotten. An entity remembers which rows of a writer it has, so that no
        row is stored twice; a partition has room for 10,000 entries. Forget a writer only if it will not run again:
        otherwise it would store the rows of its last batch a second time. This method is an addition of sbredis.
        """
        until = self._deadline(timeout)

        async def forget(_: float) -> int:
            return await forget_marks(await self._connection.entity(entity_path, until), writer, until)

        return await self._ask(entity_path, until, forget)
