"""Requests: each gets its own reply, in time or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.codec import decode_body, encode_body
from sbredis.exceptions import (
    MessageBodyError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusError,
)
from sbredis.model import ServiceBusMessage
from tests.aio.queues import PATIENT, HandClock, Queue, both, exists, in_memory, queue_at
from tests.waiting import eventually


@asynccontextmanager
async def answering(client: ServiceBusClient, *, backwards: bool = False) -> AsyncIterator[None]:
    """Answer the requests in the queue q: each number by the next number."""

    async def answer() -> None:
        async with client.get_queue_receiver("q") as receiver:
            while True:
                requests = await receiver.receive_messages(10, 60)
                for request in reversed(requests) if backwards else requests:
                    number = decode_body(bytes(request.body), request.content_type, int)
                    reply = encode_body(number + 1)
                    assert request.reply_to is not None
                    async with client.get_queue_sender(request.reply_to) as sender:
                        await sender.send_messages(
                            ServiceBusMessage(
                                reply.body, content_type=reply.content_type, correlation_id=request.message_id
                            )
                        )
                    await receiver.complete_message(request)

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


@both
async def test_each_request_gets_its_own_reply(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, answering(queue.client, backwards=True):
        assert await queue.client.request("q", 1, timeout=60) == 2
        replies = await asyncio.gather(*(queue.client.request("q", number, timeout=60) for number in range(20)))
        assert replies == list(range(1, 21))
        assert await queue.client.request("q", 5, as_type=float, timeout=60) == 6.0


@in_memory
async def test_a_request_without_a_reply_ends_in_time_and_expires(queue: Queue, clock: HandClock) -> None:
    said = r"No reply to the request to 'q' came within 0\.05 s"
    with pytest.raises(OperationTimeoutError, match=said) as caught:
        await queue.client.request("q", "anybody?", timeout=0.05)
    assert caught.value.outcome in (Outcome.UNKNOWN, Outcome.NEVER_SENT)
    clock.move(1)
    assert await queue.receiver().receive_messages(1, 0) == []
    async with answering(queue.client):
        assert await queue.client.request("q", 1, timeout=60) == 2


@in_memory
async def test_a_late_reply_is_dropped(queue: Queue) -> None:
    asked = asyncio.create_task(queue.client.request("q", 1, timeout=60))
    (request,) = await queue.receiver().receive_messages(1, 60)
    asked.cancel()
    await asyncio.wait((asked,))
    assert request.reply_to is not None
    async with queue.client.get_queue_sender(request.reply_to) as sender:
        await sender.send_messages(ServiceBusMessage("late", correlation_id=request.message_id))
    async with answering(queue.client):
        assert await queue.client.request("q", 3, timeout=60) == 4


@in_memory
async def test_a_request_carries_its_options_and_names_its_queue_for_replies(queue: Queue) -> None:
    asked = asyncio.create_task(
        queue.client.request("q", b"x", timeout=60, subject="add", application_properties={"n": 1})
    )
    (request,) = await queue.receiver().receive_messages(1, 60)
    assert request.subject == "add"
    assert request.application_properties == {"n": 1}
    assert request.reply_to is not None
    assert await exists(queue.client, request.reply_to)
    asked.cancel()


@in_memory
async def test_the_queue_for_replies_is_made_again_after_it_was_removed(url: str) -> None:
    timings = replace(PATIENT, lingering=0.1)
    async with queue_at(url, timings=timings) as queue, answering(queue.client):
        assert await queue.client.request("q", 1, timeout=60) == 2
        await queue.client._connection.namespace.delete_entity(queue.client._requests._queue)
        await eventually(lambda: queue.client._requests._receiver is None)
        assert await queue.client.request("q", 2, timeout=60) == 3


@in_memory
async def test_a_request_to_a_missing_entity_and_one_of_a_closed_client_fail(queue: Queue) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        await queue.client.request("nowhere", 1, timeout=60)
    asked = asyncio.create_task(queue.client.request("q", 1, timeout=60))
    await queue.receiver().receive_messages(1, 60)
    await queue.client.close()
    with pytest.raises((ServiceBusError, ValueError), match="closed"):
        await asked


@in_memory
async def test_a_reply_of_another_type_is_refused(url: str) -> None:
    async with queue_at(url) as queue, answering(queue.client):
        with pytest.raises(MessageBodyError):
            await queue.client.request("q", 1, as_type=list[str], timeout=60)
        with pytest.raises(ValueError, match="timeout"):
            await queue.client.request("q", 1, timeout=0)
