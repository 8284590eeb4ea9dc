"""Many callers of a script that counts by operation id, during a fault of the servers.

The tests check the results for the transport. The benchmark of faults prints them beside those of redis-py.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.transport import Script

__all__ = ["COUNT", "COUNT_ONCE", "Pressure", "Report", "beside"]

COUNT = Script(
    "count",
    """#!lua
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)""",
    function="count",
)
"""A script that counts every execution, to detect calls that ran twice. A migration can separate its two keys."""

COUNT_ONCE = Script(
    "count_once",
    """#!lua
redis.call('SET', KEYS[2], ARGV[1])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 1
end
return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)""",
    function="count_once",
)
"""A script that recognises a repetition of the same operation, so the call may be sent again."""


def beside(key: bytes) -> bytes:
    """Return the second key of an operation on ``key``, in the same slot."""
    return key + b":last"


Call = Callable[[bytes, str], Awaitable[object]]


@dataclass
class Report:
    """The results of all operations."""

    succeeded: set[str] = field(default_factory=set[str])
    failed: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    started: int = 0
    longest_gap: float = 0.0
    """The longest time, in seconds, in which no operation on the first key succeeded."""

    @property
    def errors(self) -> Counter[str]:
        """The number of failed operations for each class of error and outcome."""
        return Counter(_described(error) for error in self.failed.values())

    @property
    def foreign(self) -> list[BaseException]:
        """Exceptions of classes that sbredis does not define."""
        return [error for error in self.failed.values() if not isinstance(error, ServiceBusError)]

    def executed_twice(self, counts: dict[str, int]) -> list[str]:
        """Return the operations that a server counted more than once."""
        return [operation for operation, count in counts.items() if count > 1]

    def executed_although_denied(self, counts: dict[str, int]) -> list[str]:
        """Return the operations that were executed although their error says that they were not."""
        return [
            operation
            for operation, error in self.failed.items()
            if isinstance(error, ServiceBusError) and error.outcome is not Outcome.UNKNOWN and counts.get(operation)
        ]

    def executed_although_failed(self, counts: dict[str, int]) -> list[str]:
        """Return the operations that were executed although their caller got an error of any kind."""
        return [operation for operation in self.failed if counts.get(operation)]

    def lost(self, counts: dict[str, int]) -> list[str]:
        """Return the operations that were acknowledged but are not stored."""
        return [operation for operation in self.succeeded if not counts.get(operation)]


class Pressure:
    """A number of callers. Each runs one operation after the other on one of ``keys``.

    Operations flow when so many ``successes`` have come on the first key.
    """

    def __init__(
        self, call: Call, keys: Sequence[bytes], callers: int = 200, pause: float = 0.01, *, successes: int = 400
    ) -> None:
        self.report = Report()
        self._call = call
        self._keys = keys
        self._callers = callers
        self._pause = pause
        self._flow = successes
        self._numbers = itertools.count()
        self._stop = asyncio.Event()
        self._succeeded_at = time.monotonic()
        self._successes = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._succeeded_at = time.monotonic()
        self._tasks = [asyncio.create_task(self._caller(number)) for number in range(self._callers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def flows(self, within: float = 120.0) -> None:
        """Wait until enough further operations on the first key have succeeded."""
        goal = self._successes + self._flow
        deadline = time.monotonic() + within
        while self._successes < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {self._flow} operations on the first key succeeded within {within} s")
            await asyncio.sleep(0.01)

    async def _caller(self, number: int) -> None:
        key = self._keys[number % len(self._keys)]
        report = self.report
        while not self._stop.is_set():
            operation = f"op{next(self._numbers)}"
            report.started += 1
            try:
                await self._call(key, operation)
            except Exception as error:  # noqa: BLE001  # the kinds of errors are what is counted
                report.failed[operation] = error
            else:
                report.succeeded.add(operation)
                if key == self._keys[0]:
                    now = time.monotonic()
                    report.longest_gap = max(report.longest_gap, now - self._succeeded_at)
                    self._succeeded_at = now
                    self._successes += 1
            await asyncio.sleep(self._pause)


def _described(error: BaseException) -> str:
    outcome = error.outcome if isinstance(error, ServiceBusError) else None
    return f"{type(error).__name__} ({outcome.value})" if outcome else type(error).__name__
