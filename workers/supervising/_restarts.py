"""Decide when a process that ended is started again. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["Restarts"]

_FIRST: Final = 0.5
_LONGEST: Final = 30.0
_STEADY: Final = 60.0
"""The seconds after which a process counts as healthy: if it ends later, it starts again at once."""


class Restarts:
    """The pauses of one place for a process: each is twice as long as the one before it, until a process lives long."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0.0

    def pause_after(self, lived: float, *, failed: bool, by_suspect: bool = False) -> float:
        """Return the seconds to wait after a process that lived for this time. One that ended well starts at once.

        If a suspect has ended the process, the pauses do not grow: the message is a dead letter after a few deliveries,
        and all others wait meanwhile.
        """
        if failed and by_suspect:
            return _FIRST
        if not failed or lived >= _STEADY:
            self._next = 0.0
        pause = self._next
        self._next = min(_LONGEST, max(_FIRST, pause * 2))
        return pause
