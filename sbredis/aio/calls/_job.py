"""What one caller wants of a call that several callers share."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Job"]


class Job:
    """What one caller wants of a call."""

    __slots__ = ("deadline", "done", "future", "over", "since", "size")

    def __init__(self, deadline: float, size: int = 0) -> None:
        self.deadline = deadline
        self.size = size
        self.done = False
        """It was done, whether or not somebody still waits for it."""
        self.over = False
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Brings the result."""
        self.since = 0.0
        """When its call was made, by the client's clock. A lock that the call brings lasts at least from then on."""

    def end(self) -> None:
        """It is over, whatever became of it."""
        if not self.over:
            self.over = True
            self.ended()

    def ended(self) -> None:
        """What is to be done when it is over. Called once."""
