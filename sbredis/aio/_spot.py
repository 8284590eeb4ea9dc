# pyright: reportPrivateUsage=false
"""One partition as a receiver sees it: whether it may have something, what it was asked, and when to look again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sbredis.aio._lanes import CallJob
from sbredis.aio._waking import REGISTERED, listen
from sbredis.engine import Looked, Mode, Partition, Received, Request, Turn, new_token
from sbredis.exceptions import MessagingEntityDisabledError, ServiceBusError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered

if TYPE_CHECKING:
    from sbredis.aio._inbox import Inbox
    from sbredis.aio._waking import Listening

__all__ = ["Spot", "passing"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_LATE = 1.0
"""An answer that has not come after so many seconds is not waited for before the others are asked."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_PATIENCE = 60.0
_CLOSING, _FORGETTING = 10.0, 2.0
_MOST_WAITING = 100


class Spot:
    """A partition to receive from."""

    def __init__(self, inbox: Inbox, number: int) -> None:
        self.inbox = inbox
        self.number = number
        self.desk = inbox.entity.desk(number)
        self.known = False
        """It has something, as far as is known."""
        self.calls = 0
        """How many calls were made to it, the one under way included."""
        self.asked = 0
        """How many messages it was asked for by a call that is under way."""
        self.late = False
        """The answer to that is late."""
        self.look_at: float | None = None
        """When to look at it again, or to find its answer late."""
        self.relied_on = False
        """It was told that something will be due before long, of which others who wait there may not know: it is looked
        at then, whether anybody wants something or not, so that they hear of it.
        """
        self._lively = True
        self._roused = False
        self._registered = False
        self._busy = False
        self._left = False
        self._pause = 0.0
        self._refused = False
        self._lane: str | None = None
        self._job: CallJob[Received] | CallJob[Looked] | None = None
        self._subscription: Listening | None = None
        self._listening: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether it may have something, and is not being asked."""
        return self._lively and not self._busy

    @property
    def awaits(self) -> bool:
        """Whether it has woken us and waits for us to come."""
        return self._roused and self._lively and not self._busy

    @property
    def troubled(self) -> bool:
        """Whether the last calls to it failed, or the one under way has trouble."""
        return self._pause > 0 or self.late or (self._busy and not self._connected)

    @property
    def _connected(self) -> bool:
        entity = self.inbox.entity
        if self.number not in entity.numbers:
            return False
        return entity.connection.transport.server_of(entity.partition(self.number).keys[0]) is not None

    def rouse(self, *, known: bool) -> None:
        """It has something, or may have: it is to be asked."""
        self._lively = self._roused = True
        self.known = known
        self._pause = 0.0

    def enliven(self) -> None:
        """Somebody wants to know what there is now: ask it, whatever is known of it."""
        self._lively = True

    def try_anew(self) -> None:
        """Somebody comes who has not been told yet that it refuses everything: find out whether it still does."""
        if self._refused:
            self._refused, self._lively = False, True

    # -- asking --------------------------------------------------------------------------------------------------------

    @property
    def _waiter(self) -> bytes:
        return self._channel() if self._subscription is not None else b""

    def _channel(self) -> bytes:
        return self.desk.channel(self.inbox.identity)

    def ask(self, wanted: int) -> None:
        """Receive up to so many messages."""
        inbox = self.inbox
        session = inbox.session
        token = new_token() if session is None else session._lease.token
        side, waiter = inbox.side, self._waiter
        mode: Mode = "lock" if inbox.mode is ServiceBusReceiveMode.PEEK_LOCK else "delete"
        waiting_for = min(wanted, _MOST_WAITING)

        def make(partition: Partition, turn: Turn) -> Request[Received]:
            return partition.receive(
                turn,
                token,
                wanted,
                side=side,
                mode=mode,
                waiter=waiter,
                waiting_for=waiting_for,
                session=None if session is None else session.session_id,
            )

        def orphaned(result: Received) -> None:
            inbox.received(self._delivered(result, token, job.since))

        self._begin(wanted)
        job = CallJob(make, self._loop.time() + _PATIENCE, orphaned)
        self._job = job
        if self._lane is None:
            self._lane = self.desk.borrow()
        future = self.desk.calling(self._lane).submit(job)
        future.add_done_callback(lambda done: self._received(done, token, job.since, waiter))

    def look(self, waiting_for: int) -> None:
        """Find out whether there is something, without receiving it; to wait for so many, or, with 0, no longer."""
        make, waiter = self._looking(waiting_for), self._waiter

        self._begin(0)
        job = CallJob(make, self._loop.time() + _PATIENCE)
        self._job = job
        # In a lane of its own: it is not counted there, and the receive after it would seem to follow one that is lost.
        future = self.desk.calling(f"k{self.inbox.identity}").submit(job)
        future.add_done_callback(lambda done: self._looked(done, waiter if waiting_for else None))

    def _looking(self, waiting_for: int) -> Callable[[Partition, Turn], Request[Looked]]:
        side, waiter, session = self.inbox.side, self._waiter, self.inbox.session
        lock = None if session is None else session._lock

        def make(partition: Partition, turn: Turn) -> Request[Looked]:
            return partition.look(
                side=side,
                waiter=waiter,
                waiting_for=min(waiting_for, _MOST_WAITING),
                turn=Turn("", 0, turn.now),
                session=lock,
            )

        return make

    def _begin(self, wanted: int) -> None:
        self._busy = True
        self.calls += 1
        self._roused = self.late = self.relied_on = False
        self.asked = wanted
        self.look_at = self._loop.time() + _LATE

    def _received(self, done: asyncio.Future[Received], token: str, since: float, waiter: bytes) -> None:
        result = self._result(done)
        if result is None:
            return
        if result.messages:
            self._found()
        else:
            self._registered = bool(waiter)
            if not result.more:
                self._nothing(result.due, waiter)
                self.inbox.answered(self)
        self.inbox.received(self._delivered(result, token, since))

    def _delivered(self, result: Received, token: str, since: float) -> list[ServiceBusReceivedMessage]:
        if not result.messages:
            return []
        inbox = self.inbox
        lease = None
        if inbox.mode is ServiceBusReceiveMode.PEEK_LOCK:
            lease = self.desk.lease(token, result.lock, since) if inbox.session is None else inbox.session._lease
        base, mode, owner = inbox.entity.base(self.number), inbox.mode, inbox.entity
        return [delivered(each, base, mode, lease, owner) for each in result.messages]

    def _looked(self, done: asyncio.Future[Looked], waiter: bytes | None) -> None:
        result = self._result(done)
        if result is None:
            return
        self._registered = False
        if result.found:
            self._found()
        elif waiter is None:
            self.known = False
        else:
            self._registered = bool(waiter)
            if not result.more:
                self._nothing(result.due, waiter)
                self.inbox.answered(self)
        self.inbox.received([])

    def _found(self) -> None:
        self._lively = self.known = True
        self._registered = False
        self.look_at = None

    def _nothing(self, due: int, waiter: bytes) -> None:
        """There is nothing now: it is left alone until it wakes us, or something is due."""
        self.known = False
        if self._roused:
            return  # it has woken us meanwhile: what was answered may be from before that
        if not waiter:
            # It was asked without a registration; now that there is nothing, one is needed by those who wait.
            if not self.inbox.only_wants_what_is_there:
                self._listen()
                self._lively = self._subscription is not None
            return
        self._lively = False
        self.relied_on = 0 < due < REGISTERED * 1000
        self.look_at = self._loop.time() + (due / 1000 if self.relied_on else REGISTERED)

    def _result(self, done: asyncio.Future[T]) -> T | None:
        self._busy = self.late = False
        self.asked = 0
        self._job = None
        if done.cancelled():
            return None  # the receiver was closed
        error = done.exception()
        if error is None:
            self._pause = 0.0
            return done.result()
        self._fail(error)
        return None

    def _fail(self, error: BaseException) -> None:
        self._lively = self.known = self._roused = False
        self._pause = min(max(_FIRST_PAUSE, self._pause * 2), _LONGEST_PAUSE)
        self.look_at = self._loop.time() + self._pause
        if isinstance(error, ServiceBusError):
            self._refused = not passing(error)
            self.inbox.failed(self, error)

    def on_time(self, now: float) -> None:
        """Be looked at again, if it is time; or be found late, or without a connection over which it could wake us."""
        if self.look_at is not None and self.look_at <= now:
            self.look_at = None
            if self._busy:
                self.late = True
            else:
                self._lively = True
                self._roused = self._roused or self.relied_on  # as if it had woken us
                self.relied_on = False
        elif not self._busy and not self._lively and not self._pause and not self._connected:
            self._lively = True

    # -- being woken ---------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._left:
            return
        if self._subscription is None and (self._listening is None or self._listening.done()):
            self._listening = self._loop.create_task(self._subscribe())

    async def _subscribe(self) -> None:
        inbox = self.inbox
        try:
            self._subscription = await listen(
                inbox.entity.connection.transport,
                self._channel(),
                woken=lambda: inbox.woken(self, known=True),
                missed=lambda: inbox.woken(self, known=False),
            )
        except ServiceBusError as error:
            self._fail(error)
            return
        if self._left:
            self._subscription.close()
            self._subscription = None
            return
        self._lively = True  # what came before we were heard was not said: ask again
        inbox.pump()

    # -- the end -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The queue is not here any more."""
        self._left = True
        if self._listening is not None:
            self._listening.cancel()
        if self._job is not None:
            self._job.future.cancel()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._leave_lanes()

    def _leave_lanes(self) -> None:
        if self._lane is not None:
            self.desk.hand_in(self._lane)
            self._lane = None
        self.desk.dismiss(f"k{self.inbox.identity}")

    async def answered(self, deadline: float) -> None:
        """Wait for the answer that is under way."""
        if (job := self._job) is not None:
            await asyncio.wait((job.future,), timeout=max(0.0, deadline - self._loop.time()))

    async def aclose(self) -> None:
        """Wait for the answer that is under way, and be forgotten by the partition."""
        self._left = True
        if self._listening is not None and not self._listening.done():
            self._listening.cancel()
            await asyncio.wait((self._listening,))
        if (job := self._job) is not None:
            await asyncio.wait((job.future,), timeout=_CLOSING if self._connected else 0)
            job.future.cancel()  # if it is not answered: what it brings in the end is given back
        if self._subscription is not None:
            await self._be_forgotten()
            self._subscription.close()
            self._subscription = None
        self._leave_lanes()

    async def _be_forgotten(self) -> None:
        if not self._registered or not self._connected:
            return
        try:
            await self.desk.call(f"k{self.inbox.identity}", self._looking(0), self._loop.time() + _FORGETTING)
        except ServiceBusError as error:
            _log.debug("%s was not told that a receiver has gone: %s", self.desk, error)


def passing(error: ServiceBusError) -> bool:
    """Whether another attempt may mend it."""
    return error.is_transient and not isinstance(error, MessagingEntityDisabledError)
