# pyright: reportPrivateUsage=false
"""Where calls to one partition of an entity come together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from sbredis.aio.calls._catching_up import Shown, do_due, read_after_due
from sbredis.aio.calls._lane import Lane
from sbredis.aio.calls._lane_kinds import CallJob, CallLane, RenewJob, RenewLane, SendLane, SettleJob, SettleLane, Way
from sbredis.engine import (
    Lock,
    Partition,
    Renewed,
    Request,
    SettingsStaleError,
    Settled,
    Turn,
    perform,
    salts,
    waiting_channel,
)
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import Lease, ServiceBusReceivedMessage

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity
    from sbredis.transport import Transport

__all__ = ["PartitionClient"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_CATCHING_UP = 60.0
"""How many seconds each call for what is due may take."""
_MARGIN = 0.002
"""A lock is taken to end so many seconds early: the servers count whole milliseconds."""
_GIVING_BACK = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE, _PROBING = 1.0, 30.0, 5.0


def _released(partition: Partition, turn: Turn, locks: Sequence[Lock]) -> Request[Settled]:
    return partition.abandon(turn, locks, counted=False)


_WAYS: dict[str, tuple[str, Way]] = {
    "complete": ("c", Partition.complete),
    "abandon": ("a", Partition.abandon),
    "defer": ("d", Partition.defer),
    "dead_letter": ("l", Partition.dead_letter),
    "release": ("b", _released),
}


class PartitionClient:
    """One partition of one entity, as all who use it in this client share it."""

    def __init__(self, entity: Entity, number: int) -> None:
        self.entity = entity
        self.number = number
        self.sending = SendLane(self)
        self.renewing = RenewLane(self)
        self._settling: dict[str, SettleLane] = {}
        self._calling: dict[str, CallLane] = {}
        self._spare: list[str] = []
        self._borrowed = 0
        self._giving_back: set[asyncio.Future[None]] = set()
        self._catching_up = False
        self._pause = 0.0
        self.down_until = 0.0
        """Until when what may go elsewhere does; 0 while the partition can be reached."""

    def __str__(self) -> str:
        return f"{self.entity.name}, partition {self.number}"

    @property
    def transport(self) -> Transport:
        """What its calls go through."""
        return self.entity.connection.transport

    @property
    def base(self) -> int:
        """What is added to the partition's own numbers to make sequence numbers."""
        return self.entity.base(self.number)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server that the partition is on."""
        entity = self.entity
        if self.number not in entity.numbers:
            return False
        return entity.connection.transport.server_of(entity.partition(self.number).keys[0]) is not None

    def channel(self, identity: str) -> bytes:
        """Where somebody who waits at this partition is woken."""
        namespace = self.entity.connection.namespace
        return waiting_channel(namespace.name, salts(namespace.partitions)[self.number], identity)

    def settling(self, kind: str) -> SettleLane:
        """The lane for settlements of a kind: complete, abandon, release, defer, dead_letter."""
        lane = self._settling.get(kind)
        if lane is None:
            letter, way = _WAYS[kind]
            lane = self._settling[kind] = SettleLane(self, letter, way)
        return lane

    def calling(self, letter: str) -> CallLane:
        """The lane of this letter, for calls that are not shared."""
        lane = self._calling.get(letter)
        if lane is None:
            lane = self._calling[letter] = CallLane(self, letter)
        return lane

    def borrow(self) -> str:
        """A lane for the receives of somebody who will return it: the partition keeps what it knows of a lane for a
        quarter of an hour, and receivers may come and go faster than that.
        """
        if self._spare:
            return self._spare.pop()
        self._borrowed += 1
        return f"i{self._borrowed}"

    def hand_in(self, letter: str) -> None:
        """It is for others now; unless a call is still under way in it, behind which nobody is to wait."""
        lane = self._calling.get(letter)
        if lane is not None and lane.busy:
            self.dismiss(letter)
        else:
            self._spare.append(letter)

    def give_back(self, message: ServiceBusReceivedMessage) -> asyncio.Future[None] | None:
        """Give a message back unread, beside everything else. The future brings the outcome, if it has a lock."""
        lease = message._lease
        return None if lease is None else self.give_back_named(lease.token, [message._name])[0]

    def give_back_named(self, token: str, names: Sequence[str]) -> list[asyncio.Future[None]]:
        """Give messages back unread that are locked under this token, or may be."""
        until = anyio.current_time() + _GIVING_BACK
        given = [self.settling("release").submit(SettleJob(Lock(token, name), until, None)) for name in names]
        for future in given:
            self._giving_back.add(future)
            future.add_done_callback(self._gave_back)
        return given

    def _gave_back(self, future: asyncio.Future[None]) -> None:
        self._giving_back.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.debug("%s: a message was not given back, and comes back when its lock ends: %s", self, error)

    async def given_back(self) -> None:
        """Wait until all that is being given back has been."""
        while self._giving_back:
            await asyncio.wait(list(self._giving_back))

    async def call(
        self,
        letter: str,
        make: Callable[[Partition, Turn], Request[T]],
        deadline: float,
        orphaned: Callable[[T], None] | None = None,
    ) -> T:
        """Make a call by itself, in the lane of this letter; what becomes of its result if the caller goes away is
        ``orphaned``'s.
        """
        return await self.carry_out(letter, CallJob(make, deadline, orphaned))

    async def carry_out(self, letter: str, job: CallJob[T]) -> T:
        """The same for a job of the caller's own."""
        future = self.calling(letter).submit(job)
        try:
            result: T = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None and job.orphaned is not None:
                job.orphaned(future.result())
            raise
        return result

    def dismiss(self, letter: str) -> None:
        """A lane that nobody will use again."""
        lane = self._calling.pop(letter, None)
        if lane is not None:
            lane.retire()

    def close(self) -> None:
        """End what waits here."""
        lanes: list[Lane[Any, Any]] = [self.sending, self.renewing, *self._settling.values(), *self._calling.values()]
        for lane in lanes:
            lane.close()

    # -- what a call brought ------------------------------------------------------------------------------------------

    def lease(self, token: str, milliseconds: int, since: float) -> Lease:
        """A lease that a call brought which was sent at ``since``: counted from there, it ends no later than theirs."""
        clock = self.entity.connection.clock
        now = clock.now()
        until = since + milliseconds / 1000 - _MARGIN
        return Lease(token, until, clock.utc() + until - now)

    def renewed(self, jobs: Sequence[RenewJob], result: Renewed, token: str) -> None:
        """Give the messages of a renewal the ends of their leases."""
        moved, lost = set(result.moved), set(result.lost)
        fresh: Lease | None = None
        for job in jobs:
            name = job.lock.name
            if name in lost:
                continue
            lease = self.lease(token if name in moved else job.lock.token, result.lock, job.since)
            before = job.message._lease
            if name in moved:
                fresh = fresh or lease
                job.message._lease = fresh
            elif before is not None:
                before.until, before.until_utc = lease.until, lease.until_utc

    async def tell(self, until: float) -> None:
        """Give the partition the settings that the registry has."""
        partition = self.entity.partition(self.number)
        try:
            request = partition.configure(now=self.entity.connection.clock.told())
            await perform(self.entity.connection.transport, request, timeout=until - anyio.current_time())
        except (SettingsStaleError, MessagingEntityNotFoundError):
            return  # somebody else has told it more, or it is gone: the next call says so

    def catch_up(self) -> None:
        """Have what is due in the partition done, beside everything else: a call said that it was too much for it."""
        if not self._catching_up:
            self._catching_up = True
            self.entity.connection.tasks.start_soon(self._catch_up)

    async def _catch_up(self) -> None:
        try:
            while await self._do_due(anyio.current_time() + _CATCHING_UP):
                pass
        except ServiceBusError as error:
            _log.debug("%s: what is due is left to the next call: %s", self, error)
        finally:
            self._catching_up = False

    async def _do_due(self, deadline: float) -> bool:
        """Do a large share of what is due in the partition. Returns whether more is left."""
        connection = self.entity.connection
        partition = self.entity.partition(self.number)
        return await do_due(connection.transport, partition, connection.clock.told(), deadline)

    async def read(self, letter: str, make: Callable[[Partition, Turn], Request[Shown]], deadline: float) -> Shown:
        """Read the partition as it is once all that is due has happened."""
        return await read_after_due(self, lambda: self.call(letter, make, deadline), lambda: self._do_due(deadline))

    # -- whether it can be reached -------------------------------------------------------------------------------------

    def reached(self) -> None:
        """It answered."""
        self.down_until = self._pause = 0.0

    def missed(self) -> None:
        """It could not be reached: what may go elsewhere does for a while."""
        self._pause = min(max(_FIRST_PAUSE, self._pause * 2), _LONGEST_PAUSE)
        self.down_until = anyio.current_time() + self._pause
        _log.info("%s cannot be reached; what may go elsewhere does for %.0f s", self, self._pause)

    def probe(self) -> None:
        """Find out beside everything else whether it can be reached again."""
        self.down_until = anyio.current_time() + self._pause + _PROBING
        self.entity.connection.tasks.start_soon(self._probe)

    async def _probe(self) -> None:
        connection = self.entity.connection
        try:
            turn = Turn("", 0, connection.clock.told())
            await perform(connection.transport, self.entity.partition(self.number).count(turn), timeout=_PROBING)
        except ServiceBusError as error:
            if error.outcome is Outcome.REFUSED:
                self.reached()
            else:
                self.missed()
        else:
            _log.info("%s can be reached again", self)
            self.reached()
