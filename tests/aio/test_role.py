"""The maintenance role, which one client of a namespace holds at a time."""

from __future__ import annotations

import pytest

from sbredis.client import Role
from sbredis.engine import role_keys
from tests.aio.queues import queue_at

pytestmark = pytest.mark.anyio


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("ahead", [0, 3_600_000], ids=["a clock that stands still", "a clock that went back"])
async def test_the_fence_increases_with_each_holder_even_if_a_clock_is_set_back(url: str, ahead: int) -> None:
    """The next fence is higher than the last one, even if the clock has not advanced."""
    async with queue_at(url) as queue:
        (key,) = role_keys("ns")
        seconds, _ = await queue.transport.command("TIME", key=key)
        last = (int(seconds) + 600) * 1000 + ahead  # the clock does not reach this time during the test
        await queue.transport.command("HSET", key, "route", f"before 0 {last}", key=key)
        for place in range(1, 4):
            holder = Role(queue.transport, "ns", "route")
            taken = await holder.claim(5)
            assert (taken.held, taken.fence) == (True, last + place)
            assert (await holder.claim(5)).fence == taken.fence  # a claim keeps its fence when it is renewed
            await holder.give_up()


async def test_the_fence_increases_although_a_failover_has_lost_the_last_one(url: str) -> None:
    async with queue_at(url) as queue:
        (key,) = role_keys("ns")
        before = await Role(queue.transport, "ns", "route").claim(5)
        await queue.transport.command("DEL", key, key=key)
        taken = await Role(queue.transport, "ns", "route").claim(5)
        assert taken.held
        assert taken.fence >= before.fence > 1_000_000_000_000  # it is a time in ms


async def test_a_claim_that_ends_too_far_in_the_future_is_void(url: str) -> None:
    """No claim is longer than an hour, so the clock of the server was set back."""
    async with queue_at(url) as queue:
        (key,) = role_keys("ns")
        seconds, _ = await queue.transport.command("TIME", key=key)
        for ahead, free in ((1800, False), (7200, True)):
            ends = (int(seconds) + ahead) * 1000
            await queue.transport.command("HSET", key, "route", f"another {ends} 7", key=key)
            assert (await Role(queue.transport, "ns", "route").claim(5)).held == free
