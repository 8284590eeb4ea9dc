"""Fences of locks in the engine: after a failover."""

from __future__ import annotations

from sbredis.engine import Received
from tests.engine.bench import Bench
from tests.engine.taking import first_token
from tests.engine.terms import EPOCH_LEAP


async def test_fences_leap_when_a_failover_may_have_lost_some(bench: Bench) -> None:
    async def lock() -> Received:
        request = bench.receiving(first_token(), 1)
        return await bench.tell(request)

    await bench.send(b"1", b"2", b"3")
    bench.run_id = "one"
    first = await lock()
    bench.run_id = "another"
    assert (await lock()).fence == first.fence + EPOCH_LEAP + 1
