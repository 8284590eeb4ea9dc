"""Maintain a namespace for all its clients: publish on topics, and visit the other partitions.

A message that is scheduled on a topic must be judged by the rules at its scheduled time. No script can do this, so the
client that has the role does it. In queues and subscriptions, every call does due work. If no call comes, the client
with the role visits their partitions when something is due (:mod:`sbredis.aio.maintenance._visiting`). Every other
client that offers maintenance waits until the role is free.

The role has a *fence*, a number: a topic's partition refuses a call with a fence that is older than one that it has
seen. But even if two clients believed that they had the role, they would do no work twice. A script publishes a message
and removes it from the schedule in one step, and a visit does only work that is due.
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
"""The seconds for which the role is claimed at a time. The claim is renewed after a third of that time."""
_LISTING = 10.0
"""The seconds between two readings of the census.

The time is multiplied by the number of calls that a reading needs.
"""
_LISTING_SOON = 1.0
"""The seconds between two readings after an announcement by an unknown entity.

The time is multiplied by the number of calls that a reading needs.
"""
_CALLING = 30.0
_PAUSE = 1.0
_AT_ONCE = 16


def routing_channel(namespace: str) -> bytes:
    """Return the channel for calls of :func:`call_routing`. Clients that have or want the role listen to it."""
    return waiting_channel(namespace, registry_salt(), ROUTING)


async def call_routing(runtime: Runtime) -> None:
    """Notify the clients that have or want the role: there may be a new topic, or the role may be free."""
    channel = routing_channel(runtime.namespace.name)
    await runtime.transport.command("SPUBLISH", channel, b"", key=channel)


class Maintenance:
    """One client's offer to maintain the namespace."""

    def __init__(self, runtime: Runtime, find: Callable[[str, float], Awaitable[Entity]]) -> None:
        """``find`` returns the entity with a name. Its second argument is a deadline, as a time of the event loop."""
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
        """Whether the clock of a test bus was moved since the last reading of the census."""
        self.standing = Standing(False, 0, 0.0)

    async def run(self) -> None:
        """Maintain the namespace whenever no other client does, until this client is closed."""
        role: Role | None = None  # clients of a test bus maintain without the role, so that no test waits for it
        if self._runtime.test_hooks is None:
            role = Role(self._runtime.transport, self._runtime.namespace.name, ROUTING)
        loop = asyncio.get_running_loop()
        ended_moving = self._runtime.clock.when_moved(self._look_again)
        try:
            while True:
                try:
                    await self._listen()
                    self._news.clear()
                    if role is not None:
                        # Count from the start of the call and not from its answer, because the call may take long.
                        self._claim_at = loop.time() + _CLAIM / 3
                        self.standing = await role.claim(_CLAIM)
                    if role is None or self.standing.held:
                        _log.debug("%s: this client maintains the namespace", self._runtime.target)
                        await self._maintain(role)
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
            self._stop_work()
            if self._calls is not None:
                self._calls.close()
            if role is not None and self.standing.held:
                await to_the_end(self._give_up(role))

    async def _give_up(self, role: Role) -> None:
        with suppress(ServiceBusError, TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await role.give_up()
                await call_routing(self._runtime)  # a client that waits for the role then takes it immediately

    async def _listen(self) -> None:
        if self._calls is None:
            channel = routing_channel(self._runtime.namespace.name)
            transport = self._runtime.transport
            self._calls = await listen(transport, channel, woken=self._called, missed=self._called)

    def _called(self) -> None:
        """Handle a call on the channel: a topic with a scheduled message may be new, or the role may be free."""
        self._list_at = 0.0
        self._news.set()

    def _list_soon(self) -> None:
        """Read the census soon, because there may be an entity that is not known yet."""
        self._list_at = min(self._list_at, self._listed_at + _LISTING_SOON * max(1, self._census.pages))
        self._news.set()

    def _stop_work(self) -> None:
        self._drop(list(self._watchers))
        self.visitor.close()

    def _look_again(self) -> None:
        for watcher in self._watchers.values():
            watcher.watch.missed()
        if self._runtime.test_hooks is not None:
            self._moved = True
            self._list_at = 0.0
        self._news.set()

    async def _maintain(self, role: Role | None) -> None:
        """Maintain the namespace as long as this client has the role; without a ``role``, for ever."""
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
                    self._stop_work()
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
        """Publish in the partitions where something may be due. Return the time of the next call of this method.

        A partition that does not answer does not delay the other partitions.
        """
        now, fence = asyncio.get_running_loop().time(), self.standing.fence if self.standing.held else None
        watchers = list(self._watchers.values())
        watches = [watcher.watch for watcher in watchers]
        for watch in watches:
            if watch.look_at is not None and watch.look_at <= now:  # this check saves many calls
                watch.time_passed(now)
        for place in to_ask(watches, _AT_ONCE):
            watchers[place].begin(fence)
        return min((watch.look_at for watch in watches if watch.look_at is not None), default=math.inf)

    async def _list(self) -> None:
        """Read the census. From now on watch the topics in it, and visit the queues and subscriptions in it."""
        loop = asyncio.get_running_loop()
        await self._census.read()
        if self._runtime.test_hooks is None:
            self.visitor.set_entities(self._census.others)
        elif self._moved:  # on a test bus nothing becomes due before the clock is moved
            self._moved = False
            self.visitor.set_entities(self._census.others)
            self.visitor.agenda.missed_everywhere()
        found: set[tuple[str, int]] = set()
        for record in self._census.topics:
            with suppress(MessagingEntityNotFoundError):  # the topic was deleted meanwhile
                found |= self._watch(await self._entity(record, loop.time() + _CALLING))
        self._drop([place for place in self._watchers if place not in found])

    async def _entity(self, record: EntityRecord, until: float) -> Entity:
        """Return the topic of a record. This topic may have replaced an older topic that this client knows."""
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
            self._claim_at = 0.0  # find out which client has the role
        self._news.set()
