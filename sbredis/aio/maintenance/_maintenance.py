"""What one client does for all clients of a namespace: publishing on topics, and visiting the other partitions.

What is scheduled on a topic has to be judged by the rules of its moment, which no script can do: the client that holds
the role does it. In queues and subscriptions any call does what is due; where none comes, the holder of the role visits
them when something is due (:mod:`sbredis.aio.maintenance._visiting`). Every other client that offers to waits until the
role is free. The role carries a *fence*, and a topic's partition refuses one that is older than another it has seen;
but even two that believed to hold it would do nothing twice: a message is published and taken off the schedule in one
step, and a visit does only what is due.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from sbredis.aio.calls._waking import listen
from sbredis.aio.core._delivering import DefectError
from sbredis.aio.maintenance._census import Census
from sbredis.aio.maintenance._publishing import Watch
from sbredis.aio.maintenance._role import Role, Standing
from sbredis.aio.maintenance._visiting import Visitor
from sbredis.engine import RoleLostError, registry_salt, waiting_channel
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.calls._waking import Listening
    from sbredis.registry import EntityRecord

__all__ = ["ROUTING", "Maintenance", "call_routing"]

_log = logging.getLogger("sbredis.maintenance")
ROUTING = "route"
_CLAIM = 10.0
"""For how many seconds the role is taken at a time; it is renewed when a third of that has passed."""
_LISTING = 10.0
"""So many seconds pass between two looks at what entities there are, for each call that a look takes."""
_LISTING_SOON = 1.0
"""The same if a partition has announced something whose entity is not known yet."""
_CALLING = 30.0
_PAUSE = 1.0
_TOGETHER = 16


def routing_channel(namespace: str) -> bytes:
    """Where whoever has the role of routing, or waits for it, hears that there may be something new."""
    return waiting_channel(namespace, registry_salt(), ROUTING)


async def call_routing(connection: Connection) -> None:
    """Say that there may be a topic that nobody watches yet, or that the role is free."""
    channel = routing_channel(connection.namespace.name)
    await connection.transport.command("SPUBLISH", channel, b"", key=channel)


class Maintenance:
    """One client's offer to do it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._news = asyncio.Event()
        self._watches: dict[tuple[str, int], Watch] = {}
        self._claim_at = self._list_at = self._listed_at = 0.0
        self._census = Census(connection.namespace)
        self.visitor = Visitor(connection, self._news, self._list_soon)
        """Visits the partitions of queues and subscriptions."""
        self._working: set[asyncio.Task[None]] = set()
        self._calls: Listening | None = None
        self._moved = False
        """The clock of a test bus was moved since the entities were listed."""
        self.standing = Standing(False, 0, 0.0)

    async def run(self) -> None:
        """Do it whenever nobody else does, until the client is closed."""
        role: Role | None = None  # every client of a test bus does it, so that no test waits for a role
        if self._connection.test_hooks is None:
            role = Role(self._connection.transport, self._connection.namespace.name, ROUTING)
        loop = asyncio.get_running_loop()
        ended_moving = self._connection.clock.when_moved(self._look_anew)
        try:
            while True:
                try:
                    await self._be_heard()
                    self._news.clear()
                    if role is not None:
                        self._claim_at = loop.time() + _CLAIM / 3  # from before the call: it may take long
                        self.standing = await role.claim(_CLAIM)
                    if role is None or self.standing.held:
                        _log.debug("%s: this client maintains the namespace", self._connection.target)
                        await self._hold(role)
                        continue
                    wait = min(self.standing.seconds, _CLAIM)
                except ServiceBusError as error:
                    _log.info("maintenance waits: %s", error)
                    wait = _PAUSE
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait * random.uniform(0.5, 1.0) + 0.05):
                        await self._news.wait()
        finally:
            ended_moving()
            for task in self._working:
                task.cancel()
            self._let_go()
            if self._calls is not None:
                self._calls.close()
            if role is not None and self.standing.held:
                with suppress(ServiceBusError), anyio.move_on_after(_PAUSE, shield=True):
                    await role.give_up()
                    await call_routing(self._connection)  # who waits for the role has it at once

    async def _be_heard(self) -> None:
        if self._calls is None:
            channel = routing_channel(self._connection.namespace.name)
            transport = self._connection.transport
            self._calls = await listen(transport, channel, woken=self._called, missed=self._called)

    def _called(self) -> None:
        """Something was scheduled on a topic that may be a new one; or the role may be free."""
        self._list_at = 0.0
        self._news.set()

    def _list_soon(self) -> None:
        """There may be an entity that is not known yet."""
        self._list_at = min(self._list_at, self._listed_at + _LISTING_SOON * max(1, self._census.pages))
        self._news.set()

    def _let_go(self) -> None:
        self._drop(list(self._watches))
        self.visitor.close()

    def _look_anew(self) -> None:
        for watch in self._watches.values():
            watch.look_at = 0.0
        if self._connection.test_hooks is not None:
            self._moved = True
            self._list_at = 0.0
        self._news.set()

    async def _hold(self, role: Role | None) -> None:
        """Do it as long as the role is ours, or for ever where there is none."""
        loop = asyncio.get_running_loop()
        self._list_at = 0.0
        if role is not None:
            await self.visitor.begin()
        while True:
            now = loop.time()
            self._news.clear()
            if now >= self._claim_at and role is not None:
                self.standing = await role.claim(_CLAIM)
                if not self.standing.held:
                    self._let_go()
                    return
                self._claim_at = now + _CLAIM / 3
            if now >= self._list_at:
                self._listed_at = now
                self._list_at = now + _LISTING * max(1, self._census.pages)
                await self._list()
            # Each by itself: a partition that does not answer holds up no other.
            for watch in self._watches.values():
                if watch.look_at <= now and not watch.busy and len(self._working) < _TOGETHER:
                    watch.busy = True
                    task = loop.create_task(self._work(watch))
                    self._working.add(task)
                    task.add_done_callback(self._working.discard)
            idle = [watch.look_at for watch in self._watches.values() if not watch.busy]
            claim_at = math.inf if role is None else self._claim_at
            visits_at = loop.time() + self.visitor.act()
            until = min([claim_at, self._list_at, visits_at, *(idle if len(self._working) < _TOGETHER else ())])
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()

    async def _list(self) -> None:
        """Watch all topics there are, and no others, and visit everything else."""
        loop = asyncio.get_running_loop()
        await self._census.read()
        if self._connection.test_hooks is None:
            self.visitor.there_are(self._census.others)
        elif self._moved:  # on a test bus nothing is due before the clock is moved: until then, visits cost nothing
            self._moved = False
            self.visitor.there_are(self._census.others)
            self.visitor.agenda.missed_all()
        found: set[tuple[str, int]] = set()
        for record in self._census.topics:
            with suppress(MessagingEntityNotFoundError):  # it is gone again
                found |= self._watch(await self._entity(record, loop.time() + _CALLING))
        self._drop([place for place in self._watches if place not in found])

    async def _entity(self, record: EntityRecord, until: float) -> Entity:
        """The topic of a record, which may have come in the place of the one that we know."""
        entity = await self._connection.entity(record.path, until)
        if entity.record.incarnation != record.incarnation:
            await entity.recover(entity.record, until)
        return entity

    def _watch(self, entity: Entity) -> set[tuple[str, int]]:
        places = {(entity.record.incarnation, number) for number in entity.numbers}
        for place in places:
            if place not in self._watches:
                self._watches[place] = Watch(entity, place[1], self._news)
                self._news.set()
        return places

    def _drop(self, places: list[tuple[str, int]]) -> None:
        for place in places:
            self._watches.pop(place).close()

    async def _work(self, watch: Watch) -> None:
        try:
            await watch.work(self.standing.fence if self.standing.held else None)
        except MessagingEntityNotFoundError:
            self._drop([place for place, other in self._watches.items() if other is watch])
        except RoleLostError as error:
            _log.info("%s", error)
            watch.look_at = asyncio.get_running_loop().time() + _PAUSE
            self._claim_at = 0.0  # find out who has it
        except DefectError as error:  # it stands in the log already
            _log.info("%s: what is scheduled waits: %s", watch.partition_client, error)
            watch.look_at = asyncio.get_running_loop().time() + _CLAIM
        except ServiceBusError as error:
            _log.info("%s: what is scheduled waits: %s", watch.partition_client, error)
            watch.look_at = asyncio.get_running_loop().time() + _PAUSE
        except Exception:  # noqa: BLE001  # a defect in one place must not make it spin
            _log.exception("%s: what is scheduled waits, because of a defect", watch.partition_client)
            watch.look_at = asyncio.get_running_loop().time() + _CLAIM
        finally:
            watch.busy = False
            self._news.set()
