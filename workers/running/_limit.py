"""The number of messages that a process may begin. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

__all__ = ["MessageLimit"]


class MessageLimit:
    """The number of messages that a process may still begin to handle. All its entities share it."""

    __slots__ = ("_reached", "left")

    def __init__(self, most: int | None = None, reached: Callable[[], None] = lambda: None) -> None:
        self.left: float = inf if most is None else most
        """The number of messages that may still begin."""
        self._reached = reached
        """Called when the last message has begun."""

    def take(self, count: int) -> int:
        """Let up to this number of messages begin. Return how many may."""
        taken = self.at_most(count)
        self.left -= taken
        if taken and not self.left:
            self._reached()
        return taken

    def at_most(self, count: int) -> int:
        """Return the number of messages that may still begin, but not more than this number."""
        return count if count <= self.left else int(self.left)
