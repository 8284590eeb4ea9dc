"""What a client knows of a message that it was given: the lock on it, and how it was received.

An application sees a :class:`~sbredis.ServiceBusReceivedMessage`. What receives, settles and renews works with the
message's :class:`Hold`. A message refers to its hold, and a hold never to its message, so both are freed at once when
the application drops the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sbredis.engine import Delivery, Lock
from sbredis.model._enums import ServiceBusReceiveMode

__all__ = ["Hold", "MessageLease", "Source"]

_PEEK_LOCK = ServiceBusReceiveMode.PEEK_LOCK


@dataclass(slots=True, eq=False)
class MessageLease:
    """The lock that the messages of one receive call share."""

    token: str
    """Under which the partition holds them."""
    until: float
    """When it ends at the latest by the clock of this process, with a margin."""
    until_utc: float
    """When it ends, in seconds since 1970, to be shown."""
    session: str | None = None
    """Whose lock it is, where messages belong to sessions: it stands over theirs."""


@dataclass(slots=True, eq=False)
class Source:
    """How messages were received: what all messages of one call share."""

    base: int
    """What the numbers of their partition begin after."""
    mode: ServiceBusReceiveMode
    owner: object
    """The entity of the client that they were received through; ``None`` of a copy."""
    peeked: bool = False


@dataclass(slots=True, eq=False)
class Hold:
    """A received message as its client sees it."""

    delivery: Delivery
    name: str
    """The name of the message in its partition."""
    source: Source
    lease: MessageLease | None
    """The lock on it. A renewal may give it another one."""
    first_lease: MessageLease | None
    """The lock that it was received under. Its token identifies the delivery."""
    settled: bool = False
    """It was settled, or is being settled."""
    watchers: tuple[Callable[[Any], None], ...] = ()
    """Called once, with the hold, when nobody needs to watch over its lock any more."""

    @property
    def sequence_number(self) -> int:
        """The number that users know the message by."""
        name = self.name
        return self.source.base + int(name[1:] if name[0] == "d" else name)

    @property
    def session(self) -> str | None:
        """The session whose lock is over it; ``None`` if it has a lock of its own."""
        return None if self.lease is None else self.lease.session

    @property
    def locked(self) -> bool:
        """Whether it was received under a lock and is not settled."""
        return not (self.settled or self.lease is None or self.source.peeked or self.source.mode is not _PEEK_LOCK)

    def lock(self, changes: bytes = b"", delay: int = 0) -> Lock:
        """Return what a call needs that settles the message or renews its lock."""
        lease = self.lease
        assert lease is not None  # it was received in a mode that locks
        return Lock(lease.token, self.name, changes, delay)

    def lock_expired(self, now: float) -> bool:
        """Whether its lock has ended by the clock of this process."""
        lease = self.lease
        return lease is not None and lease.until <= now

    def let_go(self) -> None:
        """Tell all watchers that nobody needs to watch over its lock any more."""
        watchers, self.watchers = self.watchers, ()
        for watcher in watchers:
            watcher(self)

    def unlocked(self) -> Hold:
        """Return what a copy of the message is given: no lock, and no owner."""
        return replace(self, source=replace(self.source, owner=None), lease=None, first_lease=None, watchers=())
