"""An event loop whose time can be made to pass only while it has nothing to do, so that tests measure time exactly.

Inside :meth:`VirtualLoop.jumping`, the time jumps to the next timer when no callback is ready. So a time that a test
measures depends on the timers that it waits for, and not on the speed of the machine. Threads take no part in this: a
test opens its connections before.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.loops import OneThreadLoop

__all__ = ["VirtualLoop"]


class _Selector(selectors.DefaultSelector):
    """A selector that lets the time of its loop pass instead of waiting."""

    passes: Callable[[float], None] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self.passes is None or timeout is None:
            return super().select(timeout)
        found = super().select(0)
        if not found and timeout > 0:
            self.passes(timeout)
        return found


class VirtualLoop(OneThreadLoop):
    """The loop."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._stopped_at: float | None = None
        self._jumps = _Selector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return (time.monotonic() if self._stopped_at is None else self._stopped_at) + self._ahead

    @contextmanager
    def jumping(self, taken_along: Callable[[float], object]) -> Iterator[None]:
        """Let the time pass only by jumps while the block runs. ``taken_along`` is called with each jump in seconds."""

        def passes(seconds: float) -> None:
            self._ahead += seconds
            taken_along(seconds)

        self._stopped_at, self._jumps.passes = time.monotonic(), passes
        try:
            yield
        finally:
            self._ahead -= time.monotonic() - self._stopped_at
            self._stopped_at = self._jumps.passes = None
