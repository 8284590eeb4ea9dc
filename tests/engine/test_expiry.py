"""Fundamentals, part three: messages have a time to live, and then expire."""

from __future__ import annotations

import pytest

from sbredis.engine import NEVER
from tests.engine.bench import Bench


@pytest.mark.parametrize("whose", ["message", "entity", "scheduled"])
async def test_a_time_to_live_of_centuries_is_valid(bench: Bench, whose: str) -> None:
    """A message whose time to live ends at or after the last possible time never expires."""
    for time_to_live in (NEVER - bench.now - 1, NEVER - bench.now, NEVER - bench.now + 1, NEVER - 1, NEVER):
        enqueued = bench.now
        if whose == "entity":
            await bench.change(time_to_live=time_to_live)
            await bench.send(b"m")
        elif whose == "message":
            await bench.send(b"m", time_to_live=time_to_live)
        else:
            enqueued += 1
            await bench.send(b"m", time_to_live=time_to_live, due=enqueued)
            bench.later(1)
        message = await bench.one()
        assert message.payload == b"m"
        assert message.record.expires == min(enqueued + time_to_live, NEVER)
        assert (await bench.complete(message)).lost == ()
        assert (await bench.count()).bytes == 0
