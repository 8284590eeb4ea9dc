"""Tests of middleware that calls the handler again: only the last call counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, cast

import pytest

from sbredis.testing import Bus
from sbredis.workers import Complete, Context, Depends, Proceed, Retries
from tests.waiting import eventually
from tests.workers.looking import empty, worker_of


async def bodies(bus: Bus) -> list[str]:
    return [str(message) for message in await bus.active("out")]


async def trying_again(context: Context, proceed: Proceed) -> Any:
    try:
        return await proceed()
    except ConnectionError:
        context.send("out", "noted")
        return await proceed()


async def asking_twice(context: Context, proceed: Proceed) -> Any:
    assert context.attempt == 1
    await proceed()
    return await proceed()


async def sending_first(context: Context, proceed: Proceed) -> Any:
    context.send("out", "first")
    context.once("key", 60)
    return await proceed()


@pytest.mark.parametrize(
    ("middleware", "sent"),
    [
        ([trying_again], ["noted", "call 2"]),
        ([sending_first, trying_again], ["first", "noted", "call 2"]),
        ([trying_again, sending_first], ["noted", "first", "call 2"]),
        ([asking_twice, trying_again], ["call 3"]),
    ],
)
async def test_only_what_the_last_call_of_the_handler_has_sent_goes_out(
    sbredis_bus: Bus, middleware: list[Any], sent: list[str]
) -> None:
    """The messages of the middleware itself go out too. The middleware of the worker is around that of the handler."""
    await sbredis_bus.create_queue("orders", requires_session=True)
    worker, calls = await worker_of(sbredis_bus, "out", middleware=middleware[:1]), list[int]()

    @worker.queue("orders", session_idle_timeout=0.05, middleware=middleware[1:])
    async def place(context: Context) -> None:
        calls.append(1)
        session = context.session
        assert session is not None
        context.send("out", f"call {len(calls)}")
        if len(calls) == 1:
            session.set_state("wrong")
            context.once("the same key may be given again", 60)
            raise ConnectionError
        context.once("the same key may be given again", 60)

    async with worker.running():
        await worker.send("orders", b"", session_id="a")
        await eventually(lambda: empty(sbredis_bus))
    assert await bodies(sbredis_bus) == sent
    async with sbredis_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        assert await receiver.session.get_state() is None


async def test_a_key_that_only_a_failed_call_has_given_is_not_remembered(sbredis_bus: Bus) -> None:
    worker, calls = await worker_of(sbredis_bus, "orders", "out", middleware=[trying_again]), list[str]()

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        calls.append(text)
        context.send("out", text)
        if calls == ["one"]:
            context.once("key", 60)
            raise ConnectionError
        if text == "two":
            context.once("key", 60)

    async with worker.running():
        for text in ("one", "two"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    assert calls == ["one", "one", "two"]
    assert await bodies(sbredis_bus) == ["noted", "one", "two"]


async def test_a_handler_that_failed_sends_nothing_although_middleware_completes_its_message(sbredis_bus: Bus) -> None:

    async def content(context: Context, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except ValueError:
            context.send("out", "failed")
            return Complete()

    worker = await worker_of(sbredis_bus, "orders", "out", middleware=[content])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.send("out", text)
        if text == "half":
            raise ValueError
        raise Complete  # an outcome is no failure

    async with worker.running():
        for text in ("half", "whole"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    assert await bodies(sbredis_bus) == ["failed", "whole"]


async def test_what_the_handler_has_settled_its_message_with_stays_although_it_fails_after_that(
    sbredis_bus: Bus,
) -> None:

    async def calling_once(context: Context, proceed: Proceed) -> Any:
        del context
        return await proceed()

    worker = await worker_of(sbredis_bus, "orders", "out", middleware=[calling_once])

    @worker.queue("orders")
    async def place(context: Context) -> None:
        context.send("out", "once")
        await context.settle(Complete())
        raise ConnectionError

    async with sbredis_bus.running(worker, timeout=100) as run:
        await run.send("orders", b"")
        await run.idle()
    (handled,) = run.handled()
    assert [str(each.message) for each in handled.sends] == ["once"]
    assert await bodies(sbredis_bus) == ["once"]


async def test_each_call_of_the_handler_gets_its_own_dependencies_of_a_message(sbredis_bus: Bus) -> None:
    """The first ends with the error of its call, before the middleware hears of it."""
    told: list[str] = []

    async def trying(context: Context, proceed: Proceed) -> Any:
        del context
        try:
            return await proceed()
        except ConnectionError:
            told.append("again")
            return await proceed()

    async def transaction() -> AsyncGenerator[str]:
        told.append("begin")
        try:
            yield "transaction"
        except ConnectionError:
            told.append("roll back")
            raise
        told.append("commit")

    worker = await worker_of(sbredis_bus, "orders", middleware=[trying])

    @worker.queue("orders")
    async def place(_: Annotated[str, Depends(transaction)]) -> None:
        if "again" not in told:
            raise ConnectionError

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: empty(sbredis_bus))
    assert told == ["begin", "roll back", "again", "begin", "commit"]


async def test_a_middleware_that_returns_nothing_to_await_is_named(sbredis_bus: Bus) -> None:
    def forgotten(context: Context, proceed: Proceed) -> Any:
        del context, proceed

    def passed_on(context: Context, proceed: Proceed) -> Any:
        del context
        return proceed()

    worker, seen = await worker_of(sbredis_bus, "right", "wrong", retries=Retries(attempts=1)), list[str]()

    async def place(text: str) -> None:
        seen.append(text)

    worker.queue("right", middleware=[passed_on])(place)
    worker.queue("wrong", middleware=cast("Any", [forgotten]))(place)
    async with worker.running():
        for name in ("right", "wrong"):
            await worker.send(name, name)
            await eventually(lambda name=name: empty(sbredis_bus, name))
    (dead,) = await sbredis_bus.dead_lettered("wrong")
    assert "forgotten has returned None instead of a coroutine: write async def" in str(
        dead.dead_letter_error_description
    )
    assert seen == ["right"]
