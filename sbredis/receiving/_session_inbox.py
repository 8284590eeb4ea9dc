"""The inbox of a receiver of a session: it watches the partition of the session, and waits to be woken there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sbredis.exceptions import ServiceBusError, SessionLockLostError
from sbredis.model import MessageLease, ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from sbredis.receiving._fetching import fetches, keep_for, passing_looks
from sbredis.receiving._inbox import Inbox, InboxOptions, InboxSource
from sbredis.receiving._watcher import PartitionWatcher

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.receiving._held_session import HeldSession

__all__ = ["SessionInbox"]


class SessionInbox(Inbox[PartitionWatcher, ServiceBusReceivedMessage]):
    """The messages of a session that the receiver holds. All of them are in one partition."""

    def __init__(self, entity: Entity, identity: str, options: InboxOptions, session: HeldSession) -> None:
        self.session = session
        """The session that the messages belong to."""
        self._recalls = 0
        """The number of open contexts of :meth:`recalled`. If there is one, the inbox fetches nothing."""
        self._returning: set[asyncio.Future[None]] = set()
        """The releases of messages that are under way. They must end before the inbox fetches again."""
        super().__init__(entity, identity, options)

    def _new_sources(self) -> list[PartitionWatcher]:
        link = self.entity.partition_client(self.session.partition_client.number)
        return [PartitionWatcher(self, link, self.identity)]

    def _make_calls(self) -> None:
        if self._recalls or self._returning:
            return  # `pump` is called again when the recall or the releases end
        (watcher,) = self._sources
        watch = watcher.watch
        if watch.may_ask:
            # If no more messages are needed even if the call under way brings none, only look.
            missing = self._missing()
            any_will_do = not self.stock.most and not any(caller.gathers for caller in self._callers)
            calls = fetches([watch], 0, missing, any_will_do=any_will_do)[0] if missing else passing_looks([watch])
            for call in calls:
                watcher.make(call)
        self._coming = 0 if watch.late else watch.wanted

    def _missing(self) -> int:
        """Return how many messages to ask for now. No call is under way."""
        stock = self.stock
        stock.lock = self.entity.record.settings.lock_duration / 1000
        kept, stocks = len(self.buffer), stock.most > 0 and not self._session_ends_soon
        return stock.missing(kept, 0, self.demand, self._loop.time(), stocks=stocks)

    @property
    def _session_ends_soon(self) -> bool:
        """Whether the lock on the session ends too soon to fetch messages ahead now."""
        return self.mode is ServiceBusReceiveMode.PEEK_LOCK and self._kept_for(self.session.lease.until) <= 0

    def _kept_for(self, ends: float) -> float:
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=True)

    def received(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Distribute the messages that a call has brought."""
        self._trouble = None
        if self._returning:  # earlier messages of the session are being released, and must be received first
            self.give_back(messages)
        else:
            self.take_back(messages)
        self.pump()

    def failed(self, source: InboxSource, error: ServiceBusError) -> None:
        """Record that a call failed. The loss of the lock ends the session."""
        if isinstance(error, SessionLockLostError):
            self.session.lose()
        super().failed(source, error)

    # -- messages that return to the session ---------------------------------------------------------------------------

    def _lease_of(self, item: ServiceBusReceivedMessage) -> MessageLease | None:
        return hold_of(item).lease

    def _release(self, items: Sequence[ServiceBusReceivedMessage]) -> None:
        for hold in map(hold_of, items):
            release = self.entity.partition_client_of(hold).give_back(hold)
            if release is not None:
                self._returning.add(release)
                release.add_done_callback(self._returned)

    def _returned(self, future: asyncio.Future[None]) -> None:
        """Record the end of a release. When all releases have ended, fetch messages of the session again."""
        self._returning.discard(future)
        if not self._returning:
            self.pump()

    @asynccontextmanager
    async def recalled(self, deadline: float) -> AsyncGenerator[None]:
        """Release all messages in the buffer. Fetch and keep no messages as long as this context is open.

        It is used before an earlier message of the session returns to the queue, or all its messages leave the queue.
        """
        self._recalls += 1
        try:
            for watcher in self._sources:
                await watcher.answered(deadline)
            self.give_back(self.buffer.empty())
            if self._returning:
                await asyncio.wait(self._returning, timeout=max(0.0, deadline - self._loop.time()))
            yield
        finally:
            self._recalls -= 1
            self.pump()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _next_looks(self) -> list[float]:
        wanted = self._wants
        watches = [watcher.watch for watcher in self._sources]
        return [watch.look_at for watch in watches if watch.look_at is not None and (wanted or watch.must_look)]

    def _on_look(self, now: float) -> None:
        for watcher in self._sources:
            watcher.on_time(now)

    def _clock_moved(self) -> None:
        for watcher in self._sources:
            watcher.watch.moved()
        self._give_back_late()
        self.pump()
