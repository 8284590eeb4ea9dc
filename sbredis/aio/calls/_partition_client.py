"""The client for one partition. It has a lane for each kind of operation. All users of the partition share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sbredis.aio.calls._catching_up import Shown, read_after_due
from sbredis.aio.calls._lane import Lane
from sbredis.aio.calls._lane_kinds import (
    CallJob,
    CallLane,
    RenewLane,
    SettleJob,
    SettleLane,
    SettleMethod,
    TransactionLane,
)
from sbredis.aio.calls._partition_link import PartitionLink
from sbredis.aio.calls._send_lane import SendLane
from sbredis.engine import CallId, Lock, Partition, Request, Settled

if TYPE_CHECKING:
    from sbredis.aio.calls._entity_state import EntityState
    from sbredis.model import Hold

__all__ = ["SETTLEMENTS", "PartitionClient"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_GIVING_BACK = 10.0


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


class PartitionClient(PartitionLink):
    """One partition of one entity, shared by all its users in this client."""

    def __init__(self, entity: EntityState, number: int, elsewhere: Callable[[], PartitionClient]) -> None:
        """``elsewhere`` returns the client of the next partition for messages that may go to any partition."""
        super().__init__(entity, number)
        self.sending = SendLane(self, lambda: elsewhere().sending)
        self.renewing = RenewLane(self)
        self.transacting = TransactionLane(self)
        self._settling: dict[str, SettleLane] = {}
        self._calling: dict[str, CallLane] = {}
        self._spare: list[str] = []
        self._borrowed = 0
        self._giving_back: set[asyncio.Future[None]] = set()

    def settling(self, kind: str) -> SettleLane:
        """Return the lane for settlements of a kind: complete, abandon, release, interrupt, defer or dead_letter."""
        lane = self._settling.get(kind)
        if lane is None:
            letter, method = SETTLEMENTS[kind]
            lane = self._settling[kind] = SettleLane(self, letter, method)
        return lane

    def calling(self, letter: str) -> CallLane:
        """Return the lane with this letter, for calls that are not shared."""
        lane = self._calling.get(letter)
        if lane is None:
            lane = self._calling[letter] = CallLane(self, letter)
        return lane

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
        """Release the messages that are, or may be, locked under this token, without an increase of delivery counts."""
        until = self._loop.time() + _GIVING_BACK
        given = [self.settling("release").submit(SettleJob(Lock(token, name), until, None)) for name in names]
        for future in given:
            self._giving_back.add(future)
            future.add_done_callback(self._gave_back)
        return given

    def _gave_back(self, future: asyncio.Future[None]) -> None:
        self._giving_back.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.debug("%s: a message could not be released, and stays locked until its lock lapses: %s", self, error)

    async def given_back(self) -> None:
        """Wait until all releases of :meth:`give_back` have ended."""
        while self._giving_back:
            await asyncio.wait(list(self._giving_back))

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
        lane = self._calling.pop(letter, None)
        if lane is not None:
            lane.retire()

    def rest(self) -> None:
        """End the tasks of all lanes, those under way after their calls."""
        for lane in self._lanes():
            lane.rest()

    def close(self) -> None:
        """Fail the jobs that wait in all lanes."""
        for lane in self._lanes():
            lane.close()

    def _lanes(self) -> list[Lane[Any, Any]]:
        return [
            self.sending,
            self.renewing,
            self.transacting,
            *self._settling.values(),
            *self._calling.values(),
        ]
