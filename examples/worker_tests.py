"""Tests of the worker of worker_retries.py, without a server and without waiting.

python examples/worker_tests.py
"""

from __future__ import annotations

import os
import sys

try:
    import pytest
except ModuleNotFoundError as error:
    sys.exit(f"This example needs pytest ({error}): run pip install pytest")

from worker_retries import attempts, buried, bury, deliver, handlers

from sbredis.testing import Bus, SyncBus, handle, handle_sync
from sbredis.workers import Abandon, Complete, DeadLetter, Worker

worker = Worker("redis+cluster://letters.example.com")  # where the application runs; no test connects to it
worker.include(handlers)


@pytest.fixture
def anyio_backend() -> str:
    """Run the tests of coroutine functions on asyncio."""
    return "asyncio"


@pytest.mark.anyio
async def test_a_letter_arrives_at_the_third_attempt(sbredis_bus: Bus) -> None:
    attempts.clear()
    async with sbredis_bus.running(worker) as run:
        await run.send("letters", "moved")
        await run.idle(advance=True)
    assert run.outcomes("letters") == [Abandon(0.05), Abandon(0.1), Complete()]
    assert attempts == ["moved: attempt 1", "moved: attempt 2", "moved: attempt 3"]


@pytest.mark.anyio
async def test_a_letter_without_an_address_is_buried_at_once(sbredis_bus: Bus) -> None:
    async with sbredis_bus.running(worker) as run:
        await run.send("letters", "nowhere")
        await run.idle()
    assert [each.handler for each in run.handled()] == [deliver, bury]
    assert buried.get_nowait() == "nowhere: AddressUnknownError: there is no nowhere"


def test_a_letter_that_is_refused_becomes_a_dead_letter(sbredis_sync_bus: SyncBus) -> None:
    with sbredis_sync_bus.running(worker) as run:
        run.send("letters", "refused")
        run.idle()
    assert run.outcomes("letters") == [DeadLetter("Refused", "the reader refused the letter")]


@pytest.mark.anyio
async def test_the_handler_alone() -> None:
    result = await handle(deliver, "closed", worker=worker, attempt=3)
    assert result.outcome == DeadLetter("ConnectionError", "the house is closed")
    assert (await handle(deliver, "open")).outcome == Complete()


def test_the_handler_alone_without_an_event_loop() -> None:
    with pytest.raises(ConnectionError, match="nobody is at home"):
        handle_sync(deliver, "moved", raise_errors=True)


if __name__ == "__main__":
    options = ["-q", "-c", os.devnull, "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*options, __file__]))
