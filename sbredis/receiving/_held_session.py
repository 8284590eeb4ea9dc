"""A session that this client has locked: receive from it, renew its lock, and end it.

Applications use it as a :class:`~sbredis.aio.ServiceBusSession`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from zlib import crc32

from sbredis._tasks import wait_until
from sbredis.client import CallJob
from sbredis.engine import CallId, Partition, Request, SessionLock
from sbredis.exceptions import MessageLockLostError, Outcome, ServiceBusError, SessionLockLostError
from sbredis.model import Hold, MessageLease

if TYPE_CHECKING:
    from sbredis.client import PartitionClient
    from sbredis.engine import Delivery
    from sbredis.receiving._credit import HandedGift

__all__ = ["HeldSession", "give_back_session", "is_failed_delivery", "lane_for", "state_bytes"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_LANES = 8
_RELEASING = 5.0
_LOST = (MessageLockLostError, SessionLockLostError)


def lane_for(letter: str, session: str) -> str:
    """Return a lane for calls about a session. All sessions share a few lanes, because a partition remembers lanes."""
    return f"{letter}{crc32(session.encode()) % _LANES}"


def state_bytes(state: str | bytes | bytearray | None) -> bytes | None:
    """Return the stored form of a session's state."""
    if state is not None and not isinstance(state, (str, bytes, bytearray)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"the state of a session must be str, bytes or None, not {type(state).__name__}")
    return state.encode() if isinstance(state, str) else None if state is None else bytes(state)


def is_failed_delivery(error: BaseException | None) -> bool:
    """Return whether a handler that ended with this error has failed to handle its unsettled messages.

    A cancellation, an interruption, the end of the program and a lost lock are not caused by a message, so they do not
    count. A group of errors counts if one of its errors counts.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(is_failed_delivery, group.exceptions))
    return isinstance(error, Exception) and not isinstance(error, _LOST)


async def give_back_session(partition_client: PartitionClient, lock: SessionLock) -> None:
    """Release a session that nobody has accepted. As long as its lock holds, this is tried again and again."""

    def release(until: float) -> asyncio.Future[Any]:
        job = CallJob(lambda partition, call_id: partition.release_session(call_id, lock), until)
        return partition_client.calling(lane_for("v", lock.name)).submit(job)

    with suppress(ServiceBusError):
        await partition_client.giving_back.give(release)


class HeldSession:
    """A session that this client has locked."""

    def __init__(
        self,
        partition_client: PartitionClient,
        name: str,
        lease: MessageLease,
        gift: HandedGift[Delivery] | None = None,
        grants_made: int = 0,
    ) -> None:
        self.partition_client = partition_client
        self.entity = partition_client.entity
        self.name = name
        self.lease = lease
        """The lock of the session, which all of its messages share."""
        self.prefix = "" if gift is None else gift.prefix
        """The prefix of the gift that has brought the session, or its first messages; empty if there is none."""
        self.first = gift
        """This gift, until its messages are taken."""
        self.grants_made = grants_made
        """The number of the grant that has brought the first messages; 0 if they came with a free session."""
        self.settled = False
        """Whether the session was released."""
        self.watchers: tuple[Callable[[Any], None], ...] = ()
        """Functions that are called once, with this object, when the session is released."""
        self.recalled: Callable[[float], AbstractAsyncContextManager[Any]] = nullcontext
        """Takes a deadline. Returns a context in which the receiver neither fetches nor keeps messages."""
        self._connection = partition_client.connection
        self._given_back = False
        """Whether the session was released while its lock held."""
        self._waiting: tuple[asyncio.Event, ...] = ()
        """One event for each caller that waits for the end of the lock. It is set when the lock has changed."""

    @property
    def lock(self) -> SessionLock:
        """The name and the token that a call under the lock needs."""
        return SessionLock(self.name, self.lease.token)

    @property
    def locked(self) -> bool:
        """Whether its lock holds, as far as this client knows."""
        return not self.settled and not self.lock_expired(self._connection.clock.now())

    def lock_expired(self, now: float) -> bool:
        """Return whether its lock has ended according to the clock of this process."""
        return self.lease.ended(now)

    def check(self) -> None:
        """Raise if the session was released, the client is closed, or the lock has ended."""
        if self.settled:
            raise ValueError("The session was given back. Accept it again.")
        self._connection.check_open()
        if self.lock_expired(self._connection.clock.now()):
            raise self.lock_lost()

    def lock_lost(self) -> SessionLockLostError:
        """Return the error for a call that was not made because the lock has ended."""
        error = SessionLockLostError(
            f"The lock on the session {self.name!r} has ended. Accept the session again, and renew its lock if "
            "handling takes longer than the lock.",
            outcome=Outcome.NEVER_SENT,
        )
        error.entity = self.entity.name
        return error

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def read_state(self, deadline: float) -> bytes | None:
        """Return the state of the session."""
        return await self._call(
            "q", lambda partition, call_id: partition.get_state(self.lock, CallId("", 0, call_id.now)), deadline
        )

    async def write_state(self, kept: bytes | None, deadline: float) -> None:
        """Set the state of the session."""
        await self._call("t", lambda partition, call_id: partition.set_state(call_id, self.lock, kept), deadline)

    async def bury(self, changes: bytes, deadline: float) -> int:
        """Move all messages of the session to the dead-letter queue with these changes. Return their number."""
        count = 0
        while True:
            step = await self._call(
                "u", lambda partition, call_id: partition.bury_session(call_id, self.lock, changes), deadline
            )
            count += step.count
            if step.onwards is None:
                return count

    async def renew(self, deadline: float) -> None:
        """Lock the session for the full duration from now on."""
        lease = self.lease
        job = CallJob(lambda partition, call_id: partition.renew_session(call_id, self.lock), deadline)
        renewed = self.partition_client.lease(lease.token, await self._carry_out("n", job), job.since)
        lease.until, lease.until_utc = renewed.until, renewed.until_utc

    async def unlock(self, deadline: float) -> None:
        """Release the lock at the partition."""
        await self._call("v", lambda partition, call_id: partition.release_session(call_id, self.lock), deadline)

    async def _call(self, letter: str, make: Callable[[Partition, CallId], Request[T]], deadline: float) -> T:
        return await self._carry_out(letter, CallJob(make, deadline))

    async def _carry_out(self, letter: str, job: CallJob[T]) -> T:
        try:
            return await self.partition_client.carry_out(lane_for(letter, self.name), job)
        except ServiceBusError as error:
            error.entity = error.entity or self.entity.name
            if isinstance(error, SessionLockLostError):
                self.lose()
            raise

    # -- the end -------------------------------------------------------------------------------------------------------

    async def abandon(self, holds: Sequence[Hold]) -> None:
        """Count a failed delivery of each message. If a call fails, the partition counts it when the lock ends."""
        if not self.locked:
            return
        lane, loop = self.partition_client.settling("abandon"), asyncio.get_running_loop()
        deadline = loop.time() + _RELEASING
        counted = [lane.settle(hold, loop, deadline) for hold in holds if hold.lease is not None and not hold.settled]
        for error in await asyncio.gather(*counted, return_exceptions=True):
            if error is not None:
                _log.debug("%s: a failed delivery could not be counted: %s", self.entity.name, error)

    async def release(self, *, unlock: bool = True) -> None:
        """Release the session with all its locked messages. If the call fails, go on in the background as long as the
        lock holds.

        Without ``unlock``, this client only forgets the session, whose lock ends after its duration.
        """
        if self.settled:
            return
        self.released()
        if unlock and not self.lock_expired(self._connection.clock.now()):
            try:
                await self.unlock(asyncio.get_running_loop().time() + _RELEASING)
            except ServiceBusError as error:
                _log.debug("%s: a session is not released yet: %s", self.entity.name, error)
                if not isinstance(error, _LOST):
                    later = partial(give_back_session, self.partition_client, self.lock)
                    self._connection.attempt(f"{self.entity.name}: the release of a session", later)

    def released(self) -> None:
        """Record that the session was released, or is being released."""
        self._given_back = self.locked
        self.settled = True
        self._wake_waiting()
        self.let_go()

    def give_back(self) -> None:
        """Release the session in the background."""
        self._connection.see_off(self.release())

    def let_go(self) -> None:
        """Tell all watchers that the lock needs no more watching."""
        watchers, self.watchers = self.watchers, ()
        for watcher in watchers:
            watcher(self)

    def lose(self) -> None:
        """Record that a call has reported the loss of the lock."""
        self.lease.until = min(self.lease.until, self._connection.clock.now())
        self._wake_waiting()

    async def wait_lost(self, seconds: float | None) -> bool:
        """Wait until the lock is lost. Return ``False`` if the session is released or the time is over before that."""
        loop, clock = asyncio.get_running_loop(), self._connection.clock
        ends = math.inf if seconds is None else loop.time() + seconds
        changed = asyncio.Event()
        self._waiting += (changed,)
        unwatch = clock.when_moved(changed.set)
        try:
            while self.locked:
                if loop.time() >= ends:
                    return False
                changed.clear()
                await wait_until(changed, min(loop.time() + self.lease.until - clock.now(), ends))
            return not self._given_back
        finally:
            unwatch()
            self._waiting = tuple([each for each in self._waiting if each is not changed])

    def _wake_waiting(self) -> None:
        for changed in self._waiting:
            changed.set()
