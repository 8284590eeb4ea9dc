"""What somebody has to do for all clients of a namespace: here, publishing what was scheduled on its topics.

What is scheduled on a queue becomes active by whichever call comes next. On a topic it has to be judged by the rules of
that moment, which no script can do: the client that holds the role does it. Every other one that offers to waits until
the role is free. The role carries a *fence*, and a partition refuses one that is older than another it has seen; but
even two that believed to hold it would publish nothing twice, since a message is published and taken off the schedule
in one step.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from sbredis.aio._aside import Aside
from sbredis.aio._fates import OF_ONE_CALLER, DefectError
from sbredis.aio._role import Role, Standing
from sbredis.aio._routing import facts_of
from sbredis.aio._waking import REGISTERED, listen
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Delivery,
    Looked,
    Outgoing,
    Partition,
    Request,
    RoleLostError,
    Sent,
    Turn,
    decode,
    payload_offset,
    registry_salt,
    waiting_channel,
)
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from sbredis.aio._connection import Connection
    from sbredis.aio._desk import Desk
    from sbredis.aio._entity import Entity
    from sbredis.aio._routing import Routed, Routing
    from sbredis.aio._waking import Listening
    from sbredis.registry import EntityRecord
    from sbredis.rules import Facts

__all__ = ["ROUTING", "Maintenance", "Watch", "call_routing"]

_log = logging.getLogger("sbredis.maintenance")
ROUTING = "route"
_CLAIM = 10.0
"""For how many seconds the role is taken at a time; it is renewed when a third of that has passed."""
_LISTING = 10.0
_CALLING = 30.0
_PAUSE = 1.0
_PAGE = 1000
_TOGETHER = 16
_RIPE = 500
_OVERHEAD = 256
"""What a stored message has besides what its sender gave, at most."""


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
        self._claim_at = self._list_at = 0.0
        self._working: set[asyncio.Task[None]] = set()
        self._calls: Listening | None = None
        self.standing = Standing(False, 0, 0.0)

    async def run(self) -> None:
        """Do it whenever nobody else does, until the client is closed."""
        role: Role | None = None  # every client of a test bus does it, so that no test waits for a role
        if self._connection.rig is None:
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
                        _log.debug("%s: this client publishes what is scheduled on topics", self._connection.target)
                        await self._hold(role)
                        continue
                    wait = min(self.standing.seconds, _CLAIM)
                except ServiceBusError as error:
                    _log.info("what is scheduled on topics waits: %s", error)
                    wait = _PAUSE
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait * random.uniform(0.5, 1.0) + 0.05):
                        await self._news.wait()
        finally:
            ended_moving()
            for task in self._working:
                task.cancel()
            self._drop(list(self._watches))
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

    def _look_anew(self) -> None:
        for watch in self._watches.values():
            watch.look_at = 0.0
        self._news.set()

    async def _hold(self, role: Role | None) -> None:
        """Do it as long as the role is ours, or for ever where there is none."""
        loop = asyncio.get_running_loop()
        self._list_at = 0.0
        while True:
            now = loop.time()
            self._news.clear()
            if now >= self._claim_at and role is not None:
                self.standing = await role.claim(_CLAIM)
                if not self.standing.held:
                    self._drop(list(self._watches))
                    return
                self._claim_at = now + _CLAIM / 3
            if now >= self._list_at:
                self._list_at = now + _LISTING
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
            until = min([claim_at, self._list_at, *(idle if len(self._working) < _TOGETHER else ())])
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()

    async def _list(self) -> None:
        """Watch all topics there are, and no others."""
        connection, loop = self._connection, asyncio.get_running_loop()
        found: set[tuple[str, int]] = set()
        after = ""
        while True:
            records = await connection.namespace.list_entities(after, _PAGE, timeout=_CALLING)
            for record in records:
                if record.kind == "topic" and record.state == "active":
                    with suppress(MessagingEntityNotFoundError):  # it is gone again
                        found |= self._watch(await self._entity(record, loop.time() + _CALLING))
            if len(records) < _PAGE:
                break
            after = records[-1].path
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
            _log.info("%s: what is scheduled waits: %s", watch.desk, error)
            watch.look_at = asyncio.get_running_loop().time() + _CLAIM
        except ServiceBusError as error:
            _log.info("%s: what is scheduled waits: %s", watch.desk, error)
            watch.look_at = asyncio.get_running_loop().time() + _PAUSE
        except Exception:  # noqa: BLE001  # a defect in one place must not make it spin
            _log.exception("%s: what is scheduled waits, because of a defect", watch.desk)
            watch.look_at = asyncio.get_running_loop().time() + _CLAIM
        finally:
            watch.busy = False
            self._news.set()


class _UnpublishedError(ServiceBusError):
    """What no call could be made of to publish it."""

    def __init__(self, broken: Exception) -> None:
        super().__init__(str(broken), outcome=Outcome.NEVER_SENT)
        self.broken = broken


class Watch:
    """A partition of a topic, and when there is something to be done."""

    def __init__(self, entity: Entity, number: int, news: asyncio.Event) -> None:
        self.entity = entity
        self.desk: Desk = entity.desk(number)
        self.look_at = 0.0
        self.busy = False
        """It is being looked at."""
        self._number = number
        self._identity = f"{ROUTING}-{entity.record.id}"
        """The same for whoever has the role: a partition wakes one of those that wait, and is not to choose one that
        has died, or has lost the role and does not know it yet.
        """
        self._news = news
        self._subscription: Listening | None = None
        self._aside = Aside()
        self._stuck = False
        """There are more of those than can be set aside."""

    async def work(self, fence: int | None) -> None:
        """Publish what is due, and find out when something else will be."""
        loop = asyncio.get_running_loop()
        if self._subscription is None:
            transport = self.entity.connection.transport
            self._subscription = await listen(transport, self._channel(), woken=self._woken, missed=self._woken)
        if not await self.publish_due(fence):
            self.look_at = loop.time() + _CLAIM
            return
        looked = await self._look()
        if looked.due:
            seconds = looked.due / 1000
            if self._aside:  # it is due already, which hides when what stands behind it will be, and is read each time
                seconds = max(seconds, _PAUSE, self._aside.size / MAXIMUM_CALL_BYTES)
            self.look_at = min(self.look_at, loop.time() + seconds)

    async def publish_due(self, fence: int | None) -> bool:
        """Publish all that is due; what somebody else publishes in the same moment is published once all the same.

        What cannot be published is set aside, and stays scheduled. Returns whether there was room for that.
        """
        loop = asyncio.get_running_loop()
        if self.entity.routing is None:
            await self.entity.load_routing(loop.time() + _CALLING)
        while True:
            self.look_at = loop.time() + REGISTERED
            ripe = await self._ripe()
            wanted = self._aside.without(ripe, loop.time(), self.entity.routing)
            if not wanted:
                self._aside.only(ripe)
                self._stuck = False
                return True
            if not await self._publish(wanted, fence):
                if not self._stuck:
                    _log.error("%s: what is scheduled waits behind too much that cannot be published", self.desk)
                self._stuck = True
                return False

    async def _publish(self, ripe: list[Delivery], fence: int | None) -> bool:
        """Whether all of it was published, or set aside."""
        room = True
        part: list[tuple[Delivery, Facts]] = []
        for each in ripe:
            try:
                part.append((each, facts_of(decode(each.record, payload_offset(each.record)))))
            except Exception as error:  # noqa: BLE001  # above all CodecError, or what another release has made of it
                room = self._set_aside(each, error) and room
            routing = self.entity.routing
            if routing is not None and len(part) >= routing.most:
                room = await self._together(part, fence) and room
                part = []
        return (not part or await self._together(part, fence)) and room

    async def _together(self, part: list[tuple[Delivery, Facts]], fence: int | None) -> bool:
        """Publish these with one call; if one of them is in the way of that, find out which."""
        messages = [Outgoing(b"", origin=each.name) for each, _ in part]
        facts = [seen for _, seen in part]
        judged: tuple[Routing | None, Routed | None] = None, None

        def make(partition: Partition, turn: Turn) -> Request[Sent]:
            routing = self.entity.routing
            assert routing is not None  # it was loaded, and is kept up with
            routed = judged[1] if judged[0] is routing else None
            try:
                return routing.published(partition, self._number, turn, messages, facts, fence, routed)[0]
            except ServiceBusError:
                raise
            except Exception as error:
                raise _UnpublishedError(error) from error

        try:
            judged = await self._judged(messages, facts, sum(len(each.record) for each, _ in part))
            await self.desk.call("o", make, asyncio.get_running_loop().time() + _CALLING)
        except (*OF_ONE_CALLER, _UnpublishedError) as error:
            if len(part) == 1:
                if isinstance(error, ServiceBusQuotaExceededError):
                    raise  # all wait until there is room
                return self._set_aside(part[0][0], error)
            middle = len(part) // 2
            room = await self._together(part[:middle], fence)
            return await self._together(part[middle:], fence) and room
        self._aside.published(each for each, _ in part)
        return True

    async def _judged(
        self, messages: Sequence[Outgoing], facts: Sequence[Facts], size: int
    ) -> tuple[Routing | None, Routed | None]:
        """Judge what takes long in a thread, so that it holds up nobody: by what, and what came of it."""
        routing = self.entity.routing
        if routing is None or not routing.takes_long(size):
            return None, None
        try:
            return routing, await anyio.to_thread.run_sync(routing.routed, messages, facts, abandon_on_cancel=True)
        except ServiceBusError:
            raise
        except Exception as error:
            raise _UnpublishedError(error) from error

    def _set_aside(self, message: Delivery, error: Exception) -> bool:
        """Whether there was room for it."""
        first, known = not self._aside, message in self._aside
        kept = self._aside.put(message, asyncio.get_running_loop().time(), self.entity.routing)
        broken = error.broken if isinstance(error, _UnpublishedError) else error
        _log.log(
            logging.ERROR if kept and not known else logging.DEBUG,
            "%s: the scheduled message %d cannot be published; it stays scheduled and is tried again: %s: %s",
            self.desk,
            self.entity.base(self._number) + int(message.name),
            type(broken).__name__,
            broken,
            exc_info=broken if first else None,
        )
        return kept

    async def _ripe(self) -> tuple[Delivery, ...]:
        wanted, room = _RIPE, MAXIMUM_CALL_BYTES
        if self._aside:  # it may stand before all else
            wanted = min(wanted + len(self._aside), MAXIMUM_CALL_MESSAGES)
            room = max(room, self.entity.largest_message + _OVERHEAD) + self._aside.size

        def make(partition: Partition, turn: Turn) -> Request[tuple[Delivery, ...]]:
            return partition.ripe(wanted, room=room, turn=Turn("", 0, turn.now))

        return await self.desk.call("j", make, asyncio.get_running_loop().time() + _CALLING)

    async def _look(self) -> Looked:
        waiter = self._channel()

        def make(partition: Partition, turn: Turn) -> Request[Looked]:
            return partition.look(waiter=waiter, turn=Turn("", 0, turn.now))

        return await self.desk.call("j", make, asyncio.get_running_loop().time() + _CALLING)

    def close(self) -> None:
        """It is watched no longer."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _woken(self) -> None:
        self.look_at = 0.0
        self._news.set()

    def _channel(self) -> bytes:
        return self.desk.channel(self._identity)
