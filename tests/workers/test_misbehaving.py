"""Tests of handlers that misbehave. Each delivery of their messages counts, so that none comes again for ever."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Abandon, Complete, Context, DeadLetter, Defer, Outcome, Retries, Worker
from sbredis.workers.declaring._retries import after_failure
from tests.waiting import eventually
from tests.workers.looking import empty, send_to, worker_of

NOW = Retries(first_delay=0)


class Unknown(Outcome):
    """An outcome that no worker knows."""


class Interruption(BaseException):
    """An exception that is not an Exception."""


def exits() -> None:
    sys.exit(3)


def interrupts() -> None:
    raise Interruption("now")


def closes() -> None:
    raise GeneratorExit


def groups() -> None:
    raise BaseExceptionGroup("both", [SystemExit(1), ValueError()])


def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def yields() -> AsyncGenerator[None]:
    yield


def sends_nowhere(context: Context) -> None:
    context.send("no such queue!", b"")


async def cancels_itself_and_waits() -> None:
    cancels_itself()
    await asyncio.sleep(0)


async def waits_for_a_task() -> None:
    waiting = asyncio.create_task(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(waiting.cancel)
    await waiting


async def settles_with(context: Context, outcome: Any) -> None:
    await context.settle(outcome)


misbehaviour: dict[str, tuple[str, Callable[[Context], Any]]] = {
    "exits": ("SystemExit", lambda _: exits()),
    "interrupts": ("Interruption", lambda _: interrupts()),
    "closes": ("GeneratorExit", lambda _: closes()),
    "a group with an exit": ("BaseExceptionGroup", lambda _: groups()),
    "cancels itself": ("CancelledError", lambda _: cancels_itself_and_waits()),
    "an unknown outcome": ("TypeError", lambda _: Unknown()),
    "the class of an outcome": ("TypeError", lambda _: Complete),
    "a future": ("TypeError", lambda _: asyncio.get_running_loop().create_future()),
    "a generator": ("TypeError", lambda _: (number for number in range(3))),
    "an asynchronous generator": ("TypeError", lambda _: yields()),
    "a property that is none": ("TypeError", lambda _: Defer(properties_to_modify={"a": object()})),  # type: ignore[dict-item]
    "properties that are none": ("TypeError", lambda _: DeadLetter("a", properties_to_modify=5)),  # type: ignore[arg-type]
    "settles with nonsense": ("TypeError", lambda context: settles_with(context, "done")),
    "settles with a property that is none": (
        "TypeError",
        lambda context: settles_with(context, Abandon(properties_to_modify={"a": object()})),  # type: ignore[dict-item]
    ),
    "sends to a name that cannot be": ("ValueError", sends_nowhere),
    "an option that does not exist": ("TypeError", lambda context: context.send("q", b"", colour="red")),  # type: ignore[call-arg]
    "a key that is too long": ("ValueError", lambda context: context.once("x" * 1000, 5)),
    "lets out the cancellation of a task": ("CancelledError", lambda _: waits_for_a_task()),
}


@pytest.mark.parametrize("requires_session", [False, True], ids=["plain", "session"])
async def test_a_message_whose_handler_misbehaves_becomes_a_dead_letter(
    sbredis_bus: Bus, requires_session: bool
) -> None:
    await sbredis_bus.create_queue("orders", requires_session=requires_session, max_delivery_count=3)
    worker = Worker(sbredis_bus.url, retries=NOW)
    seen: Counter[str] = Counter()

    @worker.queue("orders", max_concurrent_calls=1, session_idle_timeout=0.01)
    async def place(text: str, context: Context) -> Any:
        seen[text] += 1
        if text != "good":
            _, behave = misbehaviour[text]
            result = behave(context)
            return await result if asyncio.iscoroutine(result) else result
        return None

    async with worker.running():
        for text in (*misbehaviour, "good"):
            await worker.send("orders", text, session_id="a")
        await eventually(lambda: empty(sbredis_bus))
    assert seen == {**dict.fromkeys(misbehaviour, 3), "good": 1}
    letters = {str(letter): letter.dead_letter_reason for letter in await sbredis_bus.dead_lettered("orders")}
    assert letters == {text: reason for text, (reason, _) in misbehaviour.items()}


async def test_a_thread_raises_what_it_likes_and_the_worker_goes_on(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW)
    raised = {each.__name__: each for each in (SystemExit, Interruption, KeyboardInterrupt, GeneratorExit)}

    @worker.queue("orders")
    def place(text: str) -> None:
        raise raised[text]

    async with worker.running():
        for text in raised:
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    assert {str(letter) for letter in await sbredis_bus.dead_lettered("orders")} == set(raised)


async def test_a_plain_function_that_returns_a_coroutine_has_failed(sbredis_bus: Bus) -> None:
    """Nothing would run the coroutine, so a completed message would be lost. The coroutine is closed."""
    worker, coroutines = await worker_of(sbredis_bus, "orders", max_delivery_count=1), list[Any]()

    async def work() -> None: ...

    @worker.queue("orders")
    def place() -> Any:
        coroutines.append(work())
        return coroutines[0]

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "TypeError"
    assert "returned a coroutine, and nothing would run it" in str(letter.dead_letter_error_description)
    assert inspect.getcoroutinestate(coroutines[0]) == inspect.CORO_CLOSED


@pytest.mark.parametrize("behave", [exits, interrupts, closes, groups])
async def test_a_batch_whose_handler_misbehaves_is_counted(sbredis_bus: Bus, behave: Callable[[], None]) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW)

    @worker.queue("orders", batch=2, batch_wait=0.01)
    async def place(messages: list[ServiceBusReceivedMessage]) -> None:
        assert messages
        behave()

    async with worker.running():
        await send_to(sbredis_bus, "orders", [ServiceBusMessage("one"), ServiceBusMessage("two")])
        await eventually(lambda: empty(sbredis_bus))
    assert len(await sbredis_bus.dead_lettered("orders")) == 2


async def test_what_a_handler_sends_after_its_end_is_refused(sbredis_bus: Bus) -> None:
    worker, contexts = await worker_of(sbredis_bus, "orders"), list[Context]()

    @worker.queue("orders")
    async def place(context: Context) -> None:
        contexts.append(context)

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
        with pytest.raises(RuntimeError, match="The handler has ended"):
            contexts[0].send("orders", b"too late")
        with pytest.raises(RuntimeError, match="The handler has ended"):
            await contexts[0].settle(Complete())


@pytest.mark.parametrize("behave", [exits, interrupts, closes, groups])
async def test_a_condition_that_misbehaves_is_counted_and_the_worker_goes_on(
    sbredis_bus: Bus, behave: Callable[[], None]
) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW)

    def is_good(message: ServiceBusReceivedMessage) -> bool:
        if str(message) != "good":
            behave()
        return True

    @worker.queue("orders", when=is_good)
    async def place() -> None: ...

    async with worker.running():
        for text in ("bad", "good"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    assert [str(letter) for letter in await sbredis_bus.dead_lettered("orders")] == ["bad"]


# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_a_handler_that_cancels_its_task_and_returns_keeps_its_session(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "orders", requires_session=True), list[tuple[str, int]]()

    @worker.queue("orders")
    async def place(text: str, context: Context) -> None:
        seen.append((text, context.attempt))
        cancels_itself()

    async with worker.running():
        for text in ("one", "two"):
            await worker.send("orders", text, session_id="a")
        await eventually(lambda: empty(sbredis_bus))
    assert seen == [("one", 1), ("two", 1)]


@pytest.mark.parametrize("batch", [None, 2])
async def test_what_a_handler_leaves_unsettled_is_counted_and_not_overtaken(
    sbredis_bus: Bus, batch: int | None
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=True, max_delivery_count=2, retries=NOW)
    seen: list[str] = []
    options: dict[str, Any] = {} if batch is None else {"batch": batch, "batch_wait": 0.01}

    async def place(text: Any) -> None:
        seen.append(text)

    place.__annotations__["text"] = str if batch is None else list[str]
    worker.queue("orders", auto_complete=False, session_idle_timeout=0.01, **options)(place)
    await send_to(sbredis_bus, "orders", [ServiceBusMessage(text, session_id="a") for text in ("one", "two")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus))
    assert seen == (["one", "one", "two", "two"] if batch is None else [["one", "two"]] * 2)
    assert len(await sbredis_bus.dead_lettered("orders")) == 2


# -- outcomes ----------------------------------------------------------------------------------------------------------


async def test_settling_raises_what_was_refused_and_the_handler_may_settle_again(sbredis_bus: Bus) -> None:
    worker, raised = await worker_of(sbredis_bus, "orders"), list[BaseException]()

    @worker.queue("orders")
    async def place(context: Context) -> None:
        context.send("nowhere", b"")
        try:
            await context.settle(Complete())
        except MessagingEntityNotFoundError as error:
            raised.append(error)
            await context.settle(DeadLetter("Nowhere"))

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
    assert len(raised) == 1
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "Nowhere"


def test_no_text_keeps_a_message_from_becoming_a_dead_letter() -> None:
    outcome = after_failure(ValueError("half: \ud800"), 3, 3, Retries(), lambda: 0.0)
    assert outcome == DeadLetter("ValueError", "half: ?")
    assert DeadLetter("\udfff").reason == "?"
    assert DeadLetter("r" * 5000, "d" * 5000) == DeadLetter("r" * 4095 + "…", "d" * 4095 + "…")
