"""Workers run on a bus: what tests of applications can see, wait for and move."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessageLockLostError, MessagingEntityNotFoundError
from sbredis.management import EntityStatus
from sbredis.model import ServiceBusReceivedMessage, ServiceBusSubQueue
from sbredis.testing import Bus, SyncBus, WorkerRun
from sbredis.workers import (
    Abandon,
    CircuitBreaker,
    Complete,
    Context,
    DeadLetter,
    Defer,
    Depends,
    Outcome,
    Retries,
    SyncContext,
    Worker,
)
from tests.waiting import eventually

pytestmark = pytest.mark.slow
URL = "redis://nowhere.example.com"


def running(bus: Bus, worker: Worker, **options: Any) -> AbstractAsyncContextManager[WorkerRun]:
    """Run a worker on a bus. A busy machine has more time than by default."""
    return bus.running(worker, timeout=100, **options)


@dataclass
class Order:
    id: int


def get_price() -> float:
    raise ConnectionError("the price list is far away")


worker = Worker(URL, namespace="shop", http="127.0.0.1:1")


@worker.queue("orders", publishes="invoices")
async def place(order: Order, price: Annotated[float, Depends(get_price)]) -> dict[str, float] | Outcome:
    return {"total": order.id * price} if order.id else DeadLetter("NoOrder")


async def test_the_queues_of_permitted_replies_are_created(sbredis_bus: Bus) -> None:
    asked = Worker(URL)

    @asked.queue("questions", replies=["answers"])
    async def shout(question: str) -> str:
        return question.upper()

    async with running(sbredis_bus, asked) as run:
        await run.send("questions", "why", reply_to="answers")
        await run.idle()
    assert [bytes(message.body) for message in await sbredis_bus.sent("answers")] == [b"WHY"]


async def test_the_worker_of_the_application_runs_as_it_is(sbredis_bus: Bus) -> None:
    async with running(sbredis_bus, worker, overrides={get_price: lambda: 2.0}) as run:
        for number in (1, 0, 3):
            await run.send("orders", Order(number))
        await run.idle()
        assert run.outcomes("orders") == [Complete(), DeadLetter("NoOrder"), Complete()]
    first, second, _ = run.handled()
    assert (first.handler, first.entity, first.error, first.message.delivery_count) == (place, "orders", None, 1)
    assert [(sent.entity, sent.value()) for sent in first.sends] == [("invoices", {"total": 2.0})]
    assert not second.sends
    assert repr(second) == "<Handled orders: message 2, attempt 1, place: DeadLetter(reason='NoOrder')>"
    assert sorted(message.body for message in await sbredis_bus.sent("invoices")) == [
        b'{"total":2.0}',
        b'{"total":6.0}',
    ]


async def test_overrides_end_with_their_run(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    for overrides, outcome in (
        ({get_price: lambda: 1.0}, Complete()),
        (None, DeadLetter("ConnectionError", "the price list is far away")),
    ):
        async with running(sbredis_bus, worker, overrides=overrides) as run:
            await run.send("orders", Order(1))
            await run.idle()
        assert run.outcomes() == [outcome]
        assert (run.handled()[0].error is None) == (overrides is not None)


async def test_all_attempts_of_a_message_run_when_the_clock_may_advance(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=4)
    begins = sbredis_bus.clock.now
    async with running(sbredis_bus, worker) as run:
        await run.send("orders", Order(1))
        await run.idle()
        assert run.outcomes() == [Abandon(1)]
        await run.idle(advance=True)
    dead = DeadLetter("ConnectionError", "the price list is far away")
    assert run.outcomes() == [Abandon(1), Abandon(2), Abandon(4), dead]
    assert timedelta(seconds=7) <= sbredis_bus.clock.now - begins


async def test_the_error_of_a_handler_is_raised_if_the_test_wants_it(sbredis_bus: Bus) -> None:
    async with running(sbredis_bus, worker) as run:
        await run.send("orders", Order(1))
        with pytest.raises(ConnectionError, match="the price list is far away"):
            await run.idle(raise_errors=True)
        await run.idle(raise_errors=True)  # it was raised already
        assert run.outcomes() == [Abandon(1)]


async def test_a_batch_waits_until_the_test_waits(sbredis_bus: Bus) -> None:
    own, batches = Worker(URL), list[list[str]]()

    @own.queue("lines", batch=10, batch_wait=25)
    async def insert(lines: list[str]) -> list[Outcome | None]:
        batches.append(lines)
        return [None if line != "b" else DeadLetter("Odd") for line in lines]

    async with running(sbredis_bus, own) as run:
        for line in "abc":
            await run.send("lines", line)
        await run.idle()
    assert batches == [["a", "b", "c"]]
    assert run.outcomes() == [Complete(), DeadLetter("Odd"), Complete()]


async def test_sessions_do_not_wait_for_their_idle_timeout(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    own, seen = Worker(URL), list[tuple[str | None, int]]()

    @own.queue("steps", max_concurrent_calls=1, session_idle_timeout=3000, max_session_time=6000)
    async def step(number: int, context: Context) -> None:
        assert context.session is not None
        count = await context.session.get_state(int) or 0
        context.session.set_state(count + number)
        seen.append((context.session.session_id, count + number))

    async with running(sbredis_bus, own) as run:
        for session in ("a", "b"):
            for number in (1, 2):
                await run.send("steps", number, session_id=session)
        await run.idle()
    assert seen == [("a", 1), ("a", 3), ("b", 1), ("b", 3)]


async def test_a_delay_holds_back_a_session_until_the_clock_moves(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    own, seen = Worker(URL), list[tuple[int, int]]()

    @own.queue("steps")
    async def step(number: int, context: Context) -> Outcome | None:
        seen.append((number, context.attempt))
        return Abandon(60) if len(seen) == 1 else None

    async with running(sbredis_bus, own) as run:
        for number in (1, 2):
            await run.send("steps", number, session_id="a")
        await run.idle()
        assert seen == [(1, 1)]
        await run.idle(advance=True)
    assert seen == [(1, 1), (1, 2), (2, 1)]


async def test_a_lock_ends_when_the_clock_passes_it(sbredis_bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    own, attempts = Worker(URL), list[tuple[int, bool]]()

    @own.queue("orders")
    async def pack(context: Context) -> None:
        attempts.append((context.attempt, context.interrupted))
        if len(attempts) < 3:
            await asyncio.Event().wait()

    def lost() -> bool:
        return any("lock" in record.message for record in caplog.records if record.levelno >= logging.WARNING)

    async with running(sbredis_bus, own, shutdown_timeout=0) as run:
        await run.send("orders", b"")
        await run.until(lambda: len(attempts) == 1)
        sbredis_bus.clock.advance(minutes=5)
        await run.until(lambda: len(attempts) == 2 and lost())
    assert [(each.outcome, each.lock_lost, each.interrupted) for each in run.handled()] == [
        (None, True, False),
        (None, False, True),
    ]
    async with running(sbredis_bus, own) as run:
        await run.idle()
    assert attempts == [(1, False), (2, False), (2, True)]
    assert run.outcomes() == [Complete()]


@pytest.mark.parametrize("settles", [False, True], ids=["at the end", "by the handler"])
async def test_a_completion_after_the_end_of_its_lock_is_shown_as_lost(sbredis_bus: Bus, *, settles: bool) -> None:
    await sbredis_bus.create_queue("orders", lock_duration="PT30S")
    own = Worker(URL)

    @own.queue("orders", max_auto_lock_renewal_duration=1)
    async def pack(context: Context) -> None:
        if context.attempt == 1:
            sbredis_bus.clock.advance(minutes=1)
            if settles:
                await context.settle(Complete())

    async with running(sbredis_bus, own) as run:
        await run.send("orders", b"")
        await run.until(lambda: len(run.handled()) == 2)
        await run.idle()
    first, second = run.handled()
    assert (first.outcome, type(first.error)) == (None, MessageLockLostError)
    assert (second.outcome, second.error) == (Complete(), None)


async def test_a_message_that_its_handler_leaves_does_not_keep_the_worker_from_being_idle(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    own = Worker(URL)

    @own.queue("orders", auto_complete=False)
    async def leave() -> None: ...

    async with running(sbredis_bus, own) as run:
        await run.send("orders", b"")
        await run.idle()
        assert len(await sbredis_bus.locked("orders")) == 1
        assert run.outcomes() == [None]
        await run.idle(advance=True)
    assert run.outcomes() == [None, None]
    (dead,) = await sbredis_bus.dead_lettered("orders")
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


async def test_a_handler_may_settle_and_go_on(sbredis_bus: Bus) -> None:
    own, settled, go = Worker(URL), asyncio.Event(), asyncio.Event()

    @own.queue("orders")
    async def settle(context: Context) -> None:
        await context.settle(Defer())
        settled.set()
        await go.wait()

    async with running(sbredis_bus, own) as run:
        await run.send("orders", b"")
        await settled.wait()
        with pytest.raises(TimeoutError, match=r"orders: .*settle has run for .* at .*test_workers\.py"):
            await run.idle(timeout=0.1)
        go.set()
        await run.idle()
    assert run.outcomes() == [Defer()]


async def test_a_message_that_no_handler_takes_is_shown_too(sbredis_bus: Bus) -> None:
    own = Worker(URL)

    @own.subscription("orders", "kitchen", subject="tea")
    async def make(text: str) -> None: ...

    async with running(sbredis_bus, own) as run:
        await run.send("orders", "one", subject="coffee")
        await run.send("orders", b"\xff", subject="tea")
        await run.idle()
    path = "orders/subscriptions/kitchen"
    assert [(each.entity, each.handler) for each in run.handled(path)] == [(path, None), (path, make)]
    assert [each.outcome.reason for each in run.handled() if isinstance(each.outcome, DeadLetter)] == [
        "NoHandler",
        "MessageBody",
    ]


async def test_a_scheduled_message_of_a_topic_is_published_when_the_clock_may_advance(sbredis_bus: Bus) -> None:
    own, seen = Worker(URL), list[str]()

    @own.subscription("orders", "kitchen")
    def make(text: str, context: SyncContext) -> None:
        seen.append(f"{text} {context.attempt}")

    async with running(sbredis_bus, own) as run:
        later = sbredis_bus.clock.now + timedelta(days=3)
        await run.send("orders", "one", scheduled_enqueue_time_utc=later)
        await run.idle()
        assert seen == []
        await run.idle(advance=True)
    assert seen == ["one 1"]
    assert sbredis_bus.clock.now >= later


async def test_dead_letters_are_handled_and_come_again(sbredis_bus: Bus) -> None:
    own, attempts = Worker(URL, retries=Retries(first_delay=5)), list[str]()

    @own.queue("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    async def mend(text: str) -> None:
        attempts.append(text)
        if len(attempts) < 3:
            raise LookupError

    await sbredis_bus.create_queue("orders")
    async with sbredis_bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("one"))
    async with sbredis_bus.client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages()
        await receiver.dead_letter_message(message)
    async with running(sbredis_bus, own) as run:
        await run.idle()
        assert attempts == ["one"]
        await run.idle(advance=True)
    assert run.outcomes("orders/$DeadLetterQueue") == [Abandon(300), Abandon(300), Complete()]


async def test_a_breaker_tries_again_when_the_clock_moves_and_forgets_earlier_runs(sbredis_bus: Bus) -> None:
    breaker, down = CircuitBreaker(failures=2, pause=600), [True]
    own = Worker(URL, middleware=[breaker], retries=Retries(first_delay=0))

    @own.queue("orders")
    async def place() -> None:
        if down:
            raise ConnectionError

    async with running(sbredis_bus, own) as run:
        await run.send("orders", b"")
        await run.until(lambda: run.paused)
        with pytest.raises(TimeoutError, match=r"orders is paused until the clock has moved: CircuitBreaker"):
            await run.idle(timeout=0.1)
        down.clear()
        await run.idle(advance=True)
        assert run.outcomes()[-1] == Complete()
        down.append(True)
        await run.send("orders", b"")
        await run.until(lambda: run.paused)
    down.clear()
    async with running(sbredis_bus, own) as run:
        await run.until(lambda: not run.paused)
        await run.idle()
    assert run.outcomes() == [Complete()]


async def test_a_paused_entity_is_named_and_looked_at_again_when_the_clock_moves(sbredis_bus: Bus) -> None:
    own = Worker(URL)

    @own.queue("orders")
    async def place() -> None: ...

    async with ServiceBusAdministrationClient(sbredis_bus.url) as administration, running(sbredis_bus, own) as run:
        queue = await administration.get_queue("orders")
        queue.status = EntityStatus.RECEIVE_DISABLED
        await administration.update_queue(queue)
        await run.send("orders", b"")
        await run.until(lambda: run.paused)
        with pytest.raises(TimeoutError, match=r"message 1: active in the paused entity\n- orders is paused"):
            await run.idle(timeout=0.1)
        assert list(run.paused) == ["orders"]
        queue.status = EntityStatus.ACTIVE
        await administration.update_queue(queue)
        await run.idle(advance=True)
        await run.until(lambda: not run.paused)
    assert run.outcomes() == [Complete()]


async def test_the_clock_stands_still_while_a_worker_runs(sbredis_bus: Bus) -> None:
    before = sbredis_bus.clock.now
    async with running(sbredis_bus, worker) as run:
        stands = sbredis_bus.clock.now
        await run.send("orders", Order(1))
        await run.idle()
        assert sbredis_bus.clock.now == stands >= before
        sbredis_bus.clock.advance(hours=1)
        assert sbredis_bus.clock.now == stands + timedelta(hours=1)
    assert sbredis_bus.clock.now >= stands + timedelta(hours=1)
    seen = sbredis_bus.clock.now
    await eventually(lambda: sbredis_bus.clock.now > seen)


async def test_a_lock_of_somebody_else_is_named(sbredis_bus: Bus) -> None:
    own = Worker(URL)

    @own.queue("orders")
    async def place() -> None: ...

    await sbredis_bus.create_queue("orders")
    async with (
        sbredis_bus.client.get_queue_sender("orders") as sender,
        sbredis_bus.client.get_queue_receiver("orders") as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("one"))
        (message,) = await receiver.receive_messages()
        async with running(sbredis_bus, own) as run:
            with pytest.raises(TimeoutError, match="message 1: locked, but not by a handler of this worker"):
                await run.idle(timeout=0.1)
            await receiver.complete_message(message)
            await run.idle()
    assert run.handled() == []


async def test_a_condition_that_never_holds_says_what_is_outstanding(sbredis_bus: Bus) -> None:
    async with sbredis_bus.running(worker, timeout=0.1) as run:
        with pytest.raises(TimeoutError, match=r"The condition is not true after 0\.1 s\.\n- nothing is outstanding"):
            await run.until(lambda: False)


async def test_a_test_that_fails_does_not_wait_for_handlers(sbredis_bus: Bus) -> None:
    own, began = Worker(URL, shutdown_timeout=3600), asyncio.Event()

    @own.queue("orders")
    async def place() -> None:
        began.set()
        await asyncio.Event().wait()

    runs: list[WorkerRun] = []

    async def fail() -> None:
        async with sbredis_bus.running(own, timeout=3600) as run:
            runs.append(run)
            await run.send("orders", b"")
            await began.wait()
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert [each.interrupted for each in runs[0].handled()] == [True]


async def test_wrong_names_are_errors(sbredis_bus: Bus) -> None:
    async with running(sbredis_bus, worker) as run:
        with pytest.raises(ValueError, match=r"The worker has no handler of 'order'\. It handles: orders\."):
            run.outcomes("order")
        with pytest.raises(MessagingEntityNotFoundError):
            await run.send("order", b"")
    given: Any = "worker"
    with pytest.raises(TypeError, match="running\\(\\) takes a Worker, not str"):
        async with running(sbredis_bus, given):
            pass


async def test_the_lifespan_gets_the_worker_and_runs_each_time(sbredis_bus: Bus) -> None:
    seen: list[Any] = []

    @asynccontextmanager
    async def lifespan(given: Worker) -> AsyncGenerator[None]:
        seen.append(given)
        await given.send("orders", b"")
        yield

    own = Worker(URL, lifespan=lifespan)

    @own.queue("orders")
    async def place(message: ServiceBusReceivedMessage) -> None: ...

    for _ in range(2):
        async with running(sbredis_bus, own) as run:
            await run.idle()
        assert run.outcomes() == [Complete()]
    assert seen == [own, own]


async def test_schedules_follow_the_clock_of_the_bus(sbredis_bus: Bus) -> None:
    own, ticks = Worker(URL), list[Any]()
    sbredis_bus.clock.move_to((sbredis_bus.clock.now + timedelta(days=1)).replace(hour=12, minute=30))

    @own.cron("0 * * * *", queue="reports")
    async def report(context: Context) -> None:
        assert context.tick is not None
        ticks.append(context.tick.hour)

    async with running(sbredis_bus, own) as run:
        await run.idle()
        assert ticks == []
        for _ in range(3):
            sbredis_bus.clock.advance(hours=1)
            await run.idle()
    assert ticks == [13, 14, 15]
    assert run.outcomes("reports") == [Complete()] * 3


def test_a_worker_runs_in_a_test_without_an_event_loop(sbredis_sync_bus: SyncBus) -> None:
    with sbredis_sync_bus.running(worker, overrides={get_price: lambda: 2.0}, timeout=100) as run:
        run.send("orders", Order(4))
        run.until(lambda: sbredis_sync_bus.sent("invoices"))
        with pytest.raises(TimeoutError, match=r"The condition is not true after 0\.1 s\."):
            run.until(lambda: False, timeout=0.1)
        run.idle(advance=True)
    assert run.outcomes("orders") == [Complete()]
    assert [message.body for message in sbredis_sync_bus.sent("invoices")] == [b'{"total":8.0}']
    assert [each.handler for each in run.handled()] == [place]
    assert repr(run) == "<SyncWorkerRun 1 handled, 0 in work>"


async def test_a_run_shows_its_counts(sbredis_bus: Bus) -> None:
    async with running(sbredis_bus, worker) as run:
        assert isinstance(run, WorkerRun)
        assert repr(run) == "<WorkerRun 0 handled, 0 in work>"
