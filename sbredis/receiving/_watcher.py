"""Watch the partition of a session: make the calls that :mod:`sbredis.receiving._fetching` decides on, and listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sbredis.client import CallJob, LiveWatch
from sbredis.engine import CallId, Looked, Mode, Partition, Received, Request
from sbredis.exceptions import ServiceBusError
from sbredis.model import Reception, ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered
from sbredis.receiving._fetching import Fetch

if TYPE_CHECKING:
    from sbredis.client import PartitionClient
    from sbredis.receiving._session_inbox import SessionInbox

__all__ = ["PartitionWatcher"]

T = TypeVar("T")
_PATIENCE = 60.0
_CLOSING, _FORGETTING = 10.0, 2.0
_MOST_WAITING = 100


class PartitionWatcher:
    """The partition of a session that a receiver receives from."""

    def __init__(self, inbox: SessionInbox, partition_client: PartitionClient, identity: str) -> None:
        self.partition_client = partition_client
        self._live = LiveWatch(partition_client, identity, changed=inbox.pump, failed=self._tell)
        self.watch = self._live.watch
        """The decisions about this partition."""
        self._inbox = inbox
        self._look_lane = f"k{identity}"
        # Looks have a lane of their own, in which calls are not numbered. In the lane of the receives, a
        # look would use up a number, so the next receive would appear to follow a lost receive.
        self._receive_lane: str | None = None
        self._job: CallJob[Received] | CallJob[Looked] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def calls(self) -> int:
        """The number of calls made, including the one under way."""
        return self.watch.calls

    @property
    def under_way(self) -> bool:
        """Whether a call is under way."""
        return self.watch.under_way

    @property
    def late(self) -> bool:
        """Whether the answer to the call under way is late."""
        return self.watch.late

    @property
    def troubled(self) -> bool:
        """Whether the last call failed, the answer is late, or a call is under way without a connection."""
        return self._live.troubled

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows."""
        return self._live.may_answer

    # -- calls ---------------------------------------------------------------------------------------------------------

    def make(self, fetch: Fetch) -> None:
        """Make a call that the inbox has decided on."""
        if fetch.wanted:
            self._receive(fetch.wanted, fetch.waiting_for)
        else:
            self._look(fetch.waiting_for)

    def _receive(self, wanted: int, waiting_for: int) -> None:
        inbox, waiter = self._inbox, self._live.waiter
        session, side = inbox.session, inbox.side
        token = session.lease.token
        mode: Mode = "lock" if inbox.mode is ServiceBusReceiveMode.PEEK_LOCK else "delete"

        def make(partition: Partition, call_id: CallId) -> Request[Received]:
            return partition.receive(
                call_id,
                token,
                wanted,
                side=side,
                mode=mode,
                waiter=waiter,
                waiting_for=waiting_for,
                session=session.name,
            )

        def orphaned(result: Received) -> None:
            inbox.received(self._delivered(result))

        self.watch.ask(self._loop.time(), wanted)
        job = CallJob(make, self._loop.time() + _PATIENCE, orphaned)
        self._job = job
        if self._receive_lane is None:
            self._receive_lane = self.partition_client.borrow_lane()
        _ = self.partition_client.calling(self._receive_lane).submit(job)  # `_when_done` handles the end of the job
        self._when_done(job, lambda: self._received(job))

    def _look(self, waiting_for: int) -> None:
        """Look whether the partition has a message, without receiving it."""
        make, registered = self._looking(waiting_for), bool(self._live.waiter)
        self.watch.ask(self._loop.time())
        job = CallJob(make, self._loop.time() + _PATIENCE)
        self._job = job
        _ = self.partition_client.calling(self._look_lane).submit(job)  # `_when_done` handles the end of the job
        self._when_done(job, lambda: self._looked(job, waits=waiting_for > 0, registered=registered))

    def _when_done(self, job: CallJob[Any], answered: Callable[[], None]) -> None:
        """Call ``answered`` once: as soon as the result comes, or when the job ends without a result."""

        def once() -> None:
            if self._job is job:
                answered()

        job.told = once
        job.future.add_done_callback(lambda _: once())

    def _looking(self, waiting_for: int) -> Callable[[Partition, CallId], Request[Looked]]:
        side, waiter, session = self._inbox.side, self._live.waiter, self._inbox.session

        def make(partition: Partition, call_id: CallId) -> Request[Looked]:
            return partition.look(
                side=side,
                waiter=waiter,
                waiting_for=min(waiting_for, _MOST_WAITING),
                call_id=CallId("", 0, call_id.now),
                session=session.lock,
            )

        return make

    # -- answers -------------------------------------------------------------------------------------------------------

    def _received(self, job: CallJob[Received]) -> None:
        result = self._result(job)
        if result is None:
            return
        if result.messages and not result.waits:
            self.watch.found()
        elif result.more:
            self.watch.busy_with_due(registered=result.waits)
        else:
            self._nothing(result.due, registered=result.waits)
        self._inbox.received(self._delivered(result))

    def _looked(self, job: CallJob[Looked], *, waits: bool, registered: bool) -> None:
        result = self._result(job)
        if result is None:
            return
        if result.found:
            self.watch.found()
        elif not waits:
            self.watch.passed_on()
        elif result.more:
            self.watch.busy_with_due(registered=registered)
        else:
            self._nothing(result.due, registered=registered)
        self._inbox.received([])

    def _nothing(self, due: int, *, registered: bool) -> None:
        self._live.nothing(due, registered=registered)
        if not self._inbox.only_wants_what_is_there:
            self._live.listen()
        self._inbox.answered(self)

    def _delivered(self, result: Received) -> list[ServiceBusReceivedMessage]:
        inbox, partition_client = self._inbox, self.partition_client
        lease = inbox.session.lease if inbox.mode is ServiceBusReceiveMode.PEEK_LOCK else None
        reception = Reception(partition_client.base, inbox.mode, partition_client.entity)
        return [delivered(each, reception, lease) for each in result.messages]

    def _result(self, job: CallJob[T]) -> T | None:
        self._job = None
        done: asyncio.Future[T] = job.future
        if done.cancelled():
            return None  # the receiver was closed
        error = done.exception()
        job.told = None  # the callback refers to the job, so both would keep each other and the messages in memory
        if error is None:
            job.orphaned = None
            return done.result()
        self._live.failed(error)
        self._tell(error)
        return None

    def _tell(self, error: BaseException) -> None:
        if isinstance(error, ServiceBusError) and not self.watch.left:
            self._inbox.failed(self, error)

    # -- events --------------------------------------------------------------------------------------------------------

    def on_time(self, now: float) -> None:
        """Look again if it is time for a look, or if the partition has no connection over which it can wake us."""
        self._live.on_time(now)

    def wanted(self) -> None:
        """Record that a new caller waits for messages."""
        self.watch.new_caller()
        if self.watch.unheard and not self._live.opening:
            self.watch.wanted_now()  # no caller has waited until now

    def ask_now(self) -> None:
        """Ask the partition for what it has now."""
        self.watch.wanted_now()

    def look_again(self) -> None:
        """Ask the partition again: it may have woken the receiver unheard."""
        self.watch.missed()

    def hurry(self) -> None:
        """Let the answer to the call under way be late sooner, because the time of a caller is over."""
        self.watch.hurry()

    # -- the end -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Stop watching, because the queue is in other partitions now."""
        if self._job is not None:
            self._job.future.cancel()
        self._live.leave()
        self._leave_lanes()

    def _leave_lanes(self) -> None:
        if self._receive_lane is not None:
            self.partition_client.return_lane(self._receive_lane)
            self._receive_lane = None
        self.partition_client.dismiss(self._look_lane)

    async def answered(self, deadline: float) -> None:
        """Wait for the answer to the call under way."""
        if (job := self._job) is not None:
            await asyncio.wait((job.future,), timeout=max(0.0, deadline - self._loop.time()))

    async def aclose(self) -> None:
        """Wait for the answer to the call under way, and tell the partition that the receiver has left."""
        await self._live.stop_opening()
        if (job := self._job) is not None:
            await asyncio.wait((job.future,), timeout=_CLOSING if self.partition_client.connected else 0)
            job.future.cancel()  # if an answer comes later, its messages are released
        await self._live.unregister(self._stop_waiting)
        self._leave_lanes()

    async def _stop_waiting(self) -> None:
        await self.partition_client.call(self._look_lane, self._looking(0), self._loop.time() + _FORGETTING)
