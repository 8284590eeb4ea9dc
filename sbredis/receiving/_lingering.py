"""Decide what a receiver does with its credit while it wants nothing. Pure.

When the last caller leaves, the receiver *lingers*: its credit stays for a moment, because most callers come back at
once. Then it withdraws the credit, and *hears* news for some seconds more. After that it is *quiet*.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

__all__ = ["InboxState", "Lingering"]

_LINGERING: Final = 0.05
"""The seconds for which credit stays without a caller. Most callers come back soon."""
_HEARING: Final = 5.0
"""The seconds for which partitions without credit send news to a receiver without a caller."""


class InboxState(Enum):
    """What an inbox does with the credit of its partitions."""

    WANTING = auto()
    """It wants messages: callers wait, the application has given credit, or the stock has room."""
    LINGERING = auto()
    """Credit stays as it is."""
    HEARING = auto()
    """Partitions without credit send news."""
    QUIET = auto()
    """Nothing is wanted from the partitions."""
    CLOSED = auto()


class Lingering:
    """The states of an inbox that wants nothing, one after the other."""

    __slots__ = ("_hears_until", "_lingers_until")

    def __init__(self) -> None:
        self._lingers_until = self._hears_until = 0.0

    def begin(self, now: float, *, lingers: float = _LINGERING, hears: float = _HEARING) -> None:
        """Linger for these seconds, and hear news until ``hears`` seconds from now: the last caller has left."""
        self._lingers_until, self._hears_until = now + lingers, now + hears

    def end(self) -> None:
        """Be quiet at once."""
        self._lingers_until = self._hears_until = 0.0

    def state(self, now: float) -> InboxState:
        """Return the state if nothing is wanted now."""
        if now < self._lingers_until:
            return InboxState.LINGERING
        return InboxState.HEARING if now < self._hears_until else InboxState.QUIET

    def next_at(self, now: float) -> float:
        """Return the time at which this state ends; infinity if it does not."""
        if now < self._lingers_until:
            return self._lingers_until
        return self._hears_until if now < self._hears_until else math.inf
