"""A partition of a topic, as whoever publishes what was scheduled there watches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.to_thread

from sbredis.aio.calls._routing import facts_of
from sbredis.aio.calls._waking import listen
from sbredis.aio.core._delivering import OF_ONE_JOB
from sbredis.aio.core._watching import REGISTERED
from sbredis.aio.maintenance._unpublishable import Unpublishable
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Delivery,
    Looked,
    Outgoing,
    Partition,
    Request,
    Sent,
    Turn,
    decode,
    payload_offset,
)
from sbredis.exceptions import Outcome, ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.calls._partition_client import PartitionClient
    from sbredis.aio.calls._routing import Routed, Routing
    from sbredis.aio.calls._waking import Listening
    from sbredis.rules import Facts

__all__ = ["Watch"]

_log = logging.getLogger("sbredis.maintenance")
_WAITING = "route"
_FULL_PAUSE = 10.0
"""For how long a partition is left alone in which too much cannot be published."""
_CALLING = 30.0
_PAUSE = 1.0
_RIPE = 500
_OVERHEAD = 256
"""What a stored message has besides what its sender gave, at most."""


class _UnpublishedError(ServiceBusError):
    """What no call could be made of to publish it."""

    def __init__(self, broken: Exception) -> None:
        super().__init__(str(broken), outcome=Outcome.NEVER_SENT)
        self.broken = broken


class Watch:
    """A partition of a topic, and when there is something to be done."""

    def __init__(self, entity: Entity, number: int, news: asyncio.Event) -> None:
        self.entity = entity
        self.partition_client: PartitionClient = entity.partition_client(number)
        self.look_at = 0.0
        self.busy = False
        """It is being looked at."""
        self._number = number
        self._identity = f"{_WAITING}-{entity.record.id}"
        """The same for whoever has the role: a partition wakes one of those that wait, and is not to choose one that
        has died, or has lost the role and does not know it yet.
        """
        self._news = news
        self._subscription: Listening | None = None
        self._aside = Unpublishable()
        self._stuck = False
        """There are more of those than can be set aside."""

    async def work(self, fence: int | None) -> None:
        """Publish what is due, and find out when something else will be."""
        loop = asyncio.get_running_loop()
        if self._subscription is None:
            transport = self.entity.runtime.transport
            self._subscription = await listen(transport, self._channel(), woken=self._woken, missed=self._woken)
        if not await self.publish_due(fence):
            self.look_at = loop.time() + _FULL_PAUSE
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
                    _log.error(
                        "%s: what is scheduled waits behind too much that cannot be published", self.partition_client
                    )
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
            await self.partition_client.call("o", make, asyncio.get_running_loop().time() + _CALLING)
        except (*OF_ONE_JOB, _UnpublishedError) as error:
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
            self.partition_client,
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

        return await self.partition_client.call("j", make, asyncio.get_running_loop().time() + _CALLING)

    async def _look(self) -> Looked:
        waiter = self._channel()

        def make(partition: Partition, turn: Turn) -> Request[Looked]:
            return partition.look(waiter=waiter, turn=Turn("", 0, turn.now))

        return await self.partition_client.call("j", make, asyncio.get_running_loop().time() + _CALLING)

    def close(self) -> None:
        """It is watched no longer."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _woken(self) -> None:
        self.look_at = 0.0
        self._news.set()

    def _channel(self) -> bytes:
        return self.partition_client.channel(self._identity)
