"""Messages that are scheduled on a topic and cannot be published: they stay where they are, and hold nobody up.

They are tried again after a while, and when the rules of the topic have changed. What this client cannot publish,
another release of it may; and its sender can take it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sbredis.aio.core._pauses import Pauses
from sbredis.engine import Delivery

__all__ = ["Unpublishable"]

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
_MOST = 500
_MOST_BYTES = 16 * 1024 * 1024
"""They are read again whenever what stands behind them is asked for."""


@dataclass(slots=True)
class _Kept:
    """One of them."""

    size: int
    until: float
    pauses: Pauses
    rules: object
    """Those by which it could not be published."""


class Unpublishable:
    """Those of one partition."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, message: Delivery) -> bool:
        return message.name in self._kept

    @property
    def size(self) -> int:
        """What all of them weigh."""
        return sum(kept.size for kept in self._kept.values())

    def without(self, messages: Iterable[Delivery], now: float, rules: object) -> list[Delivery]:
        """Those that are to be published, or tried again."""
        if not self._kept:
            return list(messages)
        kept = self._kept
        return [
            each
            for each in messages
            if (aside := kept.get(each.name)) is None or aside.until <= now or aside.rules is not rules
        ]

    def put(self, message: Delivery, now: float, rules: object) -> bool:
        """Set one aside, or for longer, if there is room; for a single one there always is."""
        before = self._kept.get(message.name)
        size = len(message.record)
        if before is None and self._kept and (len(self._kept) >= _MOST or self.size + size > _MOST_BYTES):
            return False
        pauses = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE) if before is None else before.pauses
        self._kept[message.name] = _Kept(size, now + pauses.next(), pauses, rules)
        return True

    def published(self, messages: Iterable[Delivery]) -> None:
        """These are no longer scheduled."""
        if self._kept:
            for each in messages:
                self._kept.pop(each.name, None)

    def only(self, messages: Iterable[Delivery]) -> None:
        """Forget all but these, which are all that are due."""
        if self._kept:
            names = {each.name for each in messages}
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}
