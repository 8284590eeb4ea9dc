"""Traces of workers: everything that follows from the call of a handler belongs to the span of this call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Complete, Context, DeadLetter, Outcome, Retries, SyncContext
from tests.telemetry.telemetry_listener import Listener, context_of, listener
from tests.waiting import eventually
from tests.workers.looking import worker_of
from tests.workers.process_handlers import work

__all__ = ["listener"]


def named(listener: Listener, name: str) -> ReadableSpan:
    """Return the only span of this name."""
    (found,) = [span for span in listener.all_spans if span.name == name]
    return found


def number(span: ReadableSpan) -> int:
    return context_of(span).span_id


def chain(listener: Listener, name: str) -> list[str]:
    """Return the name of a span, and those of the spans that it is inside of."""
    spans = {number(span): span for span in listener.all_spans}
    span: ReadableSpan | None = named(listener, name)
    found: list[str] = []
    while span is not None:
        found.append(span.name)
        span = spans.get(span.parent.span_id) if span.parent is not None else None
    return found


def settled(listener: Listener, *names: str) -> list[ReadableSpan]:
    """Return the spans whose names begin with one of these."""
    return [span for span in listener.all_spans if span.name.startswith(names)]


async def handle(text: str, context: Context) -> None:
    await asyncio.sleep(0)
    context.send("out", text)


async def handle_without_waiting(text: str, context: Context) -> None:
    context.send("out", text)


def handle_in_thread(text: str, context: SyncContext) -> None:
    context.send("out", text)


async def handle_batch(texts: list[str], context: Context) -> None:
    for text in texts:
        context.send("out", text)


KINDS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (handle, {}),
    (handle_without_waiting, {}),
    (handle_in_thread, {}),
    (handle_batch, {"batch": 10, "batch_wait": 0}),
]


@pytest.mark.parametrize("requires_session", [False, True], ids=["plain", "sessions"])
@pytest.mark.parametrize(("handler", "options"), KINDS, ids=[handler.__name__ for handler, _ in KINDS])
async def test_what_a_handler_sends_belongs_to_its_trace(
    sbredis_bus: Bus,
    listener: Listener,
    handler: Callable[..., Any],
    options: dict[str, Any],
    *,
    requires_session: bool,
) -> None:
    listener.set_up_tracing()
    await sbredis_bus.create_queue("orders", requires_session=requires_session)
    worker = await worker_of(sbredis_bus, "out")
    worker.queue("orders", **options)(handler)
    taken = asyncio.Event()

    @worker.queue("out")
    async def take(text: str) -> None:
        assert text == "tea"
        taken.set()

    async with worker.running():
        message = ServiceBusMessage(b"tea", content_type="text/plain", session_id="s" if requires_session else None)
        await worker.send("orders", message)
        await taken.wait()
        await eventually(lambda: "complete out" in listener.spans)
    assert chain(listener, "transaction")[1:] == ["process orders", "send orders"]
    assert chain(listener, "complete out") == [
        *("complete out", "process out", "create out", "process orders", "send orders")
    ]


async def test_the_messages_of_a_batch_are_settled_in_the_span_of_the_batch(
    sbredis_bus: Bus, listener: Listener
) -> None:
    listener.set_up_tracing()
    worker = await worker_of(sbredis_bus, "orders", "out")

    @worker.queue("orders", batch=3, batch_wait=20)
    async def place(texts: list[str], context: Context) -> list[Outcome | None]:
        context.send("out", "sum")
        return [None if text == "done" else DeadLetter(text) for text in texts]

    async with worker.running():
        texts = ("done", "cold", "late")
        messages = [ServiceBusMessage(text, content_type="text/plain") for text in texts]
        await worker.client.get_queue_sender("orders").send_messages(messages)
        await eventually(lambda: len(settled(listener, "dead_letter orders", "transaction")) == 3)
    process = named(listener, "process orders")
    assert len(process.links) == 3
    for span in [*settled(listener, "dead_letter orders", "transaction"), named(listener, "create out")]:
        assert span.parent is not None
        assert span.parent.span_id == number(process)


@pytest.mark.slow
async def test_what_a_handler_in_a_process_sends_belongs_to_its_trace(sbredis_bus: Bus, listener: Listener) -> None:
    listener.set_up_tracing()
    worker = await worker_of(sbredis_bus, "orders", "out")
    worker.queue("orders", execution="process", max_concurrent_calls=1)(work)
    async with worker.running():
        await worker.send("orders", "plain")
        await eventually(lambda: "transaction" in listener.spans)
    assert chain(listener, "transaction")[1:] == ["process orders", "send orders"]
    assert chain(listener, "create out") == ["create out", "process orders", "send orders"]


async def test_what_a_handler_publishes_and_replies_belongs_to_its_trace(sbredis_bus: Bus, listener: Listener) -> None:
    listener.set_up_tracing()
    worker = await worker_of(sbredis_bus, "orders", "out", "prices", "answers")

    @worker.queue("orders", publishes="out")
    async def publish(text: str) -> str:
        return text

    @worker.queue("prices", replies=True)
    async def reply(text: str) -> str:
        return text

    async with worker.running():
        await worker.send("orders", "tea")
        await worker.send("prices", "tea", reply_to="answers")
        await eventually(lambda: {"transaction", "complete prices"} <= listener.spans.keys())
    assert chain(listener, "transaction")[1:] == ["process orders", "send orders"]
    assert chain(listener, "create out") == ["create out", "process orders", "send orders"]
    assert chain(listener, "send answers") == ["send answers", "process prices", "send prices"]
    assert chain(listener, "complete prices") == ["complete prices", "process prices", "send prices"]


@pytest.mark.parametrize("requires_session", [False, True], ids=["plain", "sessions"])
async def test_each_settlement_belongs_to_the_span_of_its_message(
    sbredis_bus: Bus, listener: Listener, *, requires_session: bool
) -> None:
    """Also if messages are completed at the same moment, and if the handler settles its message itself."""
    listener.set_up_tracing()
    worker = await worker_of(sbredis_bus, "orders", requires_session=requires_session, retries=Retries(attempts=1))

    @worker.queue("orders")
    async def place(text: str, context: Context) -> None:
        if text == "raised":
            raise DeadLetter("NoStock")
        if text == "failed":
            raise ValueError(text)
        if text == "settled":
            await context.settle(Complete())

    texts = ["done", "also done", "raised", "failed", "settled"]
    async with worker.running():
        for text in texts:
            with trace.get_tracer("application").start_as_current_span(text):
                message = ServiceBusMessage(
                    text, content_type="text/plain", session_id="s" if requires_session else None
                )
                await worker.send("orders", message)
        ends = "complete orders", "dead_letter orders"
        await eventually(lambda: len(settled(listener, *ends)) == len(texts))
    spans = {number(span): span for span in listener.all_spans}
    found: dict[str, tuple[str, bool]] = {}
    for span in settled(listener, *ends):
        lineage = [span]
        while (parent := lineage[-1].parent) is not None:
            lineage.append(spans[parent.span_id])
        _, process, sent, own = lineage
        assert (process.name, sent.name) == ("process orders", "send orders")
        found[own.name] = (span.name, process.status.status_code is StatusCode.ERROR)
    assert found == {
        "done": ("complete orders", False),
        "also done": ("complete orders", False),
        "raised": ("dead_letter orders", False),
        "failed": ("dead_letter orders", True),
        "settled": ("complete orders", False),
    }
