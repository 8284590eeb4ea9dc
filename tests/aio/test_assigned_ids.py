"""Ids that sbredis assigns to messages. An id is kept while a send may be repeated, and is new for the next send."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import NumberDataPoint

from sbredis.aio import ServiceBusSender
from sbredis.amqp import AmqpAnnotatedMessage
from sbredis.exceptions import MessageSizeExceededError, Outcome, ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusMessageBatch
from tests.aio.gates import Gate, stored_bodies
from tests.aio.queues import Queue, both, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.aio.topics import topic_at
from tests.telemetry.telemetry_listener import Listener

SOON = datetime(2030, 1, 1, tzinfo=UTC)
Send = Callable[[ServiceBusSender, Any], Awaitable[object]]


@asynccontextmanager
async def detecting(url: str, *, partitioned: bool = False) -> AsyncIterator[tuple[Queue, ServiceBusSender]]:
    """Create a queue with duplicate detection, and a sender."""
    async with (
        queue_at(url, partitioned=partitioned, duplicate_window=60_000) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        yield queue, sender


async def send(sender: ServiceBusSender, message: Any) -> None:
    await sender.send_messages(message)


async def send_in_a_list(sender: ServiceBusSender, message: Any) -> None:
    await sender.send_messages([message])


async def send_in_a_batch(sender: ServiceBusSender, message: Any) -> None:
    batch = await sender.create_message_batch()
    batch.add_message(message)
    await sender.send_messages(batch)


async def schedule(sender: ServiceBusSender, message: Any) -> None:
    await sender.schedule_messages(message, SOON)


async def schedule_each_at_its_time(sender: ServiceBusSender, message: Any) -> None:
    await sender.schedule_messages([message], [SOON])


async def stream(sender: ServiceBusSender, message: Any) -> None:
    await sender.send_stream([message])


WAYS = pytest.mark.parametrize(
    "way", [send, send_in_a_list, send_in_a_batch, schedule, schedule_each_at_its_time, stream]
)


@both
@WAYS
async def test_sending_an_object_again_creates_another_message(url: str, way: Send, *, partitioned: bool) -> None:
    message = ServiceBusMessage("x")
    async with detecting(url, partitioned=partitioned) as (queue, sender):
        await way(sender, message)
        first = message.message_id
        await way(sender, message)
        assert first
        assert message.message_id
        assert message.message_id != first
        assert flat(await stored_bodies(queue)) == ["x", "x"]


@in_memory
@WAYS
@pytest.mark.parametrize("fate", ["never arrives", "is lost", "is not answered"])
async def test_a_failed_send_is_repeated_under_the_same_id(url: str, way: Send, fate: Any) -> None:
    """Duplicate detection recognises that a send with an unknown outcome is repeated."""
    message = ServiceBusMessage("x")
    async with detecting(url) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.fates.extend([fate] * 5)
            with pytest.raises(ServiceBusError) as caught:
                await way(sender, message)
            assert caught.value.outcome is (Outcome.NEVER_SENT if fate == "never arrives" else Outcome.UNKNOWN)
            gate.fates.clear()
            first = message.message_id
            assert flat(await stored_bodies(queue)) == (["x"] if fate == "is not answered" else [])
            await way(sender, message)
        assert first
        assert message.message_id == first
        assert flat(await stored_bodies(queue)) == ["x"]
        await way(sender, message)
        assert flat(await stored_bodies(queue)) == ["x", "x"]


@in_memory
@WAYS
async def test_an_application_id_is_never_changed(url: str, way: Send) -> None:
    message = ServiceBusMessage("x", message_id="mine")
    async with detecting(url) as (queue, sender):
        for _ in range(3):
            await way(sender, message)
            assert message.message_id == "mine"
        assert flat(await stored_bodies(queue)) == ["x"]


@in_memory
@pytest.mark.parametrize("raw", [False, True])
async def test_an_assigned_id_set_by_the_application_is_kept(url: str, *, raw: bool) -> None:
    """In this case the application sends the same message again on purpose, and it is a duplicate."""
    message = ServiceBusMessage("x")
    async with detecting(url) as (queue, sender):
        await sender.send_messages(message)
        first = message.message_id
        if raw:
            properties = message.raw_amqp_message.properties
            assert properties is not None
            properties.message_id = first
        else:
            message.message_id = first
        await sender.send_messages(message)
        assert message.message_id == first
        assert flat(await stored_bodies(queue)) == ["x"]


async def test_sending_one_object_several_times_at_once_creates_several_messages(url: str) -> None:
    message, raw = ServiceBusMessage("x"), AmqpAnnotatedMessage(data_body=b"raw")
    async with detecting(url) as (queue, sender):
        await sender.send_messages([message] * 3)
        batch = await sender.create_message_batch()
        for _ in range(3):
            batch.add_message(message)
        await sender.send_messages(batch)
        await asyncio.gather(*(sender.send_messages(message) for _ in range(3)))
        await sender.send_stream([message] * 3)
        await sender.schedule_messages([message] * 3, SOON)
        for _ in range(2):
            await sender.send_messages(raw)
        assert flat(await stored_bodies(queue)) == ["raw"] * 2 + ["x"] * 15


@both
async def test_sending_a_batch_again_creates_other_messages(url: str, *, partitioned: bool) -> None:
    """A batch sends each message with the values that it had when it was added."""
    assigned, own = ServiceBusMessage("x", partition_key="k"), ServiceBusMessage("own", message_id="k")
    async with detecting(url, partitioned=partitioned) as (queue, sender):
        batch = await sender.create_message_batch()
        batch.add_message(assigned)
        batch.add_message(own)
        assigned.subject = "changed since"
        await sender.send_messages(batch)
        first = assigned.message_id
        await sender.send_messages(batch)
        assert assigned.message_id != first
        assert flat(await stored_bodies(queue)) == ["own", "x", "x"]
        async with queue.receiver() as receiver:
            received = [await anext(receiver) for _ in range(3)]
            assert {each.subject for each in received} == {None}
            assert {first, assigned.message_id, "k"} == {each.message_id for each in received}


@in_memory
async def test_a_failed_batch_keeps_the_ids_of_its_messages(url: str) -> None:
    message = ServiceBusMessage("x")
    async with detecting(url) as (queue, sender):
        batch = await sender.create_message_batch()
        batch.add_message(message)
        with Gate(queue.client) as gate:
            gate.fates.extend(repeat("is not answered", 5))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(batch)
            gate.fates.clear()
            await sender.send_messages(batch)
            assert flat(await stored_bodies(queue)) == ["x"]
            await sender.send_messages(batch)
            assert flat(await stored_bodies(queue)) == ["x", "x"]
            gate.fates.extend(repeat("is not answered", 5))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(batch)
            gate.fates.clear()
        assert len(flat(await stored_bodies(queue))) == 3
        # a message of the batch that is sent alone is still recognised as a duplicate
        await sender.send_messages(message)
        assert len(flat(await stored_bodies(queue))) == 3


@in_memory
async def test_an_id_is_kept_when_a_message_does_not_fit_into_a_batch(url: str) -> None:
    message = ServiceBusMessage("x" * 100)
    async with detecting(url) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.fates.extend(repeat("is not answered", 5))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(message)
            gate.fates.clear()
        first = message.message_id
        with pytest.raises(MessageSizeExceededError):
            ServiceBusMessageBatch(50).add_message(message)
        await sender.send_messages(message)
        assert message.message_id == first
        assert len(flat(await stored_bodies(queue))) == 1


@in_memory
async def test_an_id_is_kept_when_the_send_is_cancelled(url: str) -> None:
    """The cancelled caller does not know whether the partition stored the message."""
    message = ServiceBusMessage("x")
    async with detecting(url) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.shut = True
            task = asyncio.create_task(sender.send_messages(message))
            await gate.reached()
            task.cancel()
            await asyncio.wait((task,))
            gate.open()
            await sender.send_messages(message)
        await sender.close()
        assert flat(await stored_bodies(queue)) == ["x"]


# -- dropped duplicates ------------------------------------------------------------------------------------------------


def duplicate_logs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.INFO and "duplicate" in record.getMessage()
    ]


async def test_a_dropped_duplicate_is_logged_with_its_id(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sbredis")
    async with detecting(url) as (_, sender):
        await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        assert duplicate_logs(caplog) == []
        await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        (text,) = duplicate_logs(caplog)
        assert text.startswith("q: 1 duplicate was dropped")
        assert text.endswith("message id 'same'")


async def test_duplicates_among_several_messages_are_logged_with_all_ids_of_the_call(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition returns the number of duplicates, but not their ids."""
    caplog.set_level(logging.INFO, "sbredis")
    async with detecting(url) as (queue, sender):
        await sender.send_messages([ServiceBusMessage("x", message_id=name) for name in "abc"])
        await sender.send_messages([ServiceBusMessage("x", message_id=name) for name in "bcd"])
        (text,) = duplicate_logs(caplog)
        assert text.startswith("q: 2 duplicates were dropped")
        assert text.endswith("they are among the 3 messages of one call, with the ids 'b', 'c', 'd'")
        assert len(flat(await stored_bodies(queue))) == 4


async def test_duplicates_dropped_by_a_topic_are_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sbredis")
    async with topic_at(url, {"one": None}, requires_duplicate_detection=True) as subject, subject.sender() as sender:
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        (text,) = duplicate_logs(caplog)
        assert text.startswith("t: 1 duplicate was dropped")
        assert await subject.take_bodies("one") == ["x"]


@in_memory
async def test_dropped_duplicates_are_counted_in_a_metric(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(monkeypatch)
    listener.set_up_metrics()
    async with detecting(url) as (_, sender):
        for _ in range(3):
            await sender.send_messages([ServiceBusMessage("x", message_id=name) for name in "ab"])
    (point,) = listener.points["sbredis.client.dropped_duplicates"]
    listener.tear_down()
    assert isinstance(point, NumberDataPoint)
    assert point.value == 4
    assert dict(point.attributes or {})["messaging.destination.name"] == "q"
