"""A client's offer to maintain its namespace, and the warnings of a client whose messages wait for maintenance.

This module does not import maintenance before it begins.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import TYPE_CHECKING

from sbredis import maintenance
from sbredis._tasks import wait_until
from sbredis.client import MOVE, ROUTE, is_held
from sbredis.engine import CallId, Counts, perform
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.registry import EntityRecord

__all__ = ["MaintenanceOffer"]

_log = logging.getLogger("sbredis.client")
_ASKING = 5.0
_AGAIN = 30.0
"""The seconds between two questions to the partitions of an entity, or whether a client has a role that was held."""


class MaintenanceOffer:
    """A client's offer to maintain its namespace, if the client makes one. Every client of a test bus makes one."""

    def __init__(self, *, made: bool) -> None:
        self._made = made
        self._joined = 0
        """The number of blocks in which this client takes part in maintenance."""
        self._announced: set[str] = set()
        self._asked: dict[str, float] = {}
        """For entities in which messages may wait, when their partitions were asked last."""
        self._held_until: dict[str, float] = {}
        """For roles that a client had when they were asked last, until when this counts for all warnings."""
        self._look_at: dict[tuple[str, int], float] = {}
        """When to look whether messages still wait to be spread, by the topic's incarnation and the partition."""
        self.maintenance: maintenance.Maintenance | None = None
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
        begun = maintenance.Maintenance(connection)
        if connection.attempt("maintenance", begun.run):
            self.maintenance = begun

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        """Log a warning if no client would publish the message that was scheduled: once for each topic."""
        if topic.record.incarnation not in self._announced:
            self._announced.add(topic.record.incarnation)
            warn = partial(self._warn_of_schedule, connection)
            connection.attempt("the question whether a client publishes scheduled messages", warn)

    async def spread(self, connection: Connection, topic: Entity, number: int, until: float) -> None:
        """Spread the messages that wait in a partition of a topic, unless another client has the role for it.

        Return at the time ``until`` at the latest. The work goes on in the background.
        """
        done = asyncio.Event()

        async def work() -> None:
            try:
                await self._spread_or_look(connection, topic, number)
            finally:
                done.set()

        if connection.attempt("the spreading of messages", work):
            await wait_until(done, until)

    async def _spread_or_look(self, connection: Connection, topic: Entity, number: int) -> None:
        """Spread messages, or leave them to the client that has the role.

        That client may end without a word, and this attempt may fail. So look again later, once for all messages of
        the partition that come meanwhile.
        """
        if not await self._spread(connection, topic, number) and not self._made and connection.test_hooks is None:
            place, loop = (topic.record.incarnation, number), asyncio.get_running_loop()
            looks, self._look_at[place] = place in self._look_at, loop.time() + connection.timings.spreading_again
            if not looks:
                look = partial(self._look_again, connection, topic, number)
                connection.attempt("the look whether messages were spread", look)

    async def _look_again(self, connection: Connection, topic: Entity, number: int) -> None:
        place, loop = (topic.record.incarnation, number), asyncio.get_running_loop()
        while (seconds := self._look_at[place] - loop.time()) > 0:  # noqa: ASYNC110 -- later messages move the time
            await asyncio.sleep(seconds)
        del self._look_at[place]
        await self._spread(connection, topic, number)

    async def _spread(self, connection: Connection, topic: Entity, number: int) -> bool:
        """Spread messages, unless a client has the role or wants it at this moment. Return whether they were spread."""
        try:
            if self.maintenance is not None or await is_held(connection.transport, connection.namespace.name, ROUTE):
                return False
            return await maintenance.TopicPublisher(topic, number).publish_due(None)
        except ServiceBusError as error:
            _log.warning("%s, partition %d: its messages wait to be spread: %s", topic.name, number, error)
            return False

    def moves_from(self, connection: Connection, record: EntityRecord, *, waits: bool) -> None:
        """Log a warning if messages wait in an entity, and no client would move them: once for each entity.

        ``waits`` says that messages certainly wait. Otherwise the partitions are asked, at most once in half a minute.
        """
        key = f"{MOVE} {record.incarnation}"
        now = asyncio.get_running_loop().time()
        if key in self._announced or (not waits and now < self._asked.get(key, -math.inf) + _AGAIN):
            return
        if waits:
            self._announced.add(key)
        else:
            self._asked[key] = now
        warn = partial(self._warn_of_moves, connection, record, key, waits=waits)
        connection.attempt("the question whether a client moves messages", warn)

    async def _warn_of_schedule(self, connection: Connection) -> None:
        try:
            if not await self._has_holder(connection, ROUTE):
                _log.warning(
                    "%s: no client publishes messages that are scheduled on topics, so they wait. Make one client with "
                    "maintenance=True, on any machine.",
                    connection.target,
                )
        except ServiceBusError as error:
            _log.debug("it is not known whether a client publishes scheduled messages: %s", error)

    async def _warn_of_moves(self, connection: Connection, record: EntityRecord, key: str, *, waits: bool) -> None:
        try:
            if await self._has_holder(connection, MOVE) or not (waits or await _waits_for_mover(connection, record)):
                return
            if waits or key not in self._announced:
                self._announced.add(key)
                _log.warning(
                    "%s: no client moves messages to other entities, so the messages of %r wait. Make one client with "
                    "maintenance=True, on any machine.",
                    connection.target,
                    record.path,
                )
        except ServiceBusError as error:
            _log.debug("it is not known whether a client moves the messages of %r: %s", record.path, error)

    async def _has_holder(self, connection: Connection, role: str) -> bool:
        """Return whether this client or another one has a role, or will have it soon, or had it lately."""
        loop = asyncio.get_running_loop()
        if self.maintenance is not None or loop.time() < self._held_until.get(role, -math.inf):
            return True
        held = await is_held(connection.transport, connection.namespace.name, role)
        if held:
            self._held_until[role] = loop.time() + _AGAIN
        return held


async def _waits_for_mover(connection: Connection, record: EntityRecord) -> bool:
    """Return whether messages wait in a partition of an entity to be moved."""
    settings = record.settings
    for number in record.partitions:
        request = connection.namespace.partition(record, number).count(CallId("", 0, connection.clock.told()))
        counts: Counts = await perform(connection.transport, request, timeout=_ASKING)
        waiting = counts.transfer + counts.active * settings.forwards + counts.dead_active * settings.forwards_dead
        if waiting:
            return True
    return False
