"""Tests of the log of failures: it has the frames of the application and not those of the worker."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Annotated, Any

import pytest

from sbredis.exceptions import OperationTimeoutError
from sbredis.testing import Bus
from sbredis.workers import Context, Depends, Retries, SyncContext
from sbredis.workers.running._tracebacks import for_the_log
from tests.waiting import eventually
from tests.workers.looking import worker_of


def names(error: BaseException | None) -> list[str]:
    """Return the names of the functions in the traceback of an error."""
    return [] if error is None else [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def logged(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    """Return the names of the functions in the traceback of each failure in the log."""
    failed = [record for record in caplog.records if "failed for message" in record.getMessage()]
    infos = [record.exc_info for record in failed]
    return [[frame.name for frame in traceback.extract_tb(info[2])] if info else [] for info in infos]


async def test_the_traceback_of_a_failure_begins_with_the_handler(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "plain", "waiting", "ours", retries=Retries(first_delay=0, attempts=1))

    @worker.queue("plain")
    def in_thread(text: str, context: SyncContext) -> None:
        raise ValueError(text, context.attempt)

    @worker.queue("waiting", timeout=100)
    async def in_loop(text: str, context: Context) -> None:
        await asyncio.sleep(0)
        raise ValueError(text, context.attempt)

    @worker.queue("ours")
    async def through_us(text: str, context: Context) -> None:
        context.send(text, object())

    async with worker.running():
        for queue in "plain", "waiting", "ours":
            await worker.send(queue, "text")
            await eventually(lambda queue=queue: sbredis_bus.dead_lettered(queue))
    assert logged(caplog) == [["in_thread"], ["in_loop"], ["through_us"]]
    assert caplog.text.count("which is dead-lettered after attempt 1 of 1") == 3


def check(text: str) -> None:
    raise ValueError(text)


def plain_generator(seen: list[list[str]]) -> Callable[..., Generator[int]]:
    def get() -> Generator[int]:
        try:
            yield 1
        except ValueError as error:
            seen.append(names(error))
            raise

    return get


def waiting_generator(seen: list[list[str]]) -> Callable[..., AsyncGenerator[int]]:
    async def get() -> AsyncGenerator[int]:
        try:
            yield 1
        except ValueError as error:
            seen.append(names(error))
            raise

    return get


@pytest.mark.parametrize("make", [plain_generator, waiting_generator])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_failure_under_a_generator_keeps_its_traceback(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, make: Callable[..., Any], *, in_thread: bool
) -> None:
    """The log, ``on_error`` and the dependency itself have the frames of the handler."""
    seen: list[list[str]] = []
    told: list[list[str]] = []
    get, outer = make(seen), make(seen)
    worker = await worker_of(
        sbredis_bus, "orders", retries=Retries(attempts=1), on_error=lambda _, error: told.append(names(error))
    )

    async def handle(text: str, number: Annotated[int, Depends(outer)], other: Annotated[int, Depends(get)]) -> None:
        check(text * number * other)

    def handle_in_thread(
        text: str, number: Annotated[int, Depends(outer)], other: Annotated[int, Depends(get)]
    ) -> None:
        check(text * number * other)

    worker.queue("orders")(handle_in_thread if in_thread else handle)
    async with worker.running():
        await worker.send("orders", "text")
        await eventually(lambda: sbredis_bus.dead_lettered("orders"))
    own = ["handle_in_thread" if in_thread else "handle", "check"]
    assert logged(caplog) == [own]
    assert [frames[-2:] for frames in told] == [own]
    assert [[name for name in frames if name in own] for frames in seen] == [own, own]


async def test_the_frames_of_the_worker_appear_at_the_level_debug(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders", retries=Retries(first_delay=0, attempts=2))

    async def around(context: Context, proceed: Any) -> Any:
        assert context.attempt <= 2
        return await proceed()

    @worker.queue("orders", middleware=[around])
    async def handle(text: str, context: Context) -> None:
        if context.attempt == 2:
            logging.getLogger("sbredis.worker").setLevel(logging.DEBUG)
        check(text)

    caplog.set_level(logging.INFO, "sbredis.worker")  # and its end restores the level
    async with worker.running():
        await worker.send("orders", "text")
        await eventually(lambda: sbredis_bus.dead_lettered("orders"))
    first, second = logged(caplog)
    assert [name for name in second if name in {"around", "handle", "check"}] == ["around", "handle", "check"]
    assert "_outcomes" in second
    assert first == ["around", "handle", "check"]


async def test_a_handler_that_ran_too_long_says_so_and_where_it_was(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders", retries=Retries(attempts=1))

    async def wait_for_stock() -> None:
        await asyncio.Event().wait()

    @worker.queue("orders", timeout=0.2)
    async def handle() -> None:
        await wait_for_stock()

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: sbredis_bus.dead_lettered("orders"))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "TimeoutError"
    assert letter.dead_letter_error_description == "The handler ran longer than 0.2 s."
    assert "TimeoutError('The handler ran longer than 0.2 s.')" in caplog.text
    assert [frames[:2] for frames in logged(caplog)] == [["handle", "wait_for_stock"]]


@pytest.mark.parametrize("late", [False, True])
async def test_a_time_out_of_the_handler_itself_keeps_its_own_text(sbredis_bus: Bus, *, late: bool) -> None:
    worker = await worker_of(sbredis_bus, "orders", retries=Retries(attempts=1))

    @worker.queue("orders", timeout=0.02 if late else 60)
    async def handle() -> None:
        try:
            if late:
                await asyncio.Event().wait()
        finally:
            raise TimeoutError("no answer from the bank")

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: sbredis_bus.dead_lettered("orders"))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_error_description == "no answer from the bank"


def test_an_error_of_the_worker_itself_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="coroutine") as raised:
        asyncio.Runner().run(None)  # type: ignore[arg-type]
    raised.value.__traceback__ = raised.value.__traceback__.tb_next if raised.value.__traceback__ else None
    assert for_the_log(raised.value)[2] is raised.value.__traceback__ is not None
    on_purpose = OperationTimeoutError("no answer").with_traceback(raised.value.__traceback__)
    assert for_the_log(on_purpose) == (OperationTimeoutError, on_purpose, None)
    bare = ValueError()
    assert for_the_log(bare) == (ValueError, bare, None)
