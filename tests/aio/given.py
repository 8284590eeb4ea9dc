"""The fixtures of tests with one queue: the queue, a sender and a receiver of it, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver, ServiceBusSender
from tests.aio.queues import HandClock, Queue, queue_at
from tests.aio.session_queues import session_queue_at

__all__ = ["clock", "partitioned", "queue", "receiver", "sender"]


@pytest.fixture
def partitioned() -> bool:
    """Whether the queue is partitioned. Tests with the mark ``both_shapes`` replace this."""
    return False


@pytest.fixture
def clock() -> HandClock:
    """The clock of the queue."""
    return HandClock()


@pytest.fixture
async def queue(request: pytest.FixtureRequest, url: str, partitioned: bool) -> AsyncIterator[Queue]:
    """A queue with the options of the marks ``queue_with``. If the test takes the clock, the queue has that clock."""
    options: dict[str, Any] = {"partitioned": partitioned, "sessions": False}
    for mark in (*request.node.iter_markers("queue_with"),)[::-1]:
        options |= mark.kwargs
    if "clock" in request.fixturenames:
        options["clock"] = request.getfixturevalue("clock")
    make = session_queue_at if options.pop("sessions") else queue_at
    async with make(url, **options) as made:
        yield made


@pytest.fixture
async def sender(queue: Queue) -> AsyncIterator[ServiceBusSender]:
    """A sender of the queue."""
    async with queue.client.get_queue_sender("q") as made:
        yield made


@pytest.fixture
async def receiver(queue: Queue) -> AsyncIterator[ServiceBusReceiver]:
    """A receiver of the queue."""
    async with queue.receiver() as made:
        yield made
