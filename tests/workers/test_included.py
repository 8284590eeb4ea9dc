"""Tests of the middleware that comes with the framework."""

from __future__ import annotations

import pytest

from sbredis.testing import Bus
from sbredis.workers import Context, Idempotency, Worker
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_the_second_message_of_a_key_sends_nothing(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    await sbredis_bus.create_queue("out")
    worker = Worker(sbredis_bus.url, middleware=[Idempotency(60, key=lambda message: str(message.subject))])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.send("out", text)

    async with worker.running():
        for text, subject in (("one", "a"), ("two", "a"), ("three", "b")):
            await worker.send("orders", text, subject=subject)
        await eventually(lambda: sent(sbredis_bus, 2))
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"one", b"three"]


async def sent(bus: Bus, count: int) -> bool:
    return not await bus.active("orders") and len(await bus.active("out")) == count
