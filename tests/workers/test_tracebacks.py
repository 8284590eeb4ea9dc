"""Tests of the log of failures: it begins with the handler and not with the worker, and counts the attempts."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from sbredis.testing import Bus
from sbredis.workers import Context, Retries, SyncContext, Worker
from sbredis.workers.running._tracebacks import from_the_handler
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_the_traceback_of_a_failure_begins_with_the_handler(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    for queue in "plain", "waiting", "ours":
        await sbredis_bus.create_queue(queue)
    worker = Worker(sbredis_bus.url, retries=Retries(first_delay=0, attempts=1))

    @worker.queue("plain")
    def in_thread(text: str, context: SyncContext) -> None:
        raise ValueError(text, context.attempt)

    @worker.queue("waiting", timeout=100)
    async def in_loop(text: str, context: Context) -> None:
        await asyncio.sleep(0)
        raise ValueError(text, context.attempt)

    @worker.queue("ours")
    async def through_us(text: str, context: Context) -> None:
        context.send(text, object())

    async with worker.running():
        for queue in "plain", "waiting", "ours":
            await worker.send(queue, "text")
            await eventually(lambda queue=queue: sbredis_bus.dead_lettered(queue))
    failed = [record for record in caplog.records if "failed for message" in record.getMessage()]
    first = [traceback.extract_tb(record.exc_info[2])[0].name for record in failed if record.exc_info]
    assert first == ["in_thread", "in_loop", "through_us"]
    assert all("which is dead-lettered after attempt 1 of 1" in record.getMessage() for record in failed)


def test_an_error_of_the_worker_itself_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="coroutine") as raised:
        asyncio.Runner().run(None)  # type: ignore[arg-type]
    raised.value.__traceback__ = raised.value.__traceback__.tb_next if raised.value.__traceback__ else None
    assert from_the_handler(raised.value)[2] is raised.value.__traceback__ is not None
    bare = ValueError()
    assert from_the_handler(bare) == (ValueError, bare, None)
