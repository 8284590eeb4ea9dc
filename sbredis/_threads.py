"""Run blocking code in a thread of anyio. This works even if the application has filled asyncio's pool of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread

__all__ = ["in_thread", "once_in_thread"]

T = TypeVar("T")
_RESULTS: dict[Callable[[], Any], Any] = {}


async def in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread and return its result. If the caller is cancelled, do not wait for the thread."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def once_in_thread(work: Callable[[], T]) -> T:
    """Return the result of a function of a module that always returns the same. It runs in a thread the first time."""
    if work not in _RESULTS:
        _RESULTS[work] = await in_thread(work)
    result: T = _RESULTS[work]
    return result
