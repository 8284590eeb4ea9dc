"""A worker keeps nothing of the messages that it has handled. ``make prove WHAT=workers`` measures a million."""

from __future__ import annotations

import sys
from collections import Counter

from sbredis.servers import LocalServer
from tests.workers.chaos.growth import handled, objects_of_ours


async def test_the_memory_of_a_worker_does_not_grow_with_its_messages(server: LocalServer) -> None:
    counts: list[Counter[str]] = []
    blocks: list[int] = []

    def look(number: int) -> None:
        if number >= 2:  # by then everything is made that is made once
            counts.append(objects_of_ours())
            blocks.append(sys.getallocatedblocks())

    await handled(server.url, 4, 10_000, look)
    grown = counts[-1] - counts[0]  # by up to 256: both clients read the logs of 128 buckets meanwhile
    assert not {name: count for name, count in grown.items() if count > 300}
    assert blocks[-1] - blocks[0] < 5000, blocks  # a quarter of a block of memory for each message
