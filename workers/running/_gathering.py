"""Decide which calls of handlers share a transaction. Pure.

A transaction that completes the messages of several calls, and sends what their handlers have sent, costs little more
than the transaction of one call. All of it happens, or nothing. If it is refused, one of the calls may be to blame, so
each call gets a transaction of its own.

Calls do not share a transaction

- if their messages are in different partitions, because a transaction settles messages of one slot,
- if they remember the same key, because a transaction remembers a key once,
- if they send to an entity for which a shared transaction was refused although each call alone was not: the messages
  for a partitioned entity need one key,
- if they are too many or too large together. The number of calls is halved when a transaction was too large, and grows
  by one with each one that has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sbredis.model import hold_of
from sbredis.workers.running._additions import MOST_ITEMS, UNCHANGED
from sbredis.workers.running._calls import HandlerCall

__all__ = ["Gathering"]


@dataclass(slots=True)
class _OpenTransaction:
    """The calls of a transaction to which more may be added."""

    calls: list[HandlerCall] = field(default_factory=list[HandlerCall])
    items: int = 0
    keys: set[str | bytes] = field(default_factory=set[str | bytes])

    def takes(self, items: int, keys: Iterable[str | bytes], most: int) -> bool:
        """Return whether there is room for one more call, with this number of items and these keys."""
        return self.items + items <= MOST_ITEMS and len(self.calls) < most and self.keys.isdisjoint(keys)


class Gathering:
    """Knows which calls of one entity share a transaction."""

    def __init__(self) -> None:
        self._most = MOST_ITEMS
        """The most calls of a transaction."""
        self._alone: set[str] = set()
        """The entities to which a shared transaction cannot send."""

    @staticmethod
    def takes(call: HandlerCall) -> bool:
        """Return whether a call may share a transaction: nobody watches its span, and it changes no session state."""
        return call.context is None and call.additions.session_state is UNCHANGED and len(call.messages) == 1

    def transactions(self, calls: Iterable[HandlerCall]) -> list[list[HandlerCall]]:
        """Return the calls of each transaction, in their order."""
        made: list[list[HandlerCall]] = []
        last: dict[int, _OpenTransaction] = {}
        for call in calls:
            sends = call.additions.sends or ()
            if self._alone and any(entity in self._alone for entity, _ in sends):
                made.append([call])
                continue
            lease = hold_of(call.message).lease
            partition = -1 if lease is None else lease.partition
            keys = call.additions.keys or {}
            more = 1 + len(sends) + len(keys)
            together = last.get(partition)
            if together is None or not together.takes(more, keys, self._most):
                together = last[partition] = _OpenTransaction()
                made.append(together.calls)
            together.calls.append(call)
            together.items += more
            together.keys.update(keys)
        return made

    def happened(self) -> None:
        """Note that a shared transaction has happened."""
        self._most = min(MOST_ITEMS, self._most + 1)

    def too_large(self, calls: Sequence[HandlerCall]) -> None:
        """Note that the transaction of these calls was too large."""
        self._most = max(1, len(calls) // 2)

    def only_alone(self, calls: Sequence[HandlerCall]) -> None:
        """Note that the transaction of these calls was refused before it was sent, and each call alone was not."""
        self._alone.update(entity for call in calls for entity, _ in call.additions.sends or ())
