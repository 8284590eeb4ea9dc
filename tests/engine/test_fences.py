"""Fences of locks in the engine: after a failover, and in a repeated call."""

from __future__ import annotations

import pytest

from sbredis.engine import CallId, Received, new_token
from sbredis.engine._bands import EPOCH_LEAP
from tests.engine.bench import Bench

pytestmark = pytest.mark.anyio


async def test_fences_leap_when_a_failover_may_have_lost_some(bench: Bench) -> None:
    async def lock() -> Received:
        request = bench.partition.receive(bench.call_id(), new_token(), 1)
        return await bench.tell(request)

    await bench.send(b"1", b"2", b"3")
    bench.run_id = "one"
    first = await lock()
    bench.run_id = "another"
    assert (await lock()).fence == first.fence + EPOCH_LEAP + 1


async def test_a_repeated_receive_returns_the_fence_of_the_first_call(bench: Bench) -> None:
    await bench.send(b"1")
    request = bench.partition.receive(CallId("lane", 1, bench.now), new_token(), 1)
    first = await bench.tell(request)
    assert first.fence == 1
    assert await bench.tell(request) == first
