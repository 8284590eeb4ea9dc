"""What a client does about the maintenance of its namespace: it offers to do it, and tells who does it of new work."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sbredis.aio.maintenance._maintenance import ROUTING, Maintenance, call_routing
from sbredis.aio.maintenance._role import is_held
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity import Entity

__all__ = ["MaintenanceOffer"]

_log = logging.getLogger("sbredis.client")


class MaintenanceOffer:
    """A client's offer to maintain its namespace, if it makes one. Every client of a test bus makes it."""

    def __init__(self, *, made: bool) -> None:
        self._made = made
        self._announced: set[str] = set()
        self.maintenance: Maintenance | None = None
        """What it does for all clients of the namespace, from when it is connected."""

    def begin(self, connection: Connection) -> None:
        """Begin to maintain the namespace whenever nobody else does, if that was offered."""
        if self._made or connection.test_hooks is not None:
            self.maintenance = Maintenance(connection, connection.entity)
            connection.start(self.maintenance.run())

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        """Tell the client that maintains the namespace that something was scheduled on a topic, once for each topic.

        The topic may be new. Somebody has to publish the message when its time has come.
        """
        if topic.record.incarnation not in self._announced:
            self._announced.add(topic.record.incarnation)
            connection.start(self._announce(connection))

    async def _announce(self, connection: Connection) -> None:
        """Announce it, and log a warning if no client would publish it."""
        try:
            await call_routing(connection)
            if self.maintenance is None and not await is_held(connection.transport, connection.namespace.name, ROUTING):
                _log.warning(
                    "%s: nobody publishes what is scheduled on topics, which waits: make one client with "
                    "maintenance=True, wherever it runs",
                    connection.target,
                )
        except ServiceBusError as error:
            _log.debug("who publishes what is scheduled is not known: %s", error)
