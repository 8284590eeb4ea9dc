"""The client for one partition: its keys and clock, whether it can be reached, and a lane for each kind of operation.

All users of the partition share it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sbredis.client._giving_back import GivingBack
from sbredis.client._lane import OTHER_LOOP, Lane
from sbredis.client._lane_kinds import (
    CallJob,
    CallLane,
    GrantLane,
    RenewLane,
    SettleLane,
    SettleMethod,
    TransactionLane,
)
from sbredis.client._pauses import Pauses
from sbredis.client._send_lane import SendLane
from sbredis.engine import (
    CallId,
    Lock,
    OverdueError,
    Partition,
    Request,
    ScriptCaller,
    SettingsBehindError,
    SettingsStaleError,
    Settled,
    perform,
)
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import MessageLease

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.model import Hold
    from sbredis.registry import EntityRecord
    from sbredis.transport import Transport

__all__ = ["SETTLEMENTS", "PartitionClient", "Shown", "do_due", "read_after_due"]

_log = logging.getLogger("sbredis.client")


class _PartitionReading(Protocol):
    """A script's view of a partition."""

    @property
    def more(self) -> bool | int:
        """Whether more work was due than the script could take into account."""
        ...


Shown = TypeVar("Shown", bound=_PartitionReading)


async def do_due(transport: ScriptCaller, partition: Partition, told: int | None, timeout: float) -> bool:
    """Do a large share of the work that is due in a partition. Return whether more is left."""
    request = partition.due(CallId("", 0, told))
    return (await perform(transport, request, timeout=timeout)).more


async def read_after_due(
    place: object, read: Callable[[], Awaitable[Shown]], due: Callable[[], Awaitable[bool]]
) -> Shown:
    """Read a partition with ``read``. If too much work is due for one read, do it with ``due``, and read again.

    A script that reads can take only a limited number of due events into account. If the other due work cannot be done,
    because this is not permitted or takes too long, the result contains only the events that the script could take into
    account. The partition is read again only once. Work that becomes due later was not due when the caller asked, and
    in a busy partition there is always such work.
    """
    result = await read()
    if not result.more:
        return result
    try:
        while await due():
            pass
    except ServiceBusError as error:
        _log.info(
            "%s: the due work could not be finished, so the result does not include all its effects: %s", place, error
        )
        return result
    return await read()


T = TypeVar("T")
_CATCHING_UP = 60.0
"""The seconds that one call may take to do due work."""
_MARGIN = 0.002
"""The seconds by which the client ends a lock earlier than its server, because servers count whole milliseconds."""
_NOTING = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE, _PROBING = 1.0, 30.0, 5.0


def _released(partition: Partition, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
    return partition.abandon(call_id, locks, counted=False)


def _interrupted(partition: Partition, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
    return partition.abandon(call_id, locks, interrupted=True)


SETTLEMENTS: dict[str, tuple[str, SettleMethod]] = {
    "complete": ("c", Partition.complete),
    "abandon": ("a", Partition.abandon),
    "defer": ("d", Partition.defer),
    "dead_letter": ("l", Partition.dead_letter),
    "release": ("b", _released),
    "interrupt": ("e", _interrupted),
}
"""The letter of the lane of each settlement, and the method that makes its request."""


class PartitionClient:
    """One partition of one entity, shared by all its users in this client."""

    def __init__(self, entity: Entity, number: int, elsewhere: Callable[[], PartitionClient]) -> None:
        """``elsewhere`` returns the client of the next partition for messages that may go to any partition."""
        self.entity = entity
        self.connection = entity.connection
        self.number = number
        self._loop = asyncio.get_running_loop()
        self._catching_up = False
        self._pauses = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.down_until = 0.0
        """The time until which movable messages go to other partitions; 0 while the partition can be reached."""
        self._noted_at = -math.inf
        self.sending = SendLane(self, lambda: elsewhere().sending)
        self.renewing = RenewLane(self)
        self.granting = GrantLane(self)
        self.transacting = TransactionLane(self)
        self._settling: dict[str, SettleLane] = {}
        self._calling: dict[str, CallLane] = {}
        self._spare: list[str] = []
        self._borrowed = 0
        self.giving_back = GivingBack(self)

    def __str__(self) -> str:
        return f"{self.entity.name}, partition {self.number}"

    @property
    def transport(self) -> Transport:
        """The transport of the client."""
        return self.connection.transport

    @property
    def partition(self) -> Partition:
        """The engine's partition for the current record of the entity. It builds the requests."""
        return self.entity.partition(self.number)

    @property
    def base(self) -> int:
        """The number to add to the partition's own numbers to make sequence numbers."""
        return self.entity.base(self.number)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server of the partition, or the first one is being opened."""
        if self.number not in self.entity.numbers:
            return False
        return self.connection.transport.is_in_reach(self.partition.keys[0])

    @property
    def obstacle(self) -> ServiceBusError | None:
        """Why the server of the partition does not take what receivers want; ``None`` if it has not said why."""
        return self.connection.transport.obstacle(self.partition.keys[0], "grant")

    def lease(self, token: str, milliseconds: int, since: float, fence: int = 0) -> MessageLease:
        """Return the lease from a call that was sent at ``since``. It ends no later than the lock in the partition."""
        clock = self.connection.clock
        now = clock.now()
        until = since + milliseconds / 1000 - _MARGIN
        return MessageLease(token, until, clock.utc() + until - now, fence, partition=self.number)

    # -- its settings, and what is due ---------------------------------------------------------------------------------

    async def tell(self, until: float) -> None:
        """Send the settings in the registry to the partition."""
        try:
            request = self.partition.configure(now=self.connection.clock.told())
            await perform(self.connection.transport, request, timeout=until - self._loop.time())
        except (SettingsStaleError, MessagingEntityNotFoundError):
            return  # another client has sent newer settings, or the partition is gone: the next call shows which

    async def overcome(self, error: ServiceBusError, record: EntityRecord, until: float) -> bool:
        """Remove the obstacle for which a part of a transaction was refused. Return whether there was one.

        The transaction may then be made again. It was built from ``record``.
        """
        if isinstance(error, SettingsBehindError):
            await self.tell(until)
        elif isinstance(error, SettingsStaleError):
            await self.entity.reload(record, until)
        elif isinstance(error, MessagingEntityNotFoundError):
            await self.entity.recover(record, until)
        else:
            return isinstance(error, OverdueError) and self._loop.time() < until
        return True

    def catch_up(self) -> None:
        """Do the due work in the background, after a call reported that more is due than one call does."""
        if not self._catching_up:
            self._catching_up = True
            self.connection.attempt(f"{self}: due work", self._catch_up)

    async def _catch_up(self) -> None:
        try:
            while await self.do_due(self._loop.time() + _CATCHING_UP):
                pass
        except ServiceBusError as error:
            _log.debug("%s: due work could not be done and is left to the next call: %s", self, error)
        finally:
            self._catching_up = False

    async def do_due(self, deadline: float) -> bool:
        """Do a large share of the work that is due in the partition. Return whether more is left."""
        return await do_due(
            self.connection.transport, self.partition, self.connection.clock.told(), deadline - self._loop.time()
        )

    # -- its use -------------------------------------------------------------------------------------------------------

    def note_use(self) -> None:
        """Note in the background that a user has read the partition. One call a minute is enough.

        All other calls of users are noted by their own scripts. A user who may only read cannot note anything.
        """
        now = self.connection.clock.now()
        if now - self._noted_at >= _NOTING:
            self._noted_at = now
            self.connection.attempt(f"{self}: the note of a use", self._note_use)

    async def _note_use(self) -> None:
        try:
            request = self.partition.touch(CallId("", 0, self.connection.clock.told()))
            await perform(self.connection.transport, request, timeout=_PROBING)
        except ServiceBusError as error:
            _log.debug("%s: it could not be noted that the partition was read: %s", self, error)

    # -- whether it can be reached -------------------------------------------------------------------------------------

    def reached(self) -> None:
        """Record that the partition answered."""
        if self.down_until:
            self.down_until = 0.0
            self._pauses.reset()

    def missed(self) -> None:
        """Record that the partition could not be reached. For a while, movable messages go to other partitions."""
        pause = self._pauses.next()
        self.down_until = self._loop.time() + pause
        _log.info(
            "%s cannot be reached; for %.0f s, messages that may be sent to any partition are sent to other partitions",
            self,
            pause,
        )

    def probe_if_due(self) -> None:
        """If the pause is over, test in the background whether the partition can be reached again."""
        now = self._loop.time()
        if self.down_until <= now:
            self.down_until = now + 2 * _PROBING
            self.connection.attempt(f"{self}: a test of the partition", self._probe)

    async def _probe(self) -> None:
        try:
            call_id = CallId("", 0, self.connection.clock.told())
            await perform(self.connection.transport, self.partition.count(call_id), timeout=_PROBING)
        except ServiceBusError as error:
            if error.outcome is Outcome.REFUSED:
                self.reached()
            else:
                self.missed()
        else:
            _log.info("%s can be reached again", self)
            self.reached()

    # -- its lanes -----------------------------------------------------------------------------------------------------

    def settling(self, kind: str) -> SettleLane:
        """Return the lane for settlements of a kind: complete, abandon, release, interrupt, defer or dead_letter."""
        lane = self._settling.get(kind)
        if lane is None:
            self._check_loop()
            letter, method = SETTLEMENTS[kind]
            lane = self._settling[kind] = SettleLane(self, letter, method)
        return lane

    def settles(self, hold: Hold) -> bool:
        """Return whether a message that is marked as settled was settled, or is being settled.

        It is not if the caller of its settlement has gone before the call was made. May be called in any thread.
        """
        with suppress(RuntimeError):  # lanes belong to their event loop
            self._check_loop()
            for lane in self._settling.values():
                lane.drop_forsaken()
        return hold.settled

    def calling(self, letter: str) -> CallLane:
        """Return the lane with this letter, for calls that are not shared."""
        lane = self._calling.get(letter)
        if lane is None:
            self._check_loop()
            lane = self._calling[letter] = CallLane(self, letter)
        return lane

    def _check_loop(self) -> None:
        """Raise if the caller is in another event loop, to which a new lane would belong."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(OTHER_LOOP)

    def borrow_lane(self) -> str:
        """Return the letter of a free lane for a receiver. The receiver must return the lane later.

        Lanes are used again because an application may open and close receivers quickly, and the partition remembers
        each lane for a quarter of an hour.
        """
        if self._spare:
            return self._spare.pop()
        self._borrowed += 1
        return f"i{self._borrowed}"

    def return_lane(self, letter: str) -> None:
        """Return a lane that was borrowed. If a call is still under way in it, drop the lane instead.

        Otherwise the calls of the next receiver would have to wait for that call.
        """
        lane = self._calling.get(letter)
        if lane is not None and lane.busy:
            self.dismiss(letter)
        else:
            self._spare.append(letter)

    def give_back(self, hold: Hold) -> asyncio.Future[None] | None:
        """Release a message in the background, without an increase of its delivery count.

        If the message has a lock, return a future with the outcome.
        """
        lease = hold.lease
        return None if lease is None else self.give_back_named(lease.token, [hold.name])[0]

    def give_back_named(self, token: str, names: Sequence[str]) -> list[asyncio.Future[None]]:
        """Release the messages that are, or may be, locked under this token, without an increase of delivery counts.

        As long as their locks hold, this is tried again and again.
        """
        settle, loop = self.settling("release").settle, asyncio.get_running_loop()
        return [self.giving_back.give(partial(settle, Lock(token, name), loop)) for name in names]

    async def call(
        self,
        letter: str,
        make: Callable[[Partition, CallId], Request[T]],
        deadline: float,
        orphaned: Callable[[T], None] | None = None,
        *,
        catches_up: bool = True,
    ) -> T:
        """Make a call that is not shared, in the lane with this letter.

        If the caller is cancelled, ``orphaned`` gets the result. Without ``catches_up``, ``more`` in the result does
        not say that due work is left.
        """
        return await self.carry_out(letter, CallJob(make, deadline, orphaned, catches_up=catches_up))

    async def carry_out(self, letter: str, job: CallJob[T]) -> T:
        """Make the call of a :class:`CallJob`. If the caller is cancelled, the job's ``orphaned`` gets the result."""
        future = self.calling(letter).submit(job)
        try:
            result: T = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None and job.orphaned is not None:
                job.orphaned(future.result())
            raise
        return result

    async def read(self, letter: str, make: Callable[[Partition, CallId], Request[Shown]], deadline: float) -> Shown:
        """Read the partition after doing all work that is due there."""
        return await read_after_due(self, lambda: self.call(letter, make, deadline), lambda: self.do_due(deadline))

    def dismiss(self, letter: str) -> None:
        """Drop a lane that no caller will use again."""
        self._calling.pop(letter, None)

    def close(self) -> None:
        """Fail the jobs that wait in all lanes."""
        self.giving_back.close()
        for lane in self._lanes():
            lane.close()

    def _lanes(self) -> list[Lane[Any, Any]]:
        return [
            self.sending,
            self.renewing,
            self.granting,
            self.transacting,
            *self._settling.values(),
            *self._calling.values(),
        ]
