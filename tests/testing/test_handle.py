"""One handler is called as a worker calls it, without a bus."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import handle, handle_sync
from sbredis.workers import (
    Abandon,
    Complete,
    Context,
    DeadLetter,
    Defer,
    Depends,
    Outcome,
    Proceed,
    Property,
    Retries,
    SyncContext,
    Worker,
)


@dataclass
class Order:
    id: int


closed: list[str] = []


async def get_stock() -> AsyncGenerator[int]:
    yield 3
    closed.append("stock")


async def place(
    order: Order,
    tenant: Annotated[str, Property("tenant")],
    stock: Annotated[int, Depends(get_stock)],
    context: Context,
) -> str:
    if order.id > stock:
        raise LookupError("there is none")
    context.send("invoices", {"order": order.id, "attempt": context.attempt}, subject=tenant)
    return f"order {order.id}"


async def test_a_handler_gets_all_its_parameters() -> None:
    closed.clear()
    result = await handle(place, Order(2), application_properties={"tenant": "ann"}, attempt=4)
    assert (result.outcome, result.error, result.value) == (Complete(), None, "order 2")
    (sent,) = result.sends
    assert (sent.entity, sent.value(), sent.message.subject) == ("invoices", {"order": 2, "attempt": 4}, "ann")
    assert closed == ["stock"]


async def test_a_message_that_does_not_fit_is_a_dead_letter() -> None:
    assert (await handle(place, Order(2))).outcome == DeadLetter(
        "MessageProperty", "The message has no application property 'tenant', but str is needed."
    )
    result = await handle(place, {"id": "secret"}, application_properties={"tenant": "ann"})
    assert isinstance(result.outcome, DeadLetter)
    assert result.outcome.reason == "MessageBody"
    assert result.error is None


@pytest.mark.parametrize(
    ("attempt", "outcome"), [(1, Abandon(1)), (3, Abandon(4)), (10, DeadLetter("LookupError", "there is none"))]
)
async def test_an_error_is_judged_as_by_a_worker(attempt: int, outcome: Outcome) -> None:
    message = ServiceBusMessage(b'{"id": 9}', application_properties={"tenant": "ann"})
    result = await handle(place, message, attempt=attempt)
    assert result.outcome == outcome
    assert isinstance(result.error, LookupError)
    assert result.sends == []
    with pytest.raises(LookupError, match="there is none"):
        await handle(place, message, raise_errors=True)


async def test_dependencies_are_replaced_for_one_call() -> None:
    result = await handle(place, Order(9), overrides={get_stock: lambda: 100}, application_properties={"tenant": "ann"})
    assert result.outcome == Complete()
    again = await handle(place, Order(9), application_properties={"tenant": "ann"})
    assert isinstance(again.error, LookupError)


async def test_the_state_of_a_session_is_given_and_returned() -> None:
    async def count(number: int, context: Context) -> None:
        assert context.session is not None
        before = await context.session.get_state(int) or 0
        await context.renew()
        context.session.set_state(before + number)

    first = await handle(count, 2, session_id="ann")
    assert first.state(int) == 2
    second = await handle(count, 5, session_id="ann", session_state=first.state())
    assert second.session_state == b"7"
    third = await handle(count, ServiceBusMessage("3", session_id=""), session_state=second.state())
    assert third.session_state == b"10"
    with pytest.raises(ValueError, match="give a session_id together with session_state"):
        await handle(count, 5, session_state=1)


async def test_facts_and_settlements_of_the_context() -> None:
    facts: list[Any] = []

    async def look(message: ServiceBusReceivedMessage, context: Context) -> None:
        assert context.message is message
        facts.extend((context.attempt, context.interrupted, context.lock_lost, context.session, message.subject))
        assert context.fence is not None
        assert message.locked_until_utc is not None
        await context.renew()
        await context.settle(Defer())

    result = await handle(look, b"", attempt=2, interrupted=True, subject="tea")
    assert facts == [2, True, False, None, "tea"]
    assert result.outcomes == [Defer()]


def test_a_plain_function_is_called_in_a_test_without_an_event_loop() -> None:
    @dataclass
    class Parcel:  # the handler's annotations may name what only the test knows
        id: int

    def pack(parcel: Parcel, context: SyncContext) -> Outcome | None:
        context.renew()
        context.send("out", parcel)
        return Abandon(3) if parcel.id == 1 else None

    assert handle_sync(pack, Parcel(1)).outcome == Abandon(3)
    result = handle_sync(pack, Parcel(2))
    assert [sent.value(Parcel) for sent in result.sends] == [Parcel(2)]


async def double(context: Context, proceed: Proceed) -> Any:
    context.send("log", "before")
    return await proceed()


worker = Worker("redis://nowhere", middleware=[double], retries=Retries(first_delay=9))
worker.entity("lines", retries=Retries(first_delay=5))


@worker.queue("lines", batch=10)
async def insert(lines: list[str]) -> list[Outcome | None]:
    if "" in lines:
        raise ValueError("an empty line")
    return [None if line != "b" else DeadLetter("Odd") for line in lines]


@worker.queue("orders", publishes="invoices", no_retry=(LookupError,))
async def bill(order: Order, stock: Annotated[int, Depends(get_stock)]) -> Order:
    if order.id > stock:
        raise LookupError("there is none")
    return order


@worker.queue("questions", replies=["answers"])
async def answer(question: str) -> str:
    return question.upper()


async def test_the_options_of_the_decorator_apply_with_its_worker() -> None:
    result = await handle(insert, ["a", "b"], worker=worker)
    assert result.outcomes == [Complete(), DeadLetter("Odd")]
    result = await handle(insert, ["a", ""], worker=worker)
    assert (result.outcomes, str(result.error)) == ([Abandon(5), Abandon(5)], "an empty line")
    result = await handle(insert, [b"\xff", "b", b"\xfe", "a"], worker=worker)  # the unfit ones are left out
    assert [each and type(each) for each in result.outcomes] == [DeadLetter, DeadLetter, DeadLetter, Complete]
    assert result.value == [DeadLetter("Odd"), None]
    assert (await handle(insert, [b"\xff"], worker=worker)).value is None

    result = await handle(bill, Order(1), worker=worker)
    assert [(sent.entity, sent.value()) for sent in result.sends] == [("log", "before"), ("invoices", {"id": 1})]
    assert (await handle(bill, Order(8), worker=worker)).outcome == DeadLetter("LookupError", "there is none")
    assert (await handle(bill, Order(8))).outcome == Abandon(1)


async def test_replies_are_shown() -> None:
    result = await handle(answer, "why", worker=worker, reply_to="answers", message_id="7")
    assert result.outcomes == [Complete()]
    assert [(sent.entity, sent.value(), sent.message.correlation_id) for sent in result.sends[1:]] == [
        ("answers", "WHY", "7")
    ]


async def test_a_tick_of_a_schedule_may_be_given() -> None:
    async def report(context: Context) -> datetime | None:
        return context.tick

    tick = datetime(2026, 3, 29, 3, tzinfo=UTC)
    assert (await handle(report, tick=tick)).value == tick
    assert (await handle(report)).value is None


async def test_what_cannot_be_called_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"place is not a handler of <Worker with 3 handlers, stopped>\."):
        handle(place, Order(1), worker=worker).close()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'attempts' \(did you mean 'attempt'\?\)"):
        handle(place, Order(1), attempts=2).close()  # type: ignore[call-arg]
    with pytest.raises(RuntimeError, match="write `await handle"):
        handle_sync(place, Order(1))
    with pytest.raises(ValueError, match="the list of values is empty"):
        await handle(insert, [], worker=worker)

    async def wrong(a: int, b: int) -> None: ...

    with pytest.raises(WorkerSetupError, match="it has 2 parameters for the body, 'a' and 'b'"):
        handle(wrong, 1).close()
