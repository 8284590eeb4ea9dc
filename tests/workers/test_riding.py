"""A worker's completions carry grants, and lost replies start no handler twice."""

from __future__ import annotations

from collections import Counter

from sbredis.client import connection_of
from sbredis.servers import LocalServer
from sbredis.workers import Worker
from tests.aio.queues import Calls, queue_at
from tests.waiting import eventually


async def test_an_idle_worker_makes_one_call_a_message(server: LocalServer) -> None:
    """Messages are pushed to it, and its completions say what it has seen, and how many handlers may start."""
    begun: Counter[str] = Counter()
    async with queue_at(server.url, lock_duration=300_000) as queue:
        worker = Worker(server.url, namespace="ns", maintenance=False)

        @worker.queue(queue.entity.name)
        async def note(text: str) -> None:
            begun[text] += 1

        async with worker.running():
            await queue.wait_for_waiters()
            with Calls(connection_of(worker.client).transport) as calls:
                for number in range(40):
                    await queue.send(str(number))
                    await eventually(lambda: queue.counts_are(0, 0))
                assert calls.by_script["complete"] == 40
                assert calls.by_script["grant"] <= 2
    assert begun == {str(number): 1 for number in range(40)}
