"""The maintenance role, which one client of a namespace holds at a time."""

from __future__ import annotations

import pytest

from sbredis.aio.maintenance._role import Role
from sbredis.engine import registry_salt, role_keys
from tests.aio.queues import queue_at

pytestmark = pytest.mark.anyio


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("ahead", [0, 3_600_000], ids=["a clock that stands still", "a clock that went back"])
async def test_the_fence_increases_with_each_holder_even_if_a_clock_is_set_back(url: str, ahead: int) -> None:
    """The next fence is higher than the last one, even if the clock has not advanced."""
    async with queue_at(url) as queue:
        (key,) = role_keys("ns", registry_salt())
        seconds, _ = await queue.transport.command("TIME", key=key)
        last = (int(seconds) + 600) * 1000 + ahead  # the clock does not reach this time during the test
        await queue.transport.command("HSET", key, "route", f"before 0 {last}", key=key)
        for place in range(1, 4):
            holder = Role(queue.transport, "ns", "route")
            taken = await holder.claim(5)
            assert (taken.held, taken.fence) == (True, last + place)
            assert (await holder.claim(5)).fence == taken.fence  # a claim keeps its fence when it is renewed
            await holder.give_up()
