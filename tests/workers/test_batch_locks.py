"""Tests of the locks of batches, on a server: the worker renews all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from sbredis.workers import Worker
from tests.waiting import eventually

LOCK = timedelta(seconds=5)


async def test_all_locks_of_a_batch_are_renewed_for_longer_than_they_last() -> None:
    """Also those of a batch that waits for its turn, and that of a session."""
    with LocalServer() as server:
        async with ServiceBusAdministrationClient(server.url) as administration:
            await administration.create_queue("orders", lock_duration=LOCK)
            await administration.create_queue("steps", lock_duration=LOCK, requires_session=True)
        worker = Worker(server.url)
        handled: list[tuple[str, int]] = []
        begun: list[list[str]] = []

        async def outlast(messages: list[ServiceBusReceivedMessage]) -> None:
            begun.append([str(message) for message in messages])
            end = datetime.now(UTC) + LOCK + timedelta(seconds=1)
            await eventually(lambda: datetime.now(UTC) > end)
            handled.extend((str(message), message.delivery_count) for message in messages)

        for subject in ("a", "b"):
            worker.queue("orders", batch=4, batch_wait=2, subject=subject, max_concurrent_calls=1)(outlast)
        worker.queue("steps", batch=2, batch_wait=2, session_idle_timeout=0.1)(outlast)
        async with ServiceBusClient(server.url) as client:
            async with client.get_queue_sender("orders") as sender:
                texts = ("a1", "b1", "a2", "b2")
                await sender.send_messages([ServiceBusMessage(text, subject=text[0]) for text in texts])
            async with client.get_queue_sender("steps") as sender:
                await sender.send_messages([ServiceBusMessage(text, session_id="s") for text in ("s1", "s2")])
        async with worker.running():
            await eventually(lambda: len(handled) >= 6)
            counts = worker._running().report().counts
            await eventually(lambda: counts["orders"].completed == 4 and counts["steps"].completed == 2)
        assert sorted(begun) == [["a1", "a2"], ["b1", "b2"], ["s1", "s2"]]
        assert sorted(handled) == [(text, 1) for text in ("a1", "a2", "b1", "b2", "s1", "s2")]
