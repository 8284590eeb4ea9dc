"""The client's record of a message that it received: the lock on the message, and how the message was received.

An application sees a :class:`~sbredis.ServiceBusReceivedMessage`. The code that receives, settles and renews works with
the message's :class:`Hold`. A message refers to its hold, but a hold never to its message. So both are freed
immediately when the application drops the message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from sbredis.engine import Delivery, Lock, number_of
from sbredis.model._enums import ServiceBusReceiveMode

__all__ = ["Hold", "MessageLease", "Reception"]

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_PEEK_LOCK = ServiceBusReceiveMode.PEEK_LOCK


@dataclass(slots=True, eq=False)
class MessageLease:
    """The lock that the messages of one receive call share."""

    token: str
    """The token under which the partition keeps the lock. A renewal does not change it."""
    until: float
    """The latest end of the lock by the clock of this process, with a margin."""
    until_utc: float
    """The end of the lock in seconds since 1970, for users."""
    fence: int = 0
    """The fence of the lock, or 0 if it is not known. A renewal does not change it."""
    session: str | None = None
    """The session that owns the lock, if the messages belong to a session. Then the messages have no locks of their
    own.
    """
    partition: int = 0
    """The number of the partition in its namespace."""
    name: str = ""
    """The name of the message, if it has a lease of its own because it was renewed without the others of its token."""
    recalled: Callable[[float], AbstractAsyncContextManager[Any]] | None = None
    """For a session: takes a deadline. Returns a context in which the receiver neither fetches nor keeps messages."""
    refresh: Callable[[], None] | None = None
    """If another process renews the lock: reads the end that it has reported."""

    @property
    def key(self) -> str:
        """The key of the lease in the partition."""
        return self.token + self.name

    def ended(self, now: float) -> bool:
        """Return whether the lock has ended by the clock of this process."""
        if self.until > now:
            return False
        if self.refresh is not None:
            self.refresh()
        return self.until <= now


@dataclass(slots=True, eq=False)
class Reception:
    """How messages were received: the data that all messages of one call share."""

    base: int
    """The number to add to a message's number in its partition, to get its sequence number."""
    mode: ServiceBusReceiveMode
    link: Any
    """The client's object for the partition from which the messages were received; ``None`` for a copy."""
    peeked: bool = False
    rider: Any = None
    """The receiver's object whose grants may ride with the calls that settle the messages; ``None`` if there is none.
    """


@dataclass(slots=True, eq=False)
class Hold:
    """The client's record of a received message."""

    delivery: Delivery
    name: str
    """The name of the message in its partition."""
    reception: Reception
    lease: MessageLease | None
    """The current lock. A renewal may replace it by one of the same token."""
    settled: bool = False
    """Whether the message was settled, or is being settled."""
    watchers: tuple[Callable[[Any], None], ...] = ()
    """Functions that are called once, with this hold, when the lock no longer needs renewal."""

    @property
    def sequence_number(self) -> int:
        """The sequence number that users see."""
        name = self.name
        return self.reception.base + number_of(name)

    @property
    def session(self) -> str | None:
        """The session whose lock covers the message; ``None`` if the message has a lock of its own."""
        return None if self.lease is None else self.lease.session

    @property
    def locked(self) -> bool:
        """Whether the message was received under a lock and is not settled."""
        return not (
            self.settled or self.lease is None or self.reception.peeked or self.reception.mode is not _PEEK_LOCK
        )

    def lock(self, changes: bytes = b"", delay: int = 0) -> Lock:
        """Return the data for a call that settles the message or renews its lock."""
        lease = self.lease
        assert lease is not None  # only messages that were received under a lock are settled or renewed
        lock: Lock = _new(Lock, (lease.token, self.name, changes, delay))  # for each message, so without a further call
        return lock

    def lock_expired(self, now: float) -> bool:
        """Return whether the lock has ended by the clock of this process."""
        lease = self.lease
        return lease is not None and lease.ended(now)

    def let_go(self) -> None:
        """Call all watchers, because the lock no longer needs renewal."""
        watchers, self.watchers = self.watchers, ()
        for watcher in watchers:
            watcher(self)

    def unlocked(self) -> Hold:
        """Return the hold for a copy of the message. It has no lock and no partition."""
        return replace(self, reception=replace(self.reception, link=None, rider=None), lease=None, watchers=())
