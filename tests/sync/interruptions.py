"""Helpers that interrupt the main thread at a certain point."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.waiting import wait_until

__all__ = ["interrupted_when"]


@contextmanager
def interrupted_when(condition: Callable[[], object], interrupt: Callable[[], None]) -> Iterator[None]:
    """Run the block in the main thread, and interrupt it as soon as a condition holds."""

    def run() -> None:
        wait_until(condition)
        interrupt()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
