# pyright: reportPrivateUsage=false
"""Doing due work before a partition is read. This work ends even if new work is always due."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from sbredis.client import PartitionClient
from sbredis.exceptions import ServiceBusError


@dataclass
class _Shown:
    more: bool
    nth: int


@dataclass
class _Busy:
    """A partition client whose partition has new due work before each read."""

    left: int = 0
    """The number of calls that leave some due work undone."""
    calls: list[str] = field(default_factory=list)

    async def call(self, letter: str, make: object, deadline: float) -> _Shown:
        del letter, make, deadline
        self.calls.append("read")
        assert len(self.calls) < 10, "it does not end"
        return _Shown(more=True, nth=self.calls.count("read"))

    async def do_due(self, deadline: float) -> bool:
        del deadline
        self.calls.append("due")
        self.left -= 1
        return self.left > 0


async def test_reading_a_partition_ends_although_work_is_always_due() -> None:
    """The due work is done once, in as many calls as needed. Then the partition is read, even if new work is due by
    then.
    """
    busy = _Busy(left=2)
    shown = await PartitionClient.read(cast("PartitionClient", busy), "w", cast("Any", None), 60.0)
    assert shown.nth == 2
    assert busy.calls == ["read", "due", "due", "read"]


class _Behind:
    """A partition link whose partition has new due work again and again."""

    def __init__(self) -> None:
        self._catching_up = False
        self._loop = asyncio.get_running_loop()
        self.started: list[Coroutine[Any, Any, None]] = []
        self.connection = SimpleNamespace(attempt=lambda _, work: self.started.append(work()))
        self.calls = 0

    async def do_due(self, deadline: float) -> bool:
        del deadline
        self.calls += 1
        if self.calls == 2:
            raise ServiceBusError("The partition cannot be reached.")
        return False

    def _catch_up(self) -> Coroutine[Any, Any, None]:
        return PartitionClient._catch_up(cast("PartitionClient", self))


async def test_a_partition_catches_up_again_after_it_succeeded_or_failed() -> None:
    """Only one attempt is under way at a time. Another attempt may follow it."""
    behind = _Behind()
    for nth in (1, 2, 3):
        for _ in range(2):
            PartitionClient.catch_up(cast("PartitionClient", behind))
        assert len(behind.started) == 1
        await behind.started.pop()
        assert behind.calls == nth
