"""A job: the part of a call that belongs to one caller."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Job"]


class Job:
    """The part of a call that belongs to one caller."""

    __slots__ = ("deadline", "done", "future", "over", "since", "size")

    def __init__(self, deadline: float, size: int = 0) -> None:
        self.deadline = deadline
        self.size = size
        self.done = False
        """Whether the operation was done, even if no caller waits for it any more."""
        self.over = False
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The future result."""
        self.since = 0.0
        """The time at which the call was last written to a connection, according to the client's clock.

        The duration of a lock from this call begins no earlier.
        """

    def end(self) -> None:
        """End the job, with any outcome."""
        if not self.over:
            self.over = True
            self.ended()

    def ended(self) -> None:
        """Clean up at the end of the job, if a subclass needs this. The method is called once."""
