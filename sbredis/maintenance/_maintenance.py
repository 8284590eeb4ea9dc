"""Maintain a namespace for all its clients.

There are three roles, and each has a duty: publish on topics and visit partitions
(:mod:`sbredis.maintenance._routing`), move messages from one entity to another, and remove entities that nobody
uses. A client that offers maintenance wants all three. Each role is claimed separately, so several clients may share
the roles, and every other client that offers maintenance waits until a role is free.

Clients of a test bus do all duties without claiming a role, so that no test waits for a role.

A client that does not maintain the namespace announces its new work to the client that does, and warns if there is
none.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from sbredis._tasks import TaskScope
from sbredis.client import MOVE, ROUTE, RoleKeeper, call_role, is_held
from sbredis.engine import CallId, Counts, perform
from sbredis.exceptions import ServiceBusError
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._idle import IdleDuty
from sbredis.maintenance._moving import MovingDuty
from sbredis.maintenance._routing import RoutingDuty

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from sbredis.client import Connection, Entity
    from sbredis.registry import EntityRecord

__all__ = ["Maintenance", "MaintenanceOffer"]

_log = logging.getLogger("sbredis.maintenance")
DUTIES: Sequence[type[Duty]] = (RoutingDuty, MovingDuty, IdleDuty)
"""The duties of a client that maintains its namespace, one for each role."""


class _DutyRunner:
    """Does the duty of a role while this client has the role."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self._connection = duty.connection
        self._failures = duty.shared.failures
        self.keeper = RoleKeeper(duty.connection, duty.role, called=duty.called)

    async def run(self) -> None:
        """Do the duty whenever no other client does, until the task is cancelled."""
        if self._connection.test_hooks is not None:
            await self._work(Tenure(lambda: None, lambda: None))
        try:
            while True:
                await self.keeper.take()
                _log.debug("%s: this client has the role %r", self._connection.target, self.duty.role)
                async with TaskScope() as tasks:
                    tasks.start(self._work(Tenure(lambda: self.keeper.standing.fence, self.keeper.doubt)))
                    await self.keeper.keep()
                    tasks.cancel()
        finally:
            await self.keeper.leave()

    async def _work(self, tenure: Tenure) -> None:
        await self._failures.tend(
            f"{self._connection.target}: the duty {self.duty.role!r}", partial(self.duty.run, tenure)
        )


class Maintenance:
    """The maintenance of a namespace by one client: its duties, and the list of entities that they share."""

    def __init__(self, connection: Connection, duties: Sequence[type[Duty]] = DUTIES) -> None:
        shared = DutyResources.of(connection)
        self.census, self._failures = shared.census, shared.failures
        self.duties: dict[str, Duty] = {duty.role: duty(shared) for duty in duties}
        """The duties by their roles."""
        self._runners = {role: _DutyRunner(duty) for role, duty in self.duties.items()}
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    def keeper(self, role: str) -> RoleKeeper:
        """Return this client's part in a role."""
        return self._runners[role].keeper

    async def run(self) -> None:
        """Maintain the namespace whenever no other client does, until this client is closed or :meth:`end` is called.

        At the end, the client gives up its roles. No error in a duty ends another duty, or the client.
        """
        try:
            async with TaskScope() as tasks:
                tasks.start(self._failures.tend("the list of entities", self.census.run))
                tasks.start(self._run_duties(tasks))
                await self._ending.wait()
                tasks.cancel()
        finally:
            self._ended.set()

    async def _run_duties(self, tasks: TaskScope) -> None:
        """Start all duties. The first one asks alone, so that a user without the rights is refused only once."""
        first, *others = self._runners.values()
        tasks.start(self._tended(first))
        if first.duty.connection.test_hooks is None:
            await first.keeper.answered.wait()
        for runner in others:
            tasks.start(self._tended(runner))

    def _tended(self, runner: _DutyRunner) -> Coroutine[Any, Any, None]:
        return self._failures.tend(f"the role {runner.duty.role!r}", runner.run)

    async def end(self) -> None:
        """Stop maintaining the namespace, and give up the roles."""
        self._ending.set()
        await self._ended.wait()


_client_log = logging.getLogger("sbredis.client")
_ASKING = 5.0
_AGAIN = 30.0
"""The seconds between two questions to the partitions of an entity."""


class MaintenanceOffer:
    """A client's offer to maintain its namespace, if the client makes one. Every client of a test bus makes one."""

    def __init__(self, *, made: bool) -> None:
        self._made = made
        self._joined = 0
        """The number of blocks in which this client takes part in maintenance."""
        self._announced: set[str] = set()
        self._asked: dict[str, float] = {}
        """For entities in which messages may wait, when their partitions were asked last."""
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
        maintenance = Maintenance(connection)
        if connection.attempt("maintenance", maintenance.run):
            self.maintenance = maintenance

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        """Announce a topic on which a message was scheduled. This is done once for each topic.

        The topic may be new, so the client that maintains the namespace may not know it yet.
        """
        if topic.record.incarnation not in self._announced:
            self._announced.add(topic.record.incarnation)
            connection.attempt("the announcement of a scheduled message", partial(self._announce, connection))

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

    async def _announce(self, connection: Connection) -> None:
        """Announce the topic, and log a warning if no client would publish the message."""
        try:
            await call_role(connection, ROUTE)
            if not await self._has_holder(connection, ROUTE):
                _client_log.warning(
                    "%s: no client publishes messages that are scheduled on topics, so they wait. Make one client with "
                    "maintenance=True, on any machine.",
                    connection.target,
                )
        except ServiceBusError as error:
            _client_log.debug("it is not known whether a client publishes scheduled messages: %s", error)

    async def _warn_of_moves(self, connection: Connection, record: EntityRecord, key: str, *, waits: bool) -> None:
        try:
            if await self._has_holder(connection, MOVE) or not (waits or await _waits_for_mover(connection, record)):
                return
            if waits or key not in self._announced:
                self._announced.add(key)
                _client_log.warning(
                    "%s: no client moves messages to other entities, so the messages of %r wait. Make one client with "
                    "maintenance=True, on any machine.",
                    connection.target,
                    record.path,
                )
        except ServiceBusError as error:
            _client_log.debug("it is not known whether a client moves the messages of %r: %s", record.path, error)

    async def _has_holder(self, connection: Connection, role: str) -> bool:
        """Return whether this client or another one has a role, or will have it soon."""
        return self.maintenance is not None or await is_held(connection.transport, connection.namespace.name, role)


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
