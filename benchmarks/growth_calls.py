"""The processor time of each call, for the benchmark of growth on a busy machine.

The slow log of a server shows how long a call took, and counts the time in which another program had the processor. So
with ``--serially`` the benchmark makes one call at a time, and asks the operating system how long the server has run
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.process_tree import times_of_processes
from sbredis.transport import Script, Transport

__all__ = ["CallTimes", "serially"]


class CallTimes:
    """The processor times of calls in ms, by operation."""

    def __init__(self) -> None:
        self.by_operation: defaultdict[str, list[float]] = defaultdict(list)

    def longest(self) -> Mapping[str, float]:
        """Return the longest time of each operation, the longest first."""
        longest = {name: max(times) for name, times in self.by_operation.items()}
        return dict(sorted(longest.items(), key=lambda each: -each[1]))


@contextmanager
def serially(pids: Sequence[int], times: CallTimes) -> Iterator[None]:
    """Let the clients of this process make one call at a time, and note its processor time."""
    through, begin, turn = Transport.call, Transport.begin, asyncio.Lock()

    async def call(self: Transport, script: Script, *arguments: Any, **options: Any) -> Any:
        async with turn:
            before, _ = times_of_processes(pids)
            try:
                return await through(self, script, *arguments, **options)
            finally:
                times.by_operation[script.name].append(times_of_processes(pids)[0] - before)

    def refused(*_: object, **__: object) -> bool:
        return False  # then the caller makes the call in a task

    Transport.call, Transport.begin = call, refused  # type: ignore[method-assign]
    try:
        yield
    finally:
        Transport.call, Transport.begin = through, begin  # type: ignore[method-assign]
