"""Tests of what a running worker tells of its handlers: counts, spans and lines of the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import DeadLetter, Logging, Retries, Worker
from tests.telemetry.telemetry_listener import Listener, listener
from tests.waiting import eventually
from tests.workers.looking import empty, worker_of

__all__ = ["listener"]
NOW = Retries(first_delay=0)


async def test_each_count_of_a_worker(sbredis_bus: Bus) -> None:
    worker, running = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW), list[int]()

    @worker.queue("orders")
    async def place(text: str) -> Any:
        running.append(worker._running().report().counts["orders"].running)
        if text == "fails":
            raise ValueError
        return DeadLetter("no") if text == "dies" else None

    async with worker.running():
        for text in ("done", "fails", "dies"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
        counts = worker._running().report().counts["orders"]
    (handler,) = counts.handlers
    assert handler.endswith("place")
    assert (counts.received, counts.completed, counts.abandoned, counts.dead_lettered) == (4, 1, 1, 2)
    assert (counts.errors, counts.running, counts.settlements_failed) == (2, 0, 0)
    assert sum(counts.handlers[handler].handling.counts) == 4
    assert sum(counts.lag.counts) == 3  # the second delivery of one message does not count
    assert min(running) >= 1


async def test_spans_of_handlers_belong_to_the_send_and_an_outcome_is_no_error(
    sbredis_bus: Bus, listener: Listener
) -> None:
    listener.set_up_tracing()
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1)

    @worker.queue("orders")
    async def place(text: str) -> None:
        raise DeadLetter("no") if text == "outcome" else ValueError

    spans: dict[str, Any] = {}
    async with worker.running():
        for text in ("outcome", "error"):
            await worker.send("orders", text)
            await eventually(lambda: "process orders" in listener.spans and len(spans) < len(processed(listener)))
            spans[text] = processed(listener)[-1]
    for span in spans.values():
        assert span.links
        assert span.context.trace_id == span.links[0].context.trace_id
    assert [spans[text].status.is_ok or spans[text].status.is_unset for text in spans] == [True, False]
    assert not spans["outcome"].events


async def test_the_span_of_a_batch_links_to_all_its_sends(sbredis_bus: Bus, listener: Listener) -> None:
    listener.set_up_tracing()
    await sbredis_bus.create_queue("orders")
    for text in ("one", "two"):
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage(text))
    worker = Worker(sbredis_bus.url)
    sizes: list[int] = []

    @worker.queue("orders", batch=2, batch_wait=5)
    async def place(texts: list[str]) -> None:
        sizes.append(len(texts))

    async with worker.running():
        await eventually(lambda: processed(listener))
    (span,) = processed(listener)
    assert sizes == [2]
    assert len({link.context.span_id for link in span.links}) == 2
    assert span.attributes["messaging.batch.message_count"] == 2


def processed(listener: Listener) -> list[Any]:
    return [span for span in listener.all_spans if span.name == "process orders"]


async def test_calls_are_logged_without_their_bodies(sbredis_bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sbredis.worker.calls")
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1, middleware=[Logging()])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str) -> Any:
        if text == "secret-error":
            raise ValueError(text)
        if text == "secret-raised":
            raise ExceptionGroup("", [DeadLetter(text)])
        return DeadLetter(text) if text == "secret-outcome" else text

    async with worker.running():
        for text in ("secret-result", "secret-error", "secret-outcome", "secret-raised"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    records = [record for record in caplog.records if record.name == "sbredis.worker.calls"]
    said = [record.getMessage().partition(" after ")[0] for record in records]
    assert said == [
        "orders: message 1, attempt 1: returned",
        "orders: message 2, attempt 1: raised ValueError",
        "orders: message 3, attempt 1: DeadLetter",
        "orders: message 4, attempt 1: DeadLetter",
    ]
    assert all(record.entity == "orders" and record.seconds >= 0 for record in records)  # type: ignore[attr-defined]
    assert "secret" not in "".join(said)
