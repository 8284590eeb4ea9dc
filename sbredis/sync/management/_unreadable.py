"""Listing the entities and rules whose records in the registry cannot be read."""

# Made by tools/make_sync from sbredis/aio/management/_unreadable.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from sbredis.aio import management as aio
from sbredis.model import UnreadableEntity
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["UnreadableAdministration"]


class UnreadableAdministration(Facade[aio.ServiceBusAdministrationClient]):
    """The calls of an administration client for entities that cannot be read."""

    def list_unreadable_entities(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[UnreadableEntity]:
        """List queues, topics, subscriptions and rules whose records cannot be read, with the reason.

        Another release has written such a record, or it is damaged. All other entities work. A damaged entity or rule
        can be deleted, and created again. All of them are on one page. The first ``skip`` are left out, and at most
        ``top`` are listed. This method is an addition of sbredis.
        """
        return ItemPaged(self._bridge, self._aio.list_unreadable_entities(skip=skip, top=top, timeout=timeout))
