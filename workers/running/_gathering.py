"""Decide which calls of handlers share a transaction. Pure.

A transaction that completes the messages of several calls, and sends what their handlers have sent, costs little more
than the transaction of one call. All of it happens, or nothing. If it is refused, one of the calls may be to blame, so
each call gets a transaction of its own.

Calls do not share a transaction

- if their messages are in different partitions, because a transaction settles messages of one slot,
- if they send to an entity for which a shared transaction was refused although each call alone was not: the messages
  for a partitioned entity need one key,
- if they are too many or too large together. The number of calls is halved when a transaction was too large, and grows
  by one with each one that has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sbredis.model import hold_of
from sbredis.workers.running._additions import MOST_ITEMS, UNCHANGED
from sbredis.workers.running._calls import HandlerCall

__all__ = ["Gathering"]


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
        last: dict[int, tuple[list[HandlerCall], int]] = {}
        for call in calls:
            sends = call.additions.sends or ()
            if self._alone and any(entity in self._alone for entity, _ in sends):
                made.append([call])
                continue
            lease = hold_of(call.message).lease
            partition = -1 if lease is None else lease.partition
            together, items = last.get(partition, ([], 0))
            more = 1 + len(sends) + len(call.additions.keys or ())
            if not together or items + more > MOST_ITEMS or len(together) >= self._most:
                together, items = [], 0
                made.append(together)
            together.append(call)
            last[partition] = together, items + more
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
