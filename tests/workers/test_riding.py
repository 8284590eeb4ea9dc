"""A worker's completions carry grants, and lost replies start no handler twice."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.client import connection_of
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from sbredis.workers import Context, Worker
from tests.aio.queues import Calls, Queue, queue_at
from tests.aio.scissors import Scissors
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    """Run without the debug mode of asyncio, like all tests with servers."""
    return "asyncio"


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


def was_cut(network: Scissors, times: int) -> bool:
    """Return whether the network was cut more than this number of times."""
    return network.cuts > times


async def _goes_on(queue: Queue, network: Scissors, script: str) -> None:
    """Lose calls of a script and replies to them, while messages come."""
    for round_ in range(8):
        network.cut(script, on_the_way=bool(round_ % 2))
        await queue.fill(30, start=30 * round_)
        await eventually(partial(was_cut, network, round_))
        await eventually(lambda: queue.counts_are(0, 0))


@pytest.mark.parametrize("sends", [False, True])
async def test_lost_replies_start_no_handler_twice(server: LocalServer, sends: bool) -> None:
    """The completions of the messages, or the transactions of handlers that send, carry the grants of the worker."""
    begun: Counter[str] = Counter()
    async with (
        queue_at(server.url, lock_duration=300_000) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(server.url, namespace="ns") as client,
    ):
        await client.ensure_queue("out", colocate_with=queue.entity.name)
        worker = Worker(f"redis://127.0.0.1:{network.port}", namespace="ns", maintenance=False)

        @worker.queue(queue.entity.name)
        async def note(text: str, context: Context) -> None:
            begun[text] += 1
            if sends:
                context.send("out", ServiceBusMessage(text))

        async with worker.running():
            await queue.wait_for_waiters()
            await _goes_on(queue, network, "transact" if sends else "complete")
        if sends:
            out = await client.get_queue_receiver("out").receive_messages(240, 60)
            assert Counter(map(str, out)) == begun
    assert begun == {str(number): 1 for number in range(240)}
