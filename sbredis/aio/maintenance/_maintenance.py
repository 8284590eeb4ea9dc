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

from sbredis._tasks import to_the_end
from sbredis.aio.calls._waking import listen
from sbredis.aio.core._watching import to_ask
from sbredis.aio.maintenance._census import Census
from sbredis.aio.maintenance._role import Role, Standing
from sbredis.aio.maintenance._topic_watcher import TopicWatcher
from sbredis.aio.maintenance._visiting import Visitor
from sbredis.engine import RoleLostError, registry_salt, waiting_channel
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.calls._runtime import Runtime
    from sbredis.aio.calls._waking import OpenChannel
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


async def call_routing(runtime: Runtime) -> None:
    """Say that there may be a topic that nobody watches yet, or that the role is free."""
    channel = routing_channel(runtime.namespace.name)
    await runtime.transport.command("SPUBLISH", channel, b"", key=channel)


class Maintenance:
    """One client's offer to do it."""

    def __init__(self, runtime: Runtime, find: Callable[[str, float], Awaitable[Entity]]) -> None:
        """``find`` brings the entity of a name, by a time of the event loop."""
        self._runtime = runtime
        self._find = find
        self._news = asyncio.Event()
        self._watchers: dict[tuple[str, int], TopicWatcher] = {}
        self._claim_at = self._list_at = self._listed_at = 0.0
        self._census = Census(runtime.namespace)
        self.visitor = Visitor(runtime, self._news, self._list_soon)
        """Visits the partitions of queues and subscriptions."""
        self._calls: OpenChannel | None = None
        self._moved = False
        """The clock of a test bus was moved since the entities were listed."""
        self.standing = Standing(False, 0, 0.0)

    async def run(self) -> None:
        """Do it whenever nobody else does, until the client is closed."""
        role: Role | None = None  # every client of a test bus does it, so that no test waits for a role
        if self._runtime.test_hooks is None:
            role = Role(self._runtime.transport, self._runtime.namespace.name, ROUTING)
        loop = asyncio.get_running_loop()
        ended_moving = self._runtime.clock.when_moved(self._look_anew)
        try:
            while True:
                try:
                    await self._be_heard()
                    self._news.clear()
                    if role is not None:
                        self._claim_at = loop.time() + _CLAIM / 3  # from before the call: it may take long
                        self.standing = await role.claim(_CLAIM)
                    if role is None or self.standing.held:
                        _log.debug("%s: this client maintains the namespace", self._runtime.target)
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
            self._let_go()
            if self._calls is not None:
                self._calls.close()
            if role is not None and self.standing.held:
                await to_the_end(self._give_up(role))

    async def _give_up(self, role: Role) -> None:
        with suppress(ServiceBusError, TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await role.give_up()
                await call_routing(self._runtime)  # who waits for the role has it at once

    async def _be_heard(self) -> None:
        if self._calls is None:
            channel = routing_channel(self._runtime.namespace.name)
            transport = self._runtime.transport
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
        self._drop(list(self._watchers))
        self.visitor.close()

    def _look_anew(self) -> None:
        for watcher in self._watchers.values():
            watcher.watch.missed()
        if self._runtime.test_hooks is not None:
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
            publishing_at = self._publish()
            claim_at = math.inf if role is None else self._claim_at
            visits_at = loop.time() + self.visitor.act()
            until = min(claim_at, self._list_at, visits_at, publishing_at)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()

    def _publish(self) -> float:
        """Publish in the partitions where something may be due. Returns when to come again.

        A partition that does not answer holds up no other.
        """
        now, fence = asyncio.get_running_loop().time(), self.standing.fence if self.standing.held else None
        watchers = list(self._watchers.values())
        watches = [watcher.watch for watcher in watchers]
        for watch in watches:
            if watch.look_at is not None and watch.look_at <= now:  # there may be many, and for most it is not time
                watch.time_passed(now)
        for place in to_ask(watches, _TOGETHER):
            watchers[place].begin(fence)
        return min((watch.look_at for watch in watches if watch.look_at is not None), default=math.inf)

    async def _list(self) -> None:
        """Watch all topics there are, and no others, and visit everything else."""
        loop = asyncio.get_running_loop()
        await self._census.read()
        if self._runtime.test_hooks is None:
            self.visitor.set_entities(self._census.others)
        elif self._moved:  # on a test bus nothing is due before the clock is moved: until then, visits cost nothing
            self._moved = False
            self.visitor.set_entities(self._census.others)
            self.visitor.agenda.missed_everywhere()
        found: set[tuple[str, int]] = set()
        for record in self._census.topics:
            with suppress(MessagingEntityNotFoundError):  # it is gone again
                found |= self._watch(await self._entity(record, loop.time() + _CALLING))
        self._drop([place for place in self._watchers if place not in found])

    async def _entity(self, record: EntityRecord, until: float) -> Entity:
        """The topic of a record, which may have come in the place of the one that we know."""
        entity = await self._find(record.path, until)
        if entity.record.incarnation != record.incarnation:
            await entity.recover(entity.record, until)
        return entity

    def _watch(self, entity: Entity) -> set[tuple[str, int]]:
        places = {(entity.record.incarnation, number) for number in entity.numbers}
        for place in places:
            if place not in self._watchers:
                self._watchers[place] = TopicWatcher(entity, place[1], changed=self._news.set, failed=self._failed)
                self._news.set()
        return places

    def _drop(self, places: list[tuple[str, int]]) -> None:
        for place in places:
            self._watchers.pop(place).close()

    def _failed(self, watcher: TopicWatcher, error: BaseException) -> None:
        if isinstance(error, MessagingEntityNotFoundError):
            self._drop([place for place, other in self._watchers.items() if other is watcher])
        elif isinstance(error, RoleLostError):
            self._claim_at = 0.0  # find out who has it
        self._news.set()
