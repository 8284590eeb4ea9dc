"""Tests of how a worker settles messages: acknowledged, in order, together with what was sent, or with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import MessageLockLostError, ServiceBusCommunicationError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Abandon, Complete, Context, DeadLetter, Retries, Router, Worker
from sbredis.workers.declaring._handlers import Defaults, EntityPlan, plan_of
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.waiting import eventually
from tests.workers.looking import dead, empty, send_to, worker_of

NOW = Retries(first_delay=0)


# -- settlements that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ServiceBusCommunicationError("the server is gone"), RuntimeError("a defect")])
async def test_a_completion_that_fails_reaches_the_hook_and_the_counts(sbredis_bus: Bus, error: Exception) -> None:
    errors: list[BaseException] = []
    worker = await worker_of(sbredis_bus, "orders", on_error=lambda _, raised: errors.append(raised))

    @worker.queue("orders")
    async def place() -> None: ...

    async with worker.running():
        transport: Any = worker._running().client._connection.transport
        through = transport.call

        async def call(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "complete":
                raise error
            return await through(script, *arguments, **options)

        divert(transport, call)
        await worker.send("orders", b"")
        await eventually(lambda: errors)
        counts = worker._running().report().counts["orders"]
    assert [str(error) in str(one) for one in errors] == [True]
    assert (counts.settlements_failed, counts.completed, counts.errors) == (1, 0, 0)


@pytest.mark.parametrize("others", [["one"], ["one", "two", "three"]])
async def test_a_message_that_was_settled_elsewhere_does_not_spoil_those_completed_with_it(
    sbredis_bus: Bus, others: list[str]
) -> None:
    errors: list[str] = []
    worker = await worker_of(sbredis_bus, "orders", on_error=lambda _, error: errors.append(type(error).__name__))
    all_there = asyncio.Event()
    seen: list[str] = []

    @worker.queue("orders")
    async def place(text: str, message: ServiceBusReceivedMessage) -> None:
        if text == "odd":
            await worker.client.get_receiver("orders").complete_message(message)
        seen.append(text)
        if len(seen) == len(others) + 1:
            all_there.set()
        await all_there.wait()

    await send_to(sbredis_bus, "orders", [ServiceBusMessage(text) for text in ("odd", *others)])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: errors)
        counts = worker._running().report().counts["orders"]
    assert errors == ["MessageAlreadySettled"]
    assert (counts.completed, counts.settlements_failed) == (len(others), 1)


async def test_a_message_whose_lock_was_lost_is_not_counted_among_those_completed_with_it(sbredis_bus: Bus) -> None:
    errors: list[BaseException] = []
    worker = await worker_of(sbredis_bus, "orders", on_error=lambda _, error: errors.append(error))
    all_there = asyncio.Event()
    seen: list[str] = []

    @worker.queue("orders")
    async def place(text: str, message: ServiceBusReceivedMessage) -> None:
        if text == "odd" and message.delivery_count == 1:
            token = str(message.lock_token)
            await sbredis_bus.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
        seen.append(text)
        if len(seen) >= 3:
            all_there.set()
        await all_there.wait()

    await send_to(sbredis_bus, "orders", [ServiceBusMessage(text) for text in ("one", "odd", "two")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: errors)
        counts = worker._running().report().counts["orders"]
    assert [type(error) for error in errors] == [MessageLockLostError]
    assert sorted(seen) == ["odd", "odd", "one", "two"]
    assert (counts.completed, counts.settlements_failed) == (3, 1)


async def test_a_message_that_is_completed_with_its_earlier_delivery_is_counted_once(sbredis_bus: Bus) -> None:
    """The earlier delivery has the same number, but its lock has ended."""
    errors: list[BaseException] = []
    worker = await worker_of(sbredis_bus, "orders", on_error=lambda _, error: errors.append(error))
    both_there = asyncio.Event()

    @worker.queue("orders", max_concurrent_calls=2)
    async def place(message: ServiceBusReceivedMessage) -> None:
        if message.delivery_count == 1:
            token = str(message.lock_token)
            await sbredis_bus.client.get_settler("orders").abandon_message(token)  # as if the lock had ended
        else:
            both_there.set()
        await both_there.wait()

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: errors)
        counts = worker._running().report().counts["orders"]
    assert [type(error) for error in errors] == [MessageLockLostError]
    assert (counts.completed, counts.settlements_failed) == (1, 1)


async def test_a_batch_with_one_lost_lock_completes_the_rest(sbredis_bus: Bus) -> None:
    errors: list[BaseException] = []
    worker, sizes = await worker_of(sbredis_bus, "orders", on_error=lambda _, error: errors.append(error)), list[int]()

    @worker.queue("orders", batch=3, batch_wait=0.01)
    async def place(messages: list[ServiceBusReceivedMessage]) -> None:
        sizes.append(len(messages))
        if len(messages) == 3:
            token = str(messages[1].lock_token)
            await sbredis_bus.client.get_settler("orders").abandon_message(token)  # as if the lock had ended

    await send_to(sbredis_bus, "orders", [ServiceBusMessage(text) for text in ("one", "two", "three")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus))
        counts = worker._running().report().counts["orders"]
    assert sizes == [3, 1]
    assert [type(error) for error in errors] == [MessageLockLostError]
    assert (counts.completed, counts.settlements_failed) == (3, 1)


async def test_a_batch_that_fails_is_reported_although_one_of_its_locks_was_lost(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """The hook hears of the messages whose locks are held."""
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    errors: list[tuple[str, str]] = []
    worker = Worker(sbredis_bus.url, on_error=lambda message, error: errors.append((str(message), str(error))))

    @worker.queue("orders", batch=3, batch_wait=30)
    async def place(messages: list[ServiceBusReceivedMessage]) -> None:
        await asyncio.sleep(0)  # a lock is never lost during the first step of a task
        consumer: Any = worker._running().services[0].consumer
        assert consumer.lost(messages[0])
        raise ValueError("the reason")

    await send_to(sbredis_bus, "orders", [ServiceBusMessage(text) for text in ("one", "two", "three")])
    async with worker.running():
        await eventually(lambda: len(errors) >= 2)
    assert errors == [("two", "the reason"), ("three", "the reason")]
    assert "place failed for message 2 and 1 more" in caplog.text


def sends_much(context: Context) -> None:
    for number in range(100):
        context.send("out", number)


def sends_long(context: Context) -> None:
    for _ in range(5):
        context.send("out", bytes(1_000_000))


def remembers_much(context: Context) -> None:
    for number in range(100):
        context.once(str(number), 60)


@pytest.mark.parametrize("behave", [sends_much, sends_long, remembers_much])
async def test_a_message_whose_sends_no_transaction_can_take_is_dead_lettered_at_once(
    sbredis_bus: Bus, behave: Callable[[Context], None]
) -> None:
    await sbredis_bus.create_queue("out", max_message_size_in_kilobytes=1024)
    worker, attempts = await worker_of(sbredis_bus, "orders"), list[int]()

    @worker.queue("orders")
    async def place(context: Context) -> None:
        attempts.append(context.attempt)
        behave(context)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: dead(sbredis_bus, 1))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "MessageSizeExceededError"
    assert "transaction takes up to" in str(letter.dead_letter_error_description)
    assert attempts == [1]
    assert await empty(sbredis_bus, "out")


async def test_a_handler_may_send_as_much_as_a_transaction_takes(sbredis_bus: Bus) -> None:
    """A hundred items: its message, one key twice, the state of its session, and 97 messages."""
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = await worker_of(sbredis_bus, "out")

    @worker.queue("steps", session_idle_timeout=0.05)
    async def step(context: Context) -> None:
        assert context.session is not None
        for _ in range(2):
            context.once("key", 60)
            context.session.set_state("state")
        for number in range(97):
            context.send("out", number)

    async with worker.running():
        await worker.send("steps", b"", session_id="a")
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert len(await sbredis_bus.active("out")) == 97
    assert await state_of(sbredis_bus, "a") == b"state"


# -- acknowledgements --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
async def test_few_handlers_start_while_outcomes_are_unacknowledged_and_the_end_waits_for_all(
    sbredis_bus: Bus, stops: bool
) -> None:
    worker, begun = await worker_of(sbredis_bus, "orders", max_concurrent_calls=2), list[int]()

    @worker.queue("orders", prefetch=0)
    async def place(number: int) -> None:
        begun.append(number)

    async with worker.running(), sbredis_bus.client.get_queue_sender("orders") as sender:
        gate = Gate(worker._running().client, "complete").__enter__()
        gate.shut = True
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
        consumer: Any = worker._running().services[0].consumer
        await eventually(lambda: consumer.settlements.unacknowledged > 2)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(begun) <= 4  # two whose outcomes are unacknowledged, and two that started with them
        if stops:
            asyncio.get_running_loop().call_later(0.05, gate.open)
        else:
            gate.open()
            await eventually(lambda: empty(sbredis_bus))
    assert len(await sbredis_bus.active("orders")) == (20 - len(begun))
    assert not await sbredis_bus.locked("orders")


# -- sessions ----------------------------------------------------------------------------------------------------------


async def state_of(bus: Bus, session_id: str) -> bytes | None:
    async with bus.client.get_queue_receiver("steps", session_id=session_id) as receiver:
        return await receiver.session.get_state()


@pytest.mark.slow
async def test_a_delay_holds_back_the_session_and_a_failure_leaves_its_state(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker = Worker(sbredis_bus.url, retries=Retries(first_delay=0.2, jitter=False))
    told: list[str] = []

    @worker.queue("steps", session_idle_timeout=0.05)
    async def step(text: str, context: Context) -> Any:
        told.append(f"{text} {context.attempt}")
        assert context.session is not None
        if context.attempt == 1:
            context.session.set_state("wrong")
            if text == "one":
                raise ValueError
            if text == "two":
                return Abandon(delay=0.2)
        state = await context.session.get_state(str)
        context.session.set_state((state or "") + text)
        return None

    async with worker.running():
        for text in ("one", "two", "three"):
            await worker.send("steps", text, session_id="a")
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert told == ["one 1", "one 2", "two 1", "two 2", "three 1"]
    assert await state_of(sbredis_bus, "a") == b"onetwothree"


async def test_a_handler_of_a_session_may_settle_in_the_middle_or_not_at_all(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker, told = await worker_of(sbredis_bus, "out", retries=NOW), list[str]()

    @worker.queue("steps", session_idle_timeout=0.05, auto_complete=False)
    async def step(text: str, context: Context) -> None:
        told.append(text)
        assert context.session is not None
        if text != "left":
            context.send("out", text)
            context.session.set_state(text)
            await context.settle(DeadLetter("no") if text == "dead" else Complete())
            raise ValueError("after the end")

    async with worker.running():
        for text in ("one", "dead", "left"):
            await worker.send("steps", text, session_id="a")
        await eventually(lambda: "left" in told)
    assert told[:3] == ["one", "dead", "left"]
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"one"]
    assert await state_of(sbredis_bus, "a") == b"one"
    assert [bytes(message.body) for message in await sbredis_bus.active("steps")] == [b"left"]


async def test_a_session_whose_lock_is_lost_ends_its_handler_and_comes_again(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "steps", requires_session=True, lock_duration=timedelta(seconds=5))
    told: list[str] = []
    begun = asyncio.Event()

    @worker.queue("steps", session_idle_timeout=0.05)
    async def step(context: Context) -> None:
        assert context.session is not None
        context.session.set_state("wrong" if context.attempt == 1 and not begun.is_set() else "right")
        if not begun.is_set():
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                told.append(f"ended, {context.lock_lost}")
        told.append("handled")

    async with worker.running():
        await worker.send("steps", b"", session_id="a")
        await begun.wait()
        consumer: Any = worker._running().services[0].consumer
        (session,) = consumer.renewables()
        consumer.lost(session)
        await eventually(lambda: "handled" in told)
        await eventually(lambda: empty(sbredis_bus, "steps"))
        counts = worker._running().report().counts["steps"]
    assert (counts.locks_lost, counts.errors, counts.abandoned, counts.settlements_failed) == (1, 0, 0, 0)
    assert told == ["ended, True", "handled"]
    assert await state_of(sbredis_bus, "a") == b"right"


# -- which retries count -----------------------------------------------------------------------------------------------


def planned(router: Router, worker: Retries, entity: Retries | None) -> EntityPlan:
    by_path = {} if entity is None else {"q": {"retries": entity}}
    (plan,) = plan_of(router._declared, Defaults(entity={}, by_path=by_path, retries=worker, overrides={}))
    return plan


# -- options that do not fit -------------------------------------------------------------------------------------------


def in_a_process(text: str) -> None: ...


def test_handlers_in_processes_run_as_often_as_there_are_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    router = Router()
    router.queue("q", execution="process")(in_a_process)
    assert planned(router, Retries(), None).settings.max_concurrent_calls == 3
    router = Router()
    router.queue("q", execution="process", max_concurrent_calls=7)(in_a_process)
    assert planned(router, Retries(), None).settings.max_concurrent_calls == 7


@pytest.mark.parametrize("session", [None, "a"])
async def test_a_handler_whose_lock_was_lost_is_cut_off_only_once(sbredis_bus: Bus, session: str | None) -> None:
    """Its clean-up may go on after that, although the worker is told to end once more."""
    worker, cancelled = await worker_of(sbredis_bus, "orders", requires_session=session is not None), list[int]()
    begun, ends = asyncio.Event(), asyncio.Event()

    @worker.queue("orders")
    async def place() -> None:
        begun.set()
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                cancelled.append(1)

    await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage("one", session_id=session))
    async with worker.running():
        try:
            consumer: Any = worker._running().services[0].consumer
            await begun.wait()  # a session is renewed before, too
            assert consumer.lost(next(iter(consumer.renewables())))
            await eventually(lambda: len(cancelled) == 1)
            for _ in range(2):
                consumer.cancel()
                await eventually(lambda: len(cancelled) == 2)
                await asyncio.sleep(0)
            assert len(cancelled) == 2
        finally:
            ends.set()  # or the handler would never end
