"""Inspecting a partition: who waits, and how old the oldest message is. It changes nothing."""

from __future__ import annotations

from sbredis.engine import Inspection, Outgoing
from tests.engine.bench import START, Bench


async def inspect(bench: Bench) -> Inspection:
    return await bench.tell(bench.partition.inspect(bench.at()))


async def test_the_oldest_message_is_found_on_every_level(bench: Bench) -> None:
    assert await inspect(bench) == Inspection(0, 0, 0, None)
    for after, level in ((0, 5), (1000, 0), (2000, 7)):
        bench.now = START + after
        await bench.send_all(Outgoing(b"m", level=level))
    assert (await inspect(bench)).oldest == START
    before = await bench.whole()
    await inspect(bench)
    assert await bench.whole() == before
