"""An event loop that refuses calls from another thread, like asyncio's debug mode, but at very little cost.

The debug mode also stores a stack for every future and every callback, which doubles the time of the tests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

__all__ = ["OneThreadLoop"]

Given = TypeVarTuple("Given")


class OneThreadLoop(asyncio.SelectorEventLoop):
    """An event loop that raises an error when another thread uses it, except for ``call_soon_threadsafe``."""

    timers = 0
    """The number of timers that were set."""
    _runs_in: int | None = None

    def run_forever(self) -> None:
        self._runs_in = threading.get_ident()
        try:
            super().run_forever()
        finally:
            self._runs_in = None

    def call_soon(
        self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
    ) -> asyncio.Handle:
        self._refuse_other_threads()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._refuse_other_threads()
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)

    def _refuse_other_threads(self) -> None:
        if self._runs_in not in {None, threading.get_ident()}:
            raise RuntimeError("a thread other than the one of the event loop called it; use call_soon_threadsafe")
