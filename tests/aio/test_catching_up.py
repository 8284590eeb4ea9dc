# pyright: reportPrivateUsage=false
"""Processing due work before a partition is read, which ends even if new work is always due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sbredis.aio.calls._partition_client import PartitionClient

pytestmark = pytest.mark.anyio


@dataclass
class _Shown:
    more: bool
    nth: int


@dataclass
class _Busy:
    """A partition client whose partition has new due work at each read."""

    left: int = 0
    """The number of calls that leave due work undone."""
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
    """The due work is processed once, in as many calls as needed. Then the partition is read as it is."""
    busy = _Busy(left=2)
    shown = await PartitionClient.read(cast("PartitionClient", busy), "w", cast("Any", None), 60.0)
    assert shown.nth == 2
    assert busy.calls == ["read", "due", "due", "read"]
