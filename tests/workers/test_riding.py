"""A worker's completions carry grants, and its handlers start before it makes the next call."""

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


async def test_the_handler_of_a_pushed_message_starts_before_its_worker_makes_a_call(server: LocalServer) -> None:
    """A worker with one handler asks for the next message while the handler runs."""
    made, made_before = Counter[str](), list[int]()
    async with queue_at(server.url, lock_duration=300_000) as queue:
        worker = Worker(server.url, namespace="ns", maintenance=False)

        @worker.queue(queue.entity.name, max_concurrent_calls=1, prefetch=0)
        async def note() -> None:
            made_before.append(made.total())

        async with worker.running():
            calls = Calls(connection_of(worker.client).transport)
            calls.by_script = made
            for number in range(20):
                await queue.wait_for_waiters()
                made.clear()
                with calls:
                    await queue.send(str(number))
                    await eventually(lambda: queue.counts_are(0, 0))
                assert made["complete"] == 1
    assert made_before == [0] * 20
