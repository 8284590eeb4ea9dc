"""Run blocking code in a thread of anyio. This works even if the application has filled asyncio's pool of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread and return its result. If the caller is cancelled, do not wait for the thread."""
    import anyio.to_thread  # the part of anyio for asyncio is large, and many connections need no thread

    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
