"""The messages that were fetched ahead, the oldest lock first.

Their locks tick. No message is given out whose lock has ended. How many are kept, and for how long, is decided in
:mod:`sbredis.aio.core._fetching`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise

from sbredis.model import ServiceBusReceivedMessage, hold_of

__all__ = ["Buffer"]


class Buffer:
    """Messages that nobody has asked for yet."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: deque[ServiceBusReceivedMessage] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def first(self) -> ServiceBusReceivedMessage:
        """The message whose lock ends first."""
        return self._messages[0]

    def put(self, messages: Sequence[ServiceBusReceivedMessage], *, first: bool = False) -> None:
        """Keep messages, behind the others or before them. Those whose lock ends first are always in front."""
        kept = self._messages
        if first:
            in_order = _in_order([*messages, *islice(kept, 1)])
            kept.extendleft(reversed(messages))
        else:
            in_order = not kept or not messages or _end(kept[-1]) <= _end(messages[0])
            in_order = in_order and (_under_one_lock(messages) or _in_order(messages))
            kept.extend(messages)
        if not in_order:
            self._messages = deque(sorted(kept, key=_end))

    def pop(self, now: float) -> ServiceBusReceivedMessage | None:
        """Take the first whose lock has not ended."""
        messages = self._messages
        while messages:
            message = messages.popleft()
            lease = hold_of(message).lease
            if lease is None or lease.until > now:
                return message
        return None

    def take(self, wanted: int, now: float) -> list[ServiceBusReceivedMessage]:
        """Take up to so many of those whose lock has not ended."""
        messages = self._messages
        taken: list[ServiceBusReceivedMessage] = []
        while messages and len(taken) < wanted:
            message = messages.popleft()
            if not hold_of(message).lock_expired(now):
                taken.append(message)
        return taken

    def take_until(self, end: float) -> list[ServiceBusReceivedMessage]:
        """Take those whose locks end by then."""
        messages, taken = self._messages, list[ServiceBusReceivedMessage]()
        while messages and _end(messages[0]) <= end:
            taken.append(messages.popleft())
        return taken

    def empty(self) -> list[ServiceBusReceivedMessage]:
        """Take all."""
        left = list(self._messages)
        self._messages.clear()
        return left


def _end(message: ServiceBusReceivedMessage) -> float:
    """When the lock of a message ends; all the same for those that have none."""
    lease = hold_of(message).lease
    return 0.0 if lease is None else lease.until


def _under_one_lock(messages: Sequence[ServiceBusReceivedMessage]) -> bool:
    """Whether messages share one lock, as those of one call do."""
    return len({id(hold_of(message).lease) for message in messages}) <= 1


def _in_order(messages: Sequence[ServiceBusReceivedMessage]) -> bool:
    """Whether the lock of each message ends no later than that of the next one."""
    return all(_end(one) <= _end(other) for one, other in pairwise(messages))
