"""Very many receivers of one client: they open with one grant each, and their grants share calls."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sbredis.engine import MOST_SEATS
from tests.aio.queues import Calls, Queue, bodies, on_servers, queue_at
from tests.aio.test_many_partitions import PARTITIONS, wide_queue
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, on_servers]

RECEIVERS = 96


async def grants_made(queue: Queue) -> Counter[int]:
    """Count the words of receivers by the number of grants that each of them has made."""
    words = [held for key, (_, held) in (await queue.contents()).items() if key.endswith(":words")]
    texts = [bytes(text).split(b" ") for each in words for key, text in each.items() if b" " in key]
    return Counter(int(parts[1]) for parts in texts)


async def test_receivers_that_come_later_make_one_grant_each_and_share_calls(url: str) -> None:
    """The channel is heard already, so their first grant stays open."""
    async with queue_at(url) as queue:
        first = asyncio.create_task(queue.receiver().receive_messages(1, 60))
        await queue.wait_for_waiters()
        receivers = [queue.receiver() for _ in range(RECEIVERS)]
        with Calls(queue.transport) as calls:
            tasks = [asyncio.create_task(receiver.receive_messages(1, 60)) for receiver in receivers]
            await queue.wait_for_waiters(1 + RECEIVERS)
            assert calls.by_script["grant"] < RECEIVERS / 2
        assert (await grants_made(queue))[1] == RECEIVERS
        await queue.fill(1 + RECEIVERS)
        got = Counter(body for messages in await asyncio.gather(first, *tasks) for body in bodies(messages))
        assert got == Counter(str(number) for number in range(1 + RECEIVERS))


async def test_receivers_of_a_wide_queue_make_hardly_more_than_one_grant_at_a_partition(url: str) -> None:
    """They wait for the confirmation of the channel before they ask partitions that have nothing."""
    async with wide_queue(url) as queue:
        receivers = [queue.receiver() for _ in range(10)]
        tasks = [asyncio.create_task(receiver.receive_messages(1, 60, gather=False)) for receiver in receivers]

        async def all_wait() -> bool:
            return await queue.waiters() == MOST_SEATS * len(receivers)

        await eventually(all_wait)
        made = await grants_made(queue)
        assert made.total() == MOST_SEATS * len(receivers)
        assert made[1] >= made.total() * 0.9  # a few have told another partition that it has the credit
        for place in range(PARTITIONS):
            await queue.fill(1, at=place, start=place)
        done, waiting = await asyncio.wait(tasks, timeout=60)
        assert (len(done), waiting) == (len(receivers), set())
