"""Accept a session: one with a given name, or the next free one in any partition.

A caller that stops waiting leaves nothing locked or registered. If a session arrives for it at that moment or later,
the session is released. The partitions in which the caller was registered as a waiter remove it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from sbredis.client import CallJob, LiveWatch, may_recover
from sbredis.engine import Accepted, CallId, Partition, Request, SessionLock, new_token
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError, SessionCannotBeLockedError
from sbredis.receiving._held_session import HeldSession, lane_for
from sbredis.receiving._searching import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.client import Entity, PartitionClient
    from sbredis.receiving._fetching import Fetch

__all__ = ["NoSessionError", "accept_named", "accept_next"]

_log = logging.getLogger("sbredis.client")
_CHECKING = 1.0
"""The seconds between checks whether the search still has a connection over which a partition can wake it."""
_FORGETTING = 2.0
_CALLING = 60.0
_GIVING_BACK = 10.0


class NoSessionError(OperationTimeoutError):
    """No session became free in time."""

    is_failure: ClassVar[bool] = False
    """Finding no session is not a failure: spans, metrics and the log treat it like a receive without messages."""


class _Acceptance:
    """One call that accepts a session. If no caller waits any more when the session comes, the session is released."""

    def __init__(
        self, partition_client: PartitionClient, name: str | None, deadline: float, waiter: bytes = b""
    ) -> None:
        self._partition_client = partition_client
        self._token = new_token()

        def make(partition: Partition, call_id: CallId) -> Request[Accepted]:
            return partition.accept_session(call_id, self._token, name, waiter=waiter)

        self._job = CallJob(make, deadline, self.give_back)
        lane = partition_client.calling(lane_for("y", self._token if name is None else name))
        self.future: asyncio.Future[Accepted] = lane.submit(self._job)
        """The answer to the call, when it has come."""

    def session(self, found: Accepted) -> HeldSession:
        """Return the session that the answer brought."""
        partition_client = self._partition_client
        lease = partition_client.lease(self._token, found.lock, self._job.since, found.fence)
        lease.session = found.session
        return HeldSession(partition_client, found.session, lease)

    def give_back(self, found: Accepted) -> None:
        """Release the session that the answer brought, if there is one."""
        if found.outcome == "taken":
            self._partition_client.connection.see_off(self.release(found.session))

    async def release(self, name: str) -> None:
        """Release the session of this name, if the call has locked it or may have."""
        await _give_back(self._partition_client, SessionLock(name, self._token))

    async def discard(self) -> None:
        """Wait for the answer, and release the session that the answer brings."""
        await asyncio.wait((self.future,))
        if not self.future.cancelled() and self.future.exception() is None:
            self.give_back(self.future.result())


async def _give_back(partition_client: PartitionClient, lock: SessionLock) -> None:
    def make(partition: Partition, call_id: CallId) -> Request[int]:
        return partition.release_session(call_id, lock)

    with suppress(ServiceBusError):  # if the call fails, the lock ends after its duration
        await partition_client.call(lane_for("v", lock.name), make, asyncio.get_running_loop().time() + _GIVING_BACK)


async def accept_named(entity: Entity, name: str, deadline: float) -> HeldSession:
    """Lock a session, with or without messages. Raises :class:`SessionCannotBeLockedError` if it is locked already."""
    partition_client = entity.of_session(name)
    while True:
        acceptance = _Acceptance(partition_client, name, deadline)
        try:
            found = await asyncio.shield(acceptance.future)
        except asyncio.CancelledError:
            entity.connection.see_off(acceptance.discard())
            raise
        except ServiceBusError as failed:
            if failed.outcome is Outcome.UNKNOWN:  # the call may still lock the session, for no caller
                entity.connection.see_off(acceptance.release(name))
            raise
        if found.outcome == "taken":
            session = acceptance.session(found)
            if session.locked:
                return session
            await acceptance.release(name)  # the answer took longer than the lock, which may hold in the partition
        if found.outcome == "locked":
            error = SessionCannotBeLockedError(
                f"The requested session {name!r} cannot be accepted: another receiver has its lock. The session is "
                "free when that receiver is closed or its lock ends. Try again then.",
                outcome=Outcome.REFUSED,
            )
            error.entity = entity.name
            raise error


async def accept_next(entity: Entity, seconds: float, deadline: float) -> HeldSession:
    """Lock the next free session, as soon as there is one.

    Raises :class:`OperationTimeoutError` if no session became free within ``seconds``. With 0, the search asks each
    partition once, and does not wait for a session to become free. After ``seconds``, it still waits for the answers to
    the calls under way, but only until the deadline.
    """
    search = _SessionSearch(entity, waits=seconds != 0)
    try:
        return await search.run(seconds, deadline)
    except TimeoutError:
        when = f"became free within {seconds:g} s" if seconds else "is free"
        error = search.trouble() or NoSessionError(f"No session of {entity.name!r} {when}.", outcome=Outcome.REFUSED)
        error.entity = entity.name
        raise error from None
    finally:
        search.end()


class _SessionSearch:
    """A search for a free session in all partitions of an entity at the same time.

    :mod:`sbredis.receiving._searching` decides which calls to make. Every event (an answer, a wake-up, a timer) leads
    to a call of :meth:`pump`.
    """

    def __init__(self, entity: Entity, *, waits: bool) -> None:
        self.identity = secrets.token_hex(5)
        """The name under which partitions register the search."""
        self._entity = entity
        self._waits = waits
        """Whether to wait for a session to become free. If not, the search accepts only a session that is free now."""
        self._loop = asyncio.get_running_loop()
        self._won: asyncio.Future[HeldSession] = self._loop.create_future()
        self._handed_over = False
        self._begin(straight=True)
        self._timer: asyncio.TimerHandle | None = None
        self._ended_moving: Callable[[], None] | None = None

    async def run(self, seconds: float, deadline: float) -> HeldSession:
        """Return the accepted session. Raise :class:`TimeoutError` if no session was free within ``seconds``."""
        self._entity.watchers.add(self._entity_changed)
        self._ended_moving = self._entity.connection.clock.when_moved(self._look_again)
        self.pump()
        await asyncio.wait((self._won,), timeout=seconds or self._entity.connection.timings.answering)
        if seconds:
            await self._wait_for_answers(deadline)
        if not self._won.done():
            raise TimeoutError
        session = self._won.result()
        self._handed_over = True
        return session

    async def _wait_for_answers(self, deadline: float) -> None:
        """Wait for the answers to the calls under way: they may still bring a session."""
        self._waits = False
        self.pump()
        until = min(deadline, self._loop.time() + self._entity.connection.timings.answering)
        while not self._won.done() and any(watcher.live.may_answer for watcher in self._watchers):
            left = until - self._loop.time()
            if left <= 0:
                return
            await asyncio.wait((self._won,), timeout=min(left, _CHECKING))

    def _begin(self, *, straight: bool) -> None:
        self._numbers = self._entity.numbers
        self._watchers = [_SessionWatcher(self, self._entity.partition_client(number)) for number in self._numbers]
        watches = [watcher.live.watch for watcher in self._watchers]
        self._search = Search(watches, secrets.randbelow(len(watches)), straight=straight)

    def pump(self) -> None:
        """Make the calls that are needed now."""
        if self._won.done():
            return
        for call in self._search.calls():
            self._watchers[call.place].make(call)
        if self._waits:
            for place in self._search.listens():
                self._watchers[place].live.listen()
        elif self._search.found_nothing:
            self._won.set_exception(TimeoutError())
            return
        self._set_timer()

    def won(self, session: HeldSession) -> None:
        """End the search with a session that was accepted."""
        if self._won.done():
            session.give_back()
        else:
            self._won.set_result(session)

    def failed(self, watcher: _SessionWatcher, error: ServiceBusError) -> None:
        """Record that a call failed. If another attempt cannot succeed, end the search with the error."""
        if may_recover(error):
            _log.info("%s: %s", watcher.partition_client, error)
        elif not self._won.done():
            self._won.set_exception(error.twin())
        self.pump()

    def trouble(self) -> ServiceBusError | None:
        """Return an error if every partition has failed or is late. Otherwise return ``None``."""
        if not all(watcher.live.troubled for watcher in self._watchers):
            return None
        errors = (watcher.error for watcher in self._watchers if watcher.error is not None)
        error = next(errors, None)
        if error is not None:
            return error.twin()
        return OperationTimeoutError(f"{self._entity.name!r} has not answered in time.", outcome=Outcome.UNKNOWN)

    # -- events --------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        times = [watcher.live.watch.look_at for watcher in self._watchers]
        when = min([self._loop.time() + _CHECKING, *(time for time in times if time is not None)])
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        now = self._loop.time()
        for watcher in self._watchers:
            watcher.live.on_time(now)
        self.pump()

    def _look_again(self) -> None:
        for watcher in self._watchers:
            watcher.live.watch.missed()
        self.pump()

    def _entity_changed(self) -> None:
        """Start again if the queue is in other partitions now, for example after it was deleted and created again."""
        if self._numbers != self._entity.numbers:
            self._leave()
            self._begin(straight=False)
        self._loop.call_soon(self._look_again)  # called later, so that the entity's other watchers run first

    def end(self) -> None:
        """End the search. Release a session that was accepted but not returned to the caller."""
        self._entity.watchers.discard(self._entity_changed)
        if self._ended_moving is not None:
            self._ended_moving()
        if self._timer is not None:
            self._timer.cancel()
        if not self._won.done():
            self._won.cancel()
        elif not self._handed_over and not self._won.cancelled() and self._won.exception() is None:
            self._won.result().give_back()
        self._leave()

    def _leave(self) -> None:
        for watcher in self._watchers:
            watcher.end()


class _SessionWatcher:
    """A partition that is watched during a search for a session."""

    def __init__(self, search: _SessionSearch, partition_client: PartitionClient) -> None:
        self.partition_client = partition_client
        self.live = LiveWatch(partition_client, search.identity, changed=search.pump, failed=self._failed)
        self.error: ServiceBusError | None = None
        """The error of the last call, if it failed."""
        self._search = search
        self._lane = f"k{search.identity}"
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Accepted] | None = None
        """The future answer to the call under way."""

    def make(self, fetch: Fetch) -> None:
        """Make a call that the search has decided on."""
        self.live.watch.ask(self._loop.time(), fetch.wanted)
        registered = bool(self.live.waiter)
        if fetch.wanted:
            acceptance = _Acceptance(self.partition_client, None, self._loop.time() + _CALLING, waiter=self.live.waiter)
            self._answer = acceptance.future
        else:
            acceptance = None
            job = CallJob(self._looking(1), self._loop.time() + _CALLING)
            self._answer = self.partition_client.calling(self._lane).submit(job)
        self._answer.add_done_callback(lambda done: self._answered(done, acceptance, registered=registered))

    def _looking(self, waiting_for: int) -> Callable[[Partition, CallId], Request[Accepted]]:
        waiter = self.live.waiter

        def make(partition: Partition, call_id: CallId) -> Request[Accepted]:
            return partition.look_for_session(
                waiter=waiter, waiting_for=waiting_for, call_id=CallId("", 0, call_id.now)
            )

        return make

    def _answered(self, done: asyncio.Future[Accepted], acceptance: _Acceptance | None, *, registered: bool) -> None:
        self._answer = None
        if done.cancelled():
            return  # the search has ended: if the call still brings a session, the session is released
        if (error := done.exception()) is not None:
            self.live.failed(error)
            if isinstance(error, ServiceBusError) and not self.live.watch.left:
                self._failed(error)
            return
        self.error, found = None, done.result()
        if found.outcome in {"found", "taken"}:
            self.live.watch.found()
        elif found.more:
            self.live.watch.busy_with_due(registered=registered)
        else:
            self.live.nothing(found.due, registered=registered)
        if acceptance is not None and found.outcome == "taken":
            session = acceptance.session(found)
            if session.locked:
                self._search.won(session)
            else:  # the answer took longer than the lock, which may hold in the partition
                acceptance.give_back(found)
        self._search.pump()

    def _failed(self, error: ServiceBusError) -> None:
        self.error = error
        self._search.failed(self, error)

    def end(self) -> None:
        """Stop watching the partition. If the partition has registered the search, tell it to remove the search.

        The partition then wakes the next waiter.
        """
        if self._answer is not None or self.live.waiter or self.live.opening:
            self.partition_client.connection.see_off(self._leave())
        else:
            self.live.leave()
            self.partition_client.dismiss(self._lane)

    async def _leave(self) -> None:
        await self.live.stop_opening()
        if (answer := self._answer) is not None:
            await asyncio.wait((answer,), timeout=_FORGETTING)
            answer.cancel()
        await self.live.unregister(self._stop_waiting)
        self.partition_client.dismiss(self._lane)

    async def _stop_waiting(self) -> None:
        deadline = self._loop.time() + _FORGETTING
        await self.partition_client.call(self._lane, self._looking(0), deadline)
