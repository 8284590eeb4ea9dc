"""Tests of handlers of messages that belong to sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import OperationTimeoutError, Outcome
from sbredis.testing import Bus
from sbredis.workers import Abandon, Complete, Context, Retries, Worker
from tests.waiting import eventually
from tests.workers.looking import empty

pytestmark = pytest.mark.anyio
NOW = Retries(first_delay=0)


async def test_messages_of_a_session_are_handled_in_order_with_its_state(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url, retries=NOW)
    seen: dict[str, list[int]] = {}

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(number: int, context: Context) -> None:
        session = context.session
        assert session is not None
        total = await session.get_state(int) or 0
        if number == 3 and context.attempt == 1:
            raise ValueError
        session.set_state(total + number)
        seen.setdefault(session.session_id, []).append(number)

    async with worker.running():
        for number in range(1, 6):
            for session_id in ("a", "b"):
                await worker.send("steps", number, session_id=session_id)
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert seen == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}
    for session_id in seen:
        async with sbredis_bus.client.get_queue_receiver("steps", session_id=session_id) as receiver:
            assert await receiver.session.get_state() == b"15"


async def test_nothing_overtakes_a_message_that_its_handler_abandons(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url, retries=NOW)
    seen: list[int] = []

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(number: int, context: Context) -> None:
        seen.append(number)
        await context.settle(Abandon() if context.attempt == 1 else Complete())

    async with sbredis_bus.client.get_queue_sender("steps") as sender:
        await sender.send_messages([ServiceBusMessage(number, session_id="a") for number in (b"1", b"2")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert seen == [1, 1, 2, 2]


async def test_a_session_that_is_interrupted_says_so(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    begun = asyncio.Event()
    told: list[bool] = []
    first, second = Worker(sbredis_bus.url, shutdown_timeout=0), Worker(sbredis_bus.url)

    @first.queue("steps")
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(3600)

    @second.queue("steps", session_idle_timeout=0.1)
    async def step(context: Context) -> None:
        told.append(context.interrupted)

    async with first.running():
        await first.send("steps", b"", session_id="a")
        await begun.wait()
    async with second.running():
        await second.send("steps", b"", session_id="a")
        await eventually(lambda: len(told) == 2)
    assert told == [True, False]


@pytest.mark.parametrize("batch", [None, 1])
async def test_a_message_whose_settlement_fails_is_not_overtaken(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch, batch: int | None
) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url)
    handled: list[str] = []
    errors = [OperationTimeoutError("the server is gone", outcome=Outcome.UNKNOWN)]
    complete = ServiceBusReceiver.complete_messages

    async def failing_once(receiver: ServiceBusReceiver, messages: Any, **options: Any) -> None:
        if errors:
            raise errors.pop()
        await complete(receiver, messages, **options)

    monkeypatch.setattr(ServiceBusReceiver, "complete_messages", failing_once)
    options: dict[str, Any] = {} if batch is None else {"batch": batch}

    @worker.queue("steps", session_idle_timeout=0.1, **options)
    async def step(context: Context) -> None:
        handled.append(str(context.message))

    async with sbredis_bus.client.get_queue_sender("steps") as sender:
        await sender.send_messages([ServiceBusMessage(text, session_id="a") for text in ("one", "two")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert handled == ["one", "one", "two"]


async def test_a_worker_holds_no_more_sessions_than_it_may(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url)
    begun: list[str] = []
    let_go = asyncio.Event()

    @worker.queue("steps", max_concurrent_calls=2, session_idle_timeout=0.1)
    async def step(text: str) -> None:
        begun.append(text)
        await let_go.wait()

    async with sbredis_bus.client.get_queue_sender("steps") as sender:
        await sender.send_messages([ServiceBusMessage(text, session_id=text) for text in "abc"])
    async with worker.running():
        await eventually(lambda: len(begun) == 2)
        for _ in range(200):
            await asyncio.sleep(0)
        receiver = await sbredis_bus.client.accept_next_session("steps", max_wait_time=60)
        assert receiver is not None
        assert sorted([*begun, receiver.session.session_id]) == ["a", "b", "c"]
        await receiver.close()
        let_go.set()
        await eventually(lambda: empty(sbredis_bus, "steps"))
