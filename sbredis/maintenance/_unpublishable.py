"""Scheduled messages of a topic that cannot be published: set them aside, so that they do not delay other messages.

They stay scheduled. The client tries them again after a while, and when the rules of the topic have changed. Another
release of the client may be able to publish them, and their sender can cancel them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sbredis.client._pauses import Pauses
from sbredis.engine import Delivery

__all__ = ["Unpublishable"]

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
_MOST = 500
_MOST_BYTES = 16 * 1024 * 1024
"""The largest number of bytes to set aside. Each request for other messages reads all these messages again."""


@dataclass(slots=True)
class _Kept:
    """A message that was set aside."""

    size: int
    until: float
    pauses: Pauses
    rules: object
    """The rules with which it could not be published."""


class Unpublishable:
    """The messages of one partition that were set aside."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, message: Delivery) -> bool:
        return message.name in self._kept

    @property
    def size(self) -> int:
        """The bytes of all messages that were set aside."""
        return sum(kept.size for kept in self._kept.values())

    def without(self, messages: Iterable[Delivery], now: float, rules: object) -> list[Delivery]:
        """Return the messages to publish now. Leave out messages that were set aside and must still wait."""
        if not self._kept:
            return list(messages)
        kept = self._kept
        return [
            each
            for each in messages
            if (aside := kept.get(each.name)) is None or aside.until <= now or aside.rules is not rules
        ]

    def put(self, message: Delivery, now: float, rules: object) -> bool:
        """Set a message aside, for a longer time at each failure. Return whether there was room.

        There is always room for the first message.
        """
        before = self._kept.get(message.name)
        size = len(message.record)
        if before is None and self._kept and (len(self._kept) >= _MOST or self.size + size > _MOST_BYTES):
            return False
        pauses = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE) if before is None else before.pauses
        self._kept[message.name] = _Kept(size, now + pauses.next(), pauses, rules)
        return True

    def published(self, messages: Iterable[Delivery]) -> None:
        """Forget messages that were published."""
        if self._kept:
            for each in messages:
                self._kept.pop(each.name, None)

    def only(self, messages: Iterable[Delivery]) -> None:
        """Forget all messages except these, because no other messages are due."""
        if self._kept:
            names = {each.name for each in messages}
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}
