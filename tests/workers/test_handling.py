"""A worker handles messages: their outcomes, dependencies, results and replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import (
    Abandon,
    Complete,
    Context,
    DeadLetter,
    Defer,
    Depends,
    Retries,
    SyncContext,
    Worker,
)
from tests.waiting import eventually
from tests.workers.looking import bodies, empty, worker_of


@dataclass
class Order:
    id: int
    price: float = 0.0


NOW = Retries(first_delay=0)


async def test_a_handler_gets_each_message_and_its_return_completes_it(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "orders"), list[Order]()

    @worker.queue("orders")
    async def place(order: Order) -> None:
        seen.append(order)

    async with worker.running():
        for number in range(3):
            await worker.send("orders", Order(number))
        await eventually(lambda: len(seen) == 3)
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sorted(order.id for order in seen) == [0, 1, 2]
    assert not await sbredis_bus.dead_lettered("orders")


async def test_a_plain_function_runs_in_a_thread(sbredis_bus: Bus) -> None:
    worker, attempts = await worker_of(sbredis_bus, "orders", "out"), list[int]()

    @worker.queue("orders")
    def place(text: str, context: SyncContext) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        attempts.append(context.attempt)
        context.renew()
        context.send("out", text.upper())

    async with worker.running():
        await worker.send("orders", "abc")
        await eventually(lambda: bodies(sbredis_bus, "out"))
    assert attempts == [1]
    assert await bodies(sbredis_bus, "out") == [b"ABC"]
    assert await empty(sbredis_bus, "orders")


@pytest.mark.parametrize("raised", [False, True])
async def test_an_outcome_is_returned_or_raised(sbredis_bus: Bus, raised: bool) -> None:
    """It goes before all retries."""
    worker = await worker_of(sbredis_bus, "orders", retries=Retries(first_delay=300, attempts=1))
    outcomes = {"dead": DeadLetter("NoStock", "there is none"), "defer": Defer(), "again": Abandon()}
    attempts: list[int] = []

    @worker.queue("orders")
    async def place(text: str, context: Context) -> Any:
        if text == "again":
            attempts.append(context.attempt)
            if context.attempt == 3:
                return None
        if raised:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(outcomes[text]))
        return outcomes[text]

    async def fail(error: Exception) -> None:
        raise error

    async with worker.running():
        for text in outcomes:
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus, "orders"))
        await eventually(lambda: len(attempts) == 3)
    (dead,) = await sbredis_bus.dead_lettered("orders")
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("NoStock", "there is none")
    assert [bytes(message.body) for message in await sbredis_bus.deferred("orders")] == [b"defer"]
    assert attempts == [1, 2, 3]


async def test_what_a_handler_sends_goes_out_with_the_completion_or_not_at_all(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    worker = await worker_of(sbredis_bus, "out", retries=NOW)

    @worker.queue("orders", publishes="out")
    async def place(order: Order, context: Context) -> Order:
        context.send("out", f"order {order.id}", subject="note")
        if context.attempt == 1:
            raise ValueError
        return Order(order.id + 1)

    async with worker.running():
        await worker.send("orders", Order(5))
        await eventually(lambda: bodies(sbredis_bus, "out"))
    assert sorted(await bodies(sbredis_bus, "out")) == [b"order 5", b'{"id":6,"price":0.0}']


async def test_a_worker_whose_results_go_to_what_it_creates_itself_starts(sbredis_bus: Bus) -> None:
    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        await sbredis_bus.create_topic("made-by-the-lifespan")
        yield

    worker = Worker(sbredis_bus.url, lifespan=lifespan)

    @worker.queue("orders", publishes="squares", create_if_missing=True)
    async def square(number: int) -> int:
        return number * number

    @worker.queue("squares", publishes="made-by-the-lifespan", create_if_missing=True)
    async def negative(number: int) -> int:
        return -number

    async with worker.running():
        await worker.send("orders", 3)
        await eventually(lambda: worker._running().report().counts["squares"].completed == 1)
    assert [bytes(message.body) for message in await sbredis_bus.sent("made-by-the-lifespan")] == [b"-9"]


async def test_a_message_that_no_handler_takes_comes_again_until_a_worker_knows_it(sbredis_bus: Bus) -> None:
    """As in a rolling deployment: the old worker gives the message back, and the new one takes it."""
    await sbredis_bus.create_queue("orders")
    old, new = Worker(sbredis_bus.url), Worker(sbredis_bus.url)
    handled: list[tuple[str, int]] = []

    @old.queue("orders", subject="old", unmatched="abandon")
    @new.queue("orders", subject="old")
    async def known(context: Context) -> None:
        handled.append(("old", context.attempt))

    @new.queue("orders", subject="new")
    async def added(context: Context) -> None:
        handled.append(("new", context.attempt))

    async with sbredis_bus.running(old, timeout=100) as run:
        for subject in ("new", "old"):
            await run.send("orders", b"", subject=subject)
        await run.idle()
        assert [each.outcome for each in run.handled()] == [Abandon(5), Complete()]
    async with sbredis_bus.running(new, timeout=100) as run:
        await run.idle(advance=True)
    assert handled == [("old", 1), ("new", 2)]
    assert not await sbredis_bus.dead_lettered("orders")


async def test_a_handler_of_dead_letters_tries_them_until_it_succeeds(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead letter cannot become one again, whatever its handler does."""
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    worker = Worker(sbredis_bus.url, retries=Retries(first_delay=7, jitter=False, attempts=1))
    told: list[tuple[str, str | None, int]] = []
    outcomes = iter([ValueError("bad"), DeadLetter("again"), None])

    @worker.queue("orders")
    async def place() -> None:
        raise LookupError

    @worker.queue("orders", sub_queue="deadletter")
    async def bury(text: str, message: ServiceBusReceivedMessage, context: Context) -> Any:
        told.append((text, message.dead_letter_reason, context.attempt))
        outcome = next(outcomes)
        if isinstance(outcome, ValueError):
            raise outcome
        return outcome

    async with sbredis_bus.running(worker, timeout=100) as run:
        await run.send("orders", "text")
        await run.idle(advance=True)
    assert told == [("text", "LookupError", 1)] * 3
    assert run.outcomes("orders/$DeadLetterQueue") == [Abandon(7), Abandon(5), Complete()]
    assert not await sbredis_bus.dead_lettered("orders")
    assert "cannot be dead-lettered again: it stays" in caplog.text


async def test_a_dead_letter_that_its_handler_has_settled_causes_no_warning(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler has completed it, so the outcome that it returns afterwards does not count."""
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1)

    @worker.queue("orders")
    async def place() -> None:
        raise LookupError

    @worker.queue("orders", sub_queue="deadletter")
    async def bury(context: Context) -> Any:
        await context.settle(Complete())
        return DeadLetter("again")

    async with sbredis_bus.running(worker, timeout=100) as run:
        await run.send("orders", "text")
        await run.idle(advance=True)
    assert not await sbredis_bus.dead_lettered("orders")
    assert "cannot be dead-lettered again" not in caplog.text


async def test_dependencies_live_as_long_as_their_scope(sbredis_bus: Bus) -> None:
    worker, told = await worker_of(sbredis_bus, "orders", max_concurrent_calls=1), list[str]()

    async def pool() -> AsyncGenerator[str]:
        told.append("pool")
        yield "pool"
        told.append("pool closed")

    def connection(of: Annotated[str, Depends(pool, scope="app")]) -> Generator[str]:
        told.append("connection")
        yield f"connection of {of}"
        told.append("connection closed")

    def fake_name() -> str:
        return "fake"

    def name() -> str:
        raise AssertionError

    @worker.queue("orders")
    async def place(
        one: Annotated[str, Depends(connection)],
        two: Annotated[str, Depends(connection)],
        named: Annotated[str, Depends(name)],
    ) -> None:
        told.append(f"{one}, {two is one}, {named}")

    worker.override(name, fake_name)
    async with worker.running():
        await worker.send("orders", b"")
        await worker.send("orders", b"")
        await eventually(lambda: told.count("connection closed") == 2)
        await eventually(lambda: empty(sbredis_bus, "orders"))
    each = ["connection", "connection of pool, True, fake", "connection closed"]
    assert told == ["pool", *each, *each, "pool closed"]


async def test_a_handler_may_settle_its_message_itself(sbredis_bus: Bus) -> None:
    worker, refused = await worker_of(sbredis_bus, "orders"), list[str]()

    @worker.queue("orders", auto_complete=False)
    async def place(text: str, context: Context) -> None:
        if text == "settled":
            await context.settle(Complete())
            try:
                context.send("out", "late")
            except RuntimeError as error:
                refused.append(str(error))
            raise ValueError("after the end")

    async with worker.running():
        await worker.send("orders", "settled")
        await worker.send("orders", "left alone")
        await eventually(lambda: refused)
        await eventually(lambda: len_of_locked(sbredis_bus, 1))
    assert "was settled already" in refused[0]


async def len_of_locked(bus: Bus, count: int) -> bool:
    return len(await bus.locked("orders")) == count == len(await bus.active("orders"))


async def test_what_a_handler_returns_is_the_reply(sbredis_bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    worker = await worker_of(sbredis_bus, "orders", "answers", "others", "gone")

    @worker.queue("orders", replies=["answers", "gone"])
    async def double(number: int) -> int:
        return 2 * number

    async with worker.running():
        async with ServiceBusAdministrationClient(sbredis_bus.url) as administration:
            await administration.delete_queue("gone")
        await worker.send("orders", 1, reply_to="Answers", message_id="one", reply_to_session_id="s")
        await worker.send("orders", 2, reply_to="answers", correlation_id="two")
        await worker.send("orders", 3, reply_to="others")
        await worker.send("orders", 4, reply_to="gone")
        await worker.send("orders", 5)
        await eventually(lambda: empty(sbredis_bus, "orders"))
    answers = {
        str(message.correlation_id): (bytes(message.body), message.session_id)
        for message in await sbredis_bus.active("answers")
    }
    assert answers == {"one": (b"2", "s"), "two": (b"4", None)}
    assert await sbredis_bus.active("others") == []
    assert "asks for a reply to 'others', which is not permitted" in caplog.text
    assert "was not sent to 'gone'" in caplog.text
