"""The garbage collector: a program that is a worker changes it, and nothing else does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.servers import LocalServer
from sbredis.workers import Worker
from sbredis.workers.running._collecting import THRESHOLD, collecting_less
from tests.plugins.parts import first
from tests.waiting import eventually
from tests.workers.worker_programs import program, send

TELLING = """
    import gc, os
    from sbredis.workers import Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", execution="EXECUTION")
    def tell(text: str) -> None:
        with open("log", "a") as log:
            log.write(f"{gc.get_freeze_count()} {gc.get_threshold()[0]}\\n")
"""


@pytest.fixture
def collector() -> Iterator[None]:
    """Begin with nothing frozen, and restore the collector after a test."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize("execution", ["thread", "process"])
@pytest.mark.parametrize("arguments", first(1, [("--processes", "1"), ()], "each starts a program"))
async def test_a_program_that_is_a_worker_freezes_what_it_has_made_at_its_start(
    server: LocalServer, tmp_path: Path, execution: str, arguments: tuple[str, ...]
) -> None:
    async with ServiceBusClient(server.url) as client:
        await send(client, "one")
        app = TELLING.replace("EXECUTION", execution)
        async with program(server.url, tmp_path, *arguments, app=app) as worker:
            await eventually(lambda: len(worker.lines()) == 1)
            (told,) = worker.lines()
            assert (int(told[0]) > 10_000, int(told[1])) == (True, THRESHOLD)


@pytest.mark.usefixtures("collector")
async def test_a_client_and_a_worker_in_a_program_of_the_user_change_nothing(url: str) -> None:
    gc.set_threshold(701, 11, 12)
    seen: list[tuple[int, tuple[int, int, int]]] = []
    handled = asyncio.Event()
    worker = Worker(url)

    @worker.queue("orders")
    async def tell(_: str) -> None:
        seen.append((gc.get_freeze_count(), gc.get_threshold()))
        handled.set()

    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        async with worker.running(), client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("one"))
            await handled.wait()
    assert [*seen, (gc.get_freeze_count(), gc.get_threshold())] == [(0, (701, 11, 12))] * 2


@pytest.mark.usefixtures("collector")
def test_the_collector_is_as_before_when_the_worker_has_ended() -> None:
    gc.set_threshold(700, 10, 10)
    with collecting_less():
        assert (gc.get_freeze_count() > 0, gc.get_threshold()) == (True, (THRESHOLD, 10, 10))
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, (700, 10, 10))


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("threshold", [0, THRESHOLD + 1])
def test_a_choice_of_the_application_stays(threshold: int) -> None:
    gc.set_threshold(threshold, 5, 6)
    gc.freeze()
    with collecting_less():
        assert gc.get_threshold() == (threshold, 5, 6)
    assert (gc.get_freeze_count() > 0, gc.get_threshold()) == (True, (threshold, 5, 6))
