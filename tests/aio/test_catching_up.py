# pyright: reportPrivateUsage=false
"""A partition is brought up to date before it is shown. That ends even where something is due all the time."""

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
    """A partition_client in whose partition something else has become due at each read."""

    left: int = 0
    """How many times there is more to do than one call does."""
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
    """It is brought up to date once, in as many calls as that takes, and then it is shown as it is."""
    busy = _Busy(left=2)
    shown = await PartitionClient.read(cast("PartitionClient", busy), "w", cast("Any", None), 60.0)
    assert shown.nth == 2
    assert busy.calls == ["read", "due", "due", "read"]
