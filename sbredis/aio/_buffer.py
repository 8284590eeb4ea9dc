# pyright: reportPrivateUsage=false
"""What a receiver keeps for those who will ask: the messages that were fetched ahead.

Their locks tick. No message is given out whose lock has ended, and what is not asked for in time is given back, which
counts no delivery; then nothing is fetched ahead until somebody asks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode

if TYPE_CHECKING:
    from sbredis.aio._inbox import Inbox

__all__ = ["Buffer"]

_SHARE = 0.5
"""What has waited for so much of its lock is given back: what is left of it is for the handling of those before."""
_LAST, _LAST_SHARE = 3.0, 0.2
"""In a session, whose messages nobody else could have meanwhile, what is kept is given back so many seconds before the
lock ends, or so much of a lock, whichever is less: early enough that none of it counts as delivered."""
_HORIZON = 2.0
"""An adaptive buffer holds what is worked through in so many seconds, or in a quarter of a lock, whichever is less."""
_WEIGHT = 0.3


class Buffer:
    """Messages that were fetched and not asked for yet, the oldest first."""

    def __init__(self, inbox: Inbox, most: int, *, adaptive: bool) -> None:
        self.most = most
        """How many are fetched ahead; 0 for none."""
        self._inbox = inbox
        self._adaptive = adaptive
        self._messages: deque[ServiceBusReceivedMessage] = deque()
        self._resting = False
        self._loop = asyncio.get_running_loop()
        self._rate: float | None = None
        self._rate_since = self._loop.time()
        self._taken = 0

    def __len__(self) -> int:
        return len(self._messages)

    # -- how much ------------------------------------------------------------------------------------------------------

    @property
    def target(self) -> int:
        """How many are to be kept at the moment."""
        if not self._adaptive or not self.most:
            return self.most
        if self._rate is None:
            return min(self.most, 10)
        lock = self._inbox.entity.record.settings.lock_duration / 1000
        return max(1, min(self.most, round(self._rate * min(_HORIZON, lock / 4))))

    @property
    def space(self) -> int:
        """How many more may be kept."""
        return max(0, self.target - len(self._messages))

    @property
    def wants_more(self) -> bool:
        """Whether anything would be fetched ahead if it were there."""
        return self.most > 0 and not self._resting and self.space > 0

    def room(self, *, waited_for: bool) -> int:
        """How many to fetch ahead now: none before half of them are used up, unless a call is to be made anyway."""
        if waited_for:
            self._resting = False
        if not self.wants_more or self._ends_soon:
            return 0
        return self.space if waited_for or len(self._messages) * 2 <= self.target else 0

    # -- in and out ----------------------------------------------------------------------------------------------------

    def put(self, messages: Sequence[ServiceBusReceivedMessage], *, first: bool = False) -> None:
        """Keep messages, behind the others or before them. Those whose lock ends first are always in front."""
        kept = self._messages
        if first:
            seam = [*messages, *islice(kept, 1)]
            kept.extendleft(reversed(messages))
        else:
            seam = [*islice(reversed(kept), 1), *messages]
            kept.extend(messages)
        if any(_end(one) > _end(other) for one, other in pairwise(seam)):
            self._messages = deque(sorted(kept, key=_end))

    def take(self, wanted: int) -> list[ServiceBusReceivedMessage]:
        """Up to so many of those whose lock has not ended."""
        messages = self._messages
        if not messages:
            return []
        now = self._inbox.entity.connection.clock.now()
        taken: list[ServiceBusReceivedMessage] = []
        while messages and len(taken) < wanted:
            message = messages.popleft()
            if not message._lock_expired(now):
                taken.append(message)
        self.consumed(len(taken))
        return taken

    def consumed(self, count: int) -> None:
        """So many were asked for and given out: how fast that goes decides how many are kept."""
        self._resting = False
        if not self._adaptive or not count:
            return
        self._taken += count
        now = self._loop.time()
        passed = now - self._rate_since
        if passed >= 0.1:
            rate = self._taken / passed
            self._rate = rate if self._rate is None else self._rate + _WEIGHT * (rate - self._rate)
            self._taken, self._rate_since = 0, now

    def empty(self) -> list[ServiceBusReceivedMessage]:
        """All that is kept, which is kept no longer."""
        left = list(self._messages)
        self._messages.clear()
        return left

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def until(self) -> float | None:
        """When the oldest is to be given back, by the clock of the event loop."""
        if not self._messages or self._inbox.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return None
        return self._loop.time() + max(0.0, self._left(self._messages[0]))

    def on_time(self) -> None:
        """Give back what has waited for too long."""
        if self._inbox.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return
        messages = self._messages
        late: list[ServiceBusReceivedMessage] = []
        while messages and self._left(messages[0]) <= 0.001:
            late.append(messages.popleft())
        if late:
            self._resting = True
            self._inbox.give_back(late)

    def _left(self, message: ServiceBusReceivedMessage) -> float:
        """How long a message may still be kept."""
        lease = message._lease
        if lease is None:
            return 0.0
        return lease.until - self._inbox.entity.connection.clock.now() - self._reserve

    @property
    def _reserve(self) -> float:
        """How much must be left of the lock of what is kept."""
        lock = self._inbox.entity.record.settings.lock_duration / 1000
        return lock * _SHARE if self._inbox.session is None else min(_LAST, lock * _LAST_SHARE)

    @property
    def _ends_soon(self) -> bool:
        """Whether what is fetched now could not be kept: the lock on its session is about to end."""
        session = self._inbox.session
        if session is None or self._inbox.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            return False
        return session._lease.until - self._inbox.entity.connection.clock.now() <= self._reserve


def _end(message: ServiceBusReceivedMessage) -> float:
    """When the lock of a message ends; all the same for those that have none."""
    lease = message._lease
    return 0.0 if lease is None else lease.until
