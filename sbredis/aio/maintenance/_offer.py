"""A client's share in maintenance: the client may offer to maintain the namespace, and it announces new work."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sbredis.aio.maintenance._maintenance import Maintenance
from sbredis.aio.maintenance._role import ROUTE, call_role, is_held
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity import Entity

__all__ = ["MaintenanceOffer"]

_log = logging.getLogger("sbredis.client")


class MaintenanceOffer:
    """A client's offer to maintain its namespace, if the client makes one. Every client of a test bus makes one."""

    def __init__(self, *, made: bool) -> None:
        self._made = made
        self._joined = 0
        """The number of blocks in which this client takes part in maintenance."""
        self._announced: set[str] = set()
        self.maintenance: Maintenance | None = None
        """This client's maintenance of the namespace; ``None`` without an offer, or before the client is connected."""

    def begin(self, connection: Connection) -> None:
        """Maintain the namespace whenever no other client does, if this client offers it."""
        if self._made or connection.test_hooks is not None:
            self._start(connection)

    def join(self, connection: Connection) -> None:
        """Maintain the namespace from now on, whenever no other client does."""
        self._joined += 1
        if self.maintenance is None:
            self._start(connection)

    async def leave(self, connection: Connection) -> None:
        """End what :meth:`join` has begun, unless another block goes on, or the client offers maintenance for good."""
        self._joined -= 1
        if self._joined or self._made or connection.test_hooks is not None or self.maintenance is None:
            return
        ending, self.maintenance = self.maintenance, None
        await ending.end()

    def _start(self, connection: Connection) -> None:
        maintenance = Maintenance(connection, connection.entity)
        if connection.start(maintenance.run()):
            self.maintenance = maintenance

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        """Announce a topic on which a message was scheduled. This is done once for each topic.

        The topic may be new, so the client that maintains the namespace may not know it yet.
        """
        if topic.record.incarnation not in self._announced:
            self._announced.add(topic.record.incarnation)
            connection.start(self._announce(connection))

    async def _announce(self, connection: Connection) -> None:
        """Announce the topic, and log a warning if no client would publish the message."""
        try:
            await call_role(connection, ROUTE)
            if self.maintenance is None and not await is_held(connection.transport, connection.namespace.name, ROUTE):
                _log.warning(
                    "%s: no client publishes messages that are scheduled on topics, so they wait. Make one client with "
                    "maintenance=True, on any machine.",
                    connection.target,
                )
        except ServiceBusError as error:
            _log.debug("it is not known whether a client publishes scheduled messages: %s", error)
