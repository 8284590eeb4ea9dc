"""Running what blocks in a thread. The threads are anyio's, so an application that fills up asyncio's keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run something in a thread and return its result. If the caller is cancelled, it is not waited for."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
