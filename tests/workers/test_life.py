"""The life of a worker: it checks and creates its entities, surrounds its work, and stops."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import OperationTimeoutError, Outcome
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Router, Worker
from tests.waiting import eventually
from tests.workers.looking import empty, send_to, worker_of


async def test_a_worker_surrounds_its_work_with_its_lifespan_and_stops(sbredis_bus: Bus) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        await worker.send("orders", b"")
        told.append("up")
        yield
        told.append("down")

    worker = await worker_of(sbredis_bus, "orders", lifespan=lifespan)

    @worker.queue("orders")
    async def place() -> None:
        told.append("handled")
        worker.stop()

    await worker.run()
    assert told == ["up", "handled", "down"]
    assert await empty(sbredis_bus, "orders")
    with pytest.raises(RuntimeError, match="does not run"):
        _ = worker.client


@pytest.mark.parametrize("begins", [False, True])
async def test_a_lifespan_may_take_only_so_long_to_begin_and_to_end(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, *, begins: bool
) -> None:
    told: list[str] = []

    async def wait_for_a_database() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        if not begins:
            await wait_for_a_database()
        worker.stop()
        told.append("up")
        yield
        await wait_for_a_database()

    worker = await worker_of(sbredis_bus, "orders", lifespan=lifespan, lifespan_timeout=0.05)

    @worker.queue("orders")
    async def place() -> None:
        told.append("handled")

    what = "end" if begins else "begin"
    with pytest.raises(OperationTimeoutError, match=rf"lifespan of the worker did not {what} within 0\.05 s") as raised:
        await worker.run()
    assert raised.value.outcome is Outcome.NEVER_SENT
    assert told == (["up", "cancelled"] if begins else ["cancelled"])
    (record,) = [record for record in caplog.records if "was cancelled here" in record.getMessage()]
    frames = [frame.name for frame in traceback.extract_tb(record.exc_info[2])] if record.exc_info else []
    assert frames[:2] == ["lifespan", "wait_for_a_database"]
    assert repr(worker) == "<Worker with 1 handler, stopped>"


async def test_a_time_out_of_the_lifespan_itself_keeps_its_own_error(sbredis_bus: Bus) -> None:
    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
        yield

    worker = Worker(sbredis_bus.url, lifespan=lifespan)

    @worker.queue("orders")
    async def place(text: str) -> None: ...

    with pytest.raises(TimeoutError) as raised:
        await worker.run()
    assert not isinstance(raised.value, OperationTimeoutError)


async def test_a_worker_that_is_stopped_lets_handlers_finish_and_gives_the_rest_back_uncounted(
    sbredis_bus: Bus,
) -> None:
    worker, begun = await worker_of(sbredis_bus, "orders", shutdown_timeout=2, max_concurrent_calls=3), list[str]()
    ended: list[str] = []

    @worker.queue("orders")
    async def place(text: str) -> None:
        begun.append(text)
        await asyncio.sleep(0.05 if text == "short" else 3600)
        ended.append(text)

    for text in ("long", "long", "short", "waits", "waits"):
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage(text))
    async with worker.running():
        await eventually(lambda: len(begun) >= 3)
    assert ended == ["short"]
    left = await sbredis_bus.active("orders")
    assert len(left) == 4
    assert {message.delivery_count for message in left} == {0}
    interrupted = [bytes(message.body) for message in left if message.interrupted]
    assert interrupted == [b"long", b"long"]


async def test_entities_that_are_missing_are_created_if_the_handlers_ask_for_it(sbredis_bus: Bus) -> None:
    worker = Worker(sbredis_bus.url)
    seen: list[str] = []

    @worker.queue("orders", create_if_missing={"max_delivery_count": 3})
    async def place(text: str) -> None:
        seen.append(text)

    @worker.subscription("news", "all", create_if_missing=True)
    async def read(text: str) -> None:
        seen.append(text)

    async with worker.running():
        await worker.send("orders", "order")
        await worker.send("news", "news")
        await eventually(lambda: len(seen) == 2)
        info = await worker.client.describe_entity("orders")
    assert sorted(seen) == ["news", "order"]
    assert info.properties.max_delivery_count == 3  # type: ignore[union-attr]


async def test_fast_handlers_let_messages_be_fetched_ahead_until_the_worker_stops(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    await send_to(sbredis_bus, "orders", [ServiceBusMessage(str(number)) for number in range(200)])
    worker = Worker(sbredis_bus.url, max_concurrent_calls=2, shutdown_timeout=0)
    seen: list[str] = []
    stops = asyncio.Event()

    @worker.queue("orders")
    async def place(text: str) -> None:
        seen.append(text)
        if len(seen) > 100:
            stops.set()
            await asyncio.sleep(3600)

    async with worker.running():
        receiver = worker._running().services[0]._receiver
        assert receiver.prefetch_count == 0
        await stops.wait()
        assert receiver.prefetch_count > 0
    left = await sbredis_bus.active("orders")
    assert len(left) == 100
    assert {message.delivery_count for message in left} == {0}
    assert not await sbredis_bus.locked("orders")


async def test_what_was_fetched_ahead_is_given_back_before_the_running_handlers_have_finished(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    await send_to(sbredis_bus, "orders", [ServiceBusMessage(str(number)) for number in range(200)])
    worker = Worker(sbredis_bus.url, max_concurrent_calls=1, shutdown_timeout=3600)
    seen: list[str] = []
    stops, go = asyncio.Event(), asyncio.Event()

    @worker.queue("orders")
    async def place(text: str) -> None:
        seen.append(text)
        if len(seen) > 100:
            worker.stop()
            stops.set()
            await go.wait()

    running = asyncio.create_task(worker.run())
    await stops.wait()
    left: list[ServiceBusReceivedMessage] = []
    try:
        async with asyncio.timeout(60), sbredis_bus.client.get_queue_receiver("orders") as receiver:
            while len(left) < 99:
                left += await receiver.receive_messages(99, 60)
        assert not running.done()
    finally:
        go.set()
        await running
    assert {message.delivery_count for message in left} == {1}
    assert len(seen) == 101


async def test_a_message_that_cannot_be_given_back_is_logged_and_not_counted(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker, begun = await worker_of(sbredis_bus, "orders", shutdown_timeout=0), asyncio.Event()

    @worker.queue("orders")
    async def place() -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def release(*_: object, **__: object) -> None:
        raise OperationTimeoutError("the server is gone")

    async with worker.running():
        await worker.send("orders", b"")
        await begun.wait()
        counts = worker._running().report().counts["orders"]
        monkeypatch.setattr(ServiceBusReceiver, "release_message", release)
    assert counts.given_back == 0
    assert "was not given back: the server is gone" in caplog.text


async def test_a_worker_takes_handlers_that_its_routers_get_after_they_were_included(sbredis_bus: Bus) -> None:
    inner, router, worker = Router(), Router(), Worker(sbredis_bus.url)
    seen: list[str] = []
    worker.include(router)
    router.include(inner)

    @router.queue("orders", create_if_missing=True)
    async def place(text: str) -> None:
        seen.append(f"orders: {text}")

    @inner.queue("letters", create_if_missing=True)
    async def post(text: str) -> None:
        seen.append(f"letters: {text}")

    async with worker.running():
        for queue in ("orders", "letters"):
            await worker.send(queue, "one")
        await eventually(lambda: len(seen) == 2)
    assert sorted(seen) == ["letters: one", "orders: one"]


async def test_a_router_of_a_worker_that_runs_takes_no_handlers(sbredis_bus: Bus) -> None:
    inner, router, worker = Router(), Router(), Worker(sbredis_bus.url)
    other = Worker(sbredis_bus.url)
    worker.include(router)
    router.include(inner)
    other.include(inner)
    routers = (inner, router, worker, other)

    async def late() -> None: ...

    inner.queue("orders", create_if_missing=True)(late)
    async with worker.running():
        for each in (router, inner):
            with pytest.raises(RuntimeError, match="The worker runs already: declare its handlers and"):
                each.queue("late", create_if_missing=True)(late)
        assert [len(each._declared) for each in routers] == [1, 1, 1, 1]
    inner.queue("late", create_if_missing=True)(late)
    assert [len(each._declared) for each in routers] == [2, 2, 2, 2]


async def test_nothing_is_declared_for_a_worker_that_runs(sbredis_bus: Bus) -> None:
    refusals: list[str] = []
    router = Router()

    @router.queue("late", create_if_missing=True)
    async def late() -> None: ...

    def declare(worker: Worker) -> None:
        for declaring in (
            lambda: worker.queue("late", create_if_missing=True)(late),
            lambda: worker.subscription("late", "all")(late),
            lambda: worker.cron("0 3 * * *")(late),
            lambda: worker.include(router),
            lambda: worker.entity("orders", max_concurrent_calls=1),
            lambda: worker.override(late, late),
        ):
            with pytest.raises(RuntimeError, match="The worker runs already: declare its handlers and"):
                declaring()
            refusals.append("")

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        declare(worker)
        yield

    worker = Worker(sbredis_bus.url, lifespan=lifespan)

    @worker.queue("orders", create_if_missing=True)
    async def place() -> None: ...

    async with worker.running():
        declare(worker)
    assert len(refusals) == 12
    worker.include(router)
    async with worker.running():
        await worker.send("late", b"")
        await eventually(lambda: empty(sbredis_bus, "late"))
