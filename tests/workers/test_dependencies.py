"""Handlers share the dependencies of the worker and of a session, and each dependency ends once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import nullcontext
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Depends, Router, Worker
from tests.waiting import eventually
from tests.workers.looking import send_to, worker_of


async def test_all_handlers_of_a_worker_share_what_is_made_for_the_worker(sbredis_bus: Bus) -> None:
    for queue in ("one", "two", "three"):
        await sbredis_bus.create_queue(queue)
    worker, router = Worker(sbredis_bus.url), Router()
    told: list[str] = []
    seen: list[tuple[str, object]] = []
    asked, let_go = asyncio.Event(), asyncio.Event()

    def url() -> str:
        raise AssertionError

    def fake_url() -> Generator[str]:
        told.append("url")
        yield "fake"
        told.append("url closed")

    async def pool(of: Annotated[str, Depends(url, scope="app")]) -> AsyncGenerator[object]:
        told.append(f"pool of {of}")
        asked.set()
        await let_go.wait()  # handlers ask for it at the same time
        yield object()
        told.append("pool closed")

    @worker.queue("one", subject="a")
    async def one(value: Annotated[object, Depends(pool, scope="app")]) -> None:
        seen.append(("one", value))

    @worker.queue("one", subject="b")
    async def other(value: Annotated[object, Depends(pool, scope="app")]) -> None:
        seen.append(("other", value))

    @worker.queue("two")
    def two(
        value: Annotated[object, Depends(pool, scope="app")], at: Annotated[str, Depends(url, scope="app")]
    ) -> None:
        seen.append((f"two {at}", value))

    @router.queue("three")
    async def three(value: Annotated[object, Depends(pool, scope="app")]) -> None:
        seen.append(("three", value))

    worker.include(router)
    worker.override(url, fake_url)
    async with worker.running():
        await worker.send("one", b"", subject="a")
        await worker.send("one", b"", subject="b")
        await worker.send("two", b"")
        await worker.send("three", b"")
        await asked.wait()
        assert worker._runtime is not None
        counts = worker._runtime._counts
        await eventually(lambda: sum(own.running for each in counts.values() for own in each.handlers.values()) == 4)
        let_go.set()
        await eventually(lambda: len(seen) == 4)
    assert {name for name, _ in seen} == {"one", "other", "two fake", "three"}
    assert len({id(value) for _, value in seen}) == 1
    assert told == ["url", "pool of fake", "pool closed", "url closed"]


async def test_the_handlers_of_a_session_share_what_is_made_for_the_session(sbredis_bus: Bus) -> None:
    worker, made = await worker_of(sbredis_bus, "steps", requires_session=True), list[int]()
    seen: list[tuple[str, int]] = []

    async def number() -> AsyncGenerator[int]:
        made.append(len(made))
        yield made[-1]
        seen.append(("closed", made[-1]))

    @worker.queue("steps", subject="a", session_idle_timeout=0.05)
    async def first(value: Annotated[int, Depends(number, scope="session")]) -> None:
        seen.append(("first", value))

    @worker.queue("steps", subject="b")
    def second(value: Annotated[int, Depends(number, scope="session")]) -> None:
        seen.append(("second", value))

    for session in range(2):
        for subject in ("a", "b"):
            message = ServiceBusMessage(b"", subject=subject, session_id="s")
            await sbredis_bus.client.get_queue_sender("steps").send_messages(message)
        async with worker.running():
            await eventually(lambda: ("closed", session) in seen)  # noqa: B023 -- it is called in this round
    assert seen == [(name, session) for session in range(2) for name in ("first", "second", "closed")]


async def test_dependencies_of_sessions_that_end_slowly_keep_their_slots(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "steps", requires_session=True)
    live, most, let_go = 0, 0, asyncio.Event()
    done: list[int] = []

    async def connection() -> AsyncGenerator[None]:
        nonlocal live, most
        live += 1
        most = max(most, live)
        yield
        await let_go.wait()
        live -= 1

    @worker.queue("steps", max_concurrent_calls=2)
    async def step(_: Annotated[None, Depends(connection, scope="session")]) -> None:
        done.append(live)

    await send_to(sbredis_bus, "steps", [ServiceBusMessage(b"", session_id=str(number)) for number in range(40)])
    async with worker.running():
        await eventually(lambda: len(done) >= 2)
        for _ in range(1000):  # if slots were free, other sessions would be accepted now
            await asyncio.sleep(0)
        let_go.set()
        await eventually(lambda: len(done) == 40)
    assert most == 2


@pytest.mark.parametrize("scope", ["app", "session"])
async def test_a_dependency_whose_end_fails_is_reported_once_and_the_others_end_as_usual(
    sbredis_bus: Bus, scope: Any, caplog: pytest.LogCaptureFixture
) -> None:
    worker, told = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()

    def plain() -> Generator[None]:
        yield
        told.append("plain closed")

    async def waiting(_: Annotated[None, Depends(plain, scope=scope)]) -> AsyncGenerator[None]:
        yield
        told.append("waiting closed")

    async def failing(_: Annotated[None, Depends(waiting, scope=scope)]) -> AsyncGenerator[None]:
        yield
        told.append("failing")
        raise LookupError("the end is wrong")

    @worker.queue("steps", session_idle_timeout=0.05)
    async def step(_: Annotated[None, Depends(failing, scope=scope)]) -> None:
        told.append("handled")

    with pytest.raises(LookupError, match="the end is wrong") if scope == "app" else nullcontext():
        async with worker.running():
            await worker.send("steps", b"", session_id="s")
            await eventually(lambda: "handled" in told)
    assert told == ["handled", "failing", "waiting closed", "plain closed"]
    assert caplog.text.count("LookupError: the end is wrong") == (0 if scope == "app" else 1)
