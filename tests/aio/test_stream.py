"""Sending a stream: ordered results, bounded memory, errors that name the message, and streams that end early."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from sbredis.aio import SendResult, ServiceBusSender
from sbredis.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage
from tests.aio.gates import Gate, stored_bodies
from tests.aio.queues import Calls, Queue, both, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.transport.hand import turns
from tests.waiting import eventually


class Source:
    """A synchronous or asynchronous source of messages. It records how many were read, and its own end."""

    def __init__(self, count: int, body: Callable[[int], str | bytes] = str) -> None:
        self.read = 0
        self.ended = False
        self._count = count
        self._body = body

    def __iter__(self) -> Iterator[ServiceBusMessage]:
        try:
            for number in range(self._count):
                self.read += 1
                yield ServiceBusMessage(self._body(number), message_id=f"m{number}")
        finally:
            self.ended = True

    async def __aiter__(self) -> AsyncIterator[ServiceBusMessage]:
        try:
            for number in range(self._count):
                await asyncio.sleep(0)
                self.read += 1
                yield ServiceBusMessage(self._body(number), message_id=f"m{number}")
        finally:
            self.ended = True


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@pytest.mark.parametrize("kind", ["async", "sync", "list", "mappings"])
async def test_results_arrive_in_the_order_of_the_source(url: str, kind: str, *, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        made = Source(150)
        source: Any = {
            "async": made,
            "sync": iter(made),
            "list": list(iter(made)),
            "mappings": [{"body": str(number)} for number in range(150)],
        }[kind]
        with Calls(queue.transport) as calls:
            results = [result async for result in sender.send_stream(source)]
        assert [result.index for result in results] == list(range(150))
        assert [str(result.message) for result in results] == list(map(str, range(150)))
        assert all(result.error is None for result in results)
        numbers = [result.sequence_number for result in results]
        assert len(set(numbers)) == 150
        assert kind == "async" or calls.by_script["send"] <= 20  # a slow source does not delay the first messages
        assert flat(await stored_bodies(queue)) == sorted(map(str, range(150)))
        if not partitioned:
            assert numbers == sorted(numbers, key=lambda number: number or 0)
            assert await stored_bodies(queue) == [list(map(str, range(150)))]


@both
async def test_messages_with_one_key_keep_their_order(queue: Queue, sender: ServiceBusSender) -> None:
    source = [ServiceBusMessage(f"{key}{n:03}", session_id=key) for n in range(60) for key in "abc"]
    assert await sender.send_stream(source) == 180
    for bodies in await stored_bodies(queue):
        for key in "abc":
            of_key = [body for body in bodies if body[0] == key]
            assert of_key in ([], [f"{key}{n:03}" for n in range(60)])


@pytest.mark.slow
async def test_awaiting_a_stream_sends_all_messages_and_returns_their_count(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        assert await sender.send_stream(Source(120)) == 120
        assert await sender.send_stream([]) == 0
        assert (await queue.counts()).active == 120


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_source_is_never_read_beyond_the_window(url: str, kind: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=7) as sender:
        source = Source(100)
        stream = sender.send_stream(source if kind == "async" else iter(source))
        await turns(20)
        assert source.read == 0
        for count in range(1, 40):
            assert (await anext(stream)).index == count - 1
            await turns(20)
            assert count < source.read <= count + 7
            assert sender.in_flight <= 7
        await stream.aclose()
        assert source.read <= 39 + 7


@in_memory
async def test_the_source_is_read_only_as_fast_as_the_broker_accepts_messages(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=5) as sender:
        source = Source(50)
        with Gate(queue.client) as gate:
            gate.shut = True
            sending = asyncio.create_task(asyncio.wait_for(sender.send_stream(source), 60))
            await gate.reached()
            await turns(100)
            assert source.read == 5
            gate.open()
            assert await sending == 50


# -- errors ------------------------------------------------------------------------------------------------------------


def large_at(*places: int) -> Callable[[int], str | bytes]:
    return lambda number: bytes(3000) if number in places else str(number)


@in_memory
async def test_the_first_failed_message_ends_the_stream_and_the_error_names_it(url: str) -> None:
    async with queue_at(url, largest_message=2000) as queue, queue.client.get_queue_sender("q") as sender:
        stream = sender.send_stream(Source(2000, large_at(12, 14)))
        for number in range(12):
            assert (await anext(stream)).index == number
        with pytest.raises(MessageSizeExceededError) as caught:
            await anext(stream)
        said = "The message 12 of the stream (message id 'm12') was not sent: The message has 3"
        assert str(caught.value).startswith(said)
        assert [result async for result in stream] == []
        assert sender.in_flight == 0
        found = (await queue.counts()).active
        assert 12 <= found < 1100  # messages that are already under way are sent too


@in_memory
async def test_errors_can_be_returned_as_results(url: str) -> None:
    async with queue_at(url, largest_message=2000, quota=2500) as queue, queue.client.get_queue_sender("q") as sender:

        async def source() -> AsyncIterator[object]:
            for number in range(8):
                match number:
                    case 2:
                        yield ServiceBusMessage(bytes(3000), message_id="large")
                    case 4:
                        yield "no message"
                    case 5:
                        yield {"body": bytes(1999 - 500)}
                    case 6:
                        yield {"body": bytes(1999 - 500)}
                    case _:
                        yield {"body": str(number)}

        results = [result async for result in sender.send_stream(source(), errors="return")]
        kinds = [type(result.error) for result in results]
        nothing = type(None)
        full = ServiceBusQuotaExceededError
        assert kinds[:5] == [nothing, nothing, MessageSizeExceededError, nothing, TypeError]
        assert sorted(map(str, kinds[5:])) == sorted(map(str, [nothing, full, nothing]))
        assert all((result.sequence_number is None) == (result.error is not None) for result in results)
        assert str(results[2].error).startswith("The message 2 of the stream (message id 'large') was not sent: ")
        assert getattr(results[4].error, "__notes__", None) == ["It was the message 4 of the stream."]
        assert await sender.send_stream(source(), errors="return") == 4  # by now the queue is full


@in_memory
async def test_an_unknown_outcome_is_reported_as_unknown(queue: Queue, sender: ServiceBusSender) -> None:
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.fates.append("is not answered")
        with pytest.raises(
            ServiceBusError, match=r"message 0 .* was not sent, or it is not known whether it was sent"
        ) as caught:
            await sender.send_stream(Source(1))
    assert caught.value.outcome is Outcome.UNKNOWN


@in_memory
async def test_each_message_has_its_own_timeout(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=2) as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            stream = sender.send_stream(Source(3), timeout=0.05, errors="return")
            results = [await anext(stream), await anext(stream)]
            assert [type(result.error) for result in results] == [OperationTimeoutError] * 2
            gate.open()
            results.append(await anext(stream))
            assert [result.index for result in results] == [0, 1, 2]
            await stream.aclose()


@in_memory
async def test_an_error_of_the_source_is_raised_after_the_earlier_results(sender: ServiceBusSender) -> None:

    async def source() -> AsyncIterator[ServiceBusMessage]:
        for number in range(5):
            yield ServiceBusMessage(str(number))
        raise KeyError("nothing more")

    stream = sender.send_stream(source())
    for number in range(5):
        assert (await anext(stream)).index == number
    with pytest.raises(KeyError, match="nothing more"):
        await anext(stream)
    with pytest.raises(TypeError):
        await sender.send_stream(5)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        await sender.send_stream(source())
    assert sender.in_flight == 0


@in_memory
async def test_an_invalid_errors_option_is_refused(sender: ServiceBusSender) -> None:
    with pytest.raises(ValueError, match="errors must be 'raise' or 'return'"):
        await sender.send_stream([], errors="ignore")  # type: ignore[arg-type]


# -- streams that end early --------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_leaving_the_loop_stops_reading_the_source(url: str, kind: str) -> None:
    """The messages that were read by then are sent."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=4) as sender:
        source = Source(100)
        before = asyncio.all_tasks()
        async for result in sender.send_stream(source if kind == "async" else iter(source)):
            if result.index == 3:
                break
        gc.collect()
        await eventually(lambda: asyncio.all_tasks() <= before)
        read = source.read
        assert read <= 8
        await turns(20)
        assert source.read == read
        assert source.ended or kind == "sync"
        await sender.close()
        assert len(flat(await stored_bodies(queue))) in (read - 1, read)


@in_memory
async def test_closing_the_stream_waits_for_messages_already_read(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=4) as sender:
        source = Source(100)
        with Gate(queue.client) as gate:
            async with aclosing(sender.send_stream(source)) as stream:
                await anext(stream)
                gate.shut = True
                closing = asyncio.create_task(stream.aclose())
                await turns(20)
                assert not closing.done()
                gate.open()
                await closing
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
        assert sender.in_flight == 0
        assert len(flat(await stored_bodies(queue))) == (await queue.counts()).active <= source.read


@in_memory
async def test_a_cancelled_iteration_ends_immediately_and_its_messages_are_sent(url: str) -> None:
    """Messages that were already read are still sent. Closing the sender waits for them."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=4) as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            sending = asyncio.create_task(asyncio.wait_for(sender.send_stream(Source(100)), 60))
            await gate.reached()
            await turns(10)
            sending.cancel()
            await asyncio.wait((sending,), timeout=60)
            assert sending.cancelled()
            closing = asyncio.create_task(sender.close())
            await turns(5)
            assert not closing.done()
            gate.open()
            await closing
        assert flat(await stored_bodies(queue)) == list("0123")


@in_memory
@pytest.mark.parametrize("steps", range(0, 30, 2))
async def test_a_stream_may_be_cancelled_at_every_step(url: str, steps: int) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=3) as sender:
        sending = asyncio.create_task(asyncio.wait_for(sender.send_stream(Source(20)), 60))
        await turns(steps)
        sending.cancel()
        await asyncio.wait((sending,))
        await sender.close()
        assert sender.in_flight == 0
        found = sorted(map(int, flat(await stored_bodies(queue))))
        assert found == list(range(len(found)))


@in_memory
async def test_a_failed_send_after_an_early_end_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with queue_at(url, quota=1500) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        source = Source(4, lambda number: "0" if not number else bytes(1400))
        with caplog.at_level(logging.WARNING, "sbredis"):
            async with aclosing(sender.send_stream(source)) as stream:
                assert (await anext(stream)).error is None
        assert "no caller was waiting for" in caplog.text
        assert "The entity is full" in caplog.text
        assert "tracking id" in caplog.text


@in_memory
async def test_closing_the_sender_ends_the_stream_with_an_error(queue: Queue) -> None:
    """The iteration returns the outcomes of the messages that were read. Then it raises an error, because the source
    had not ended.
    """
    sender = queue.client.get_queue_sender("q", max_in_flight=4)
    await sender.send_messages([])
    results: list[SendResult] = []

    async def iterate() -> None:
        async for result in sender.send_stream(Source(100)):
            results.append(result)  # noqa: PERF401  # the test reads it while it grows

    with Gate(queue.client) as gate:
        gate.shut = True
        iterating = asyncio.create_task(iterate())
        await gate.reached()
        await turns(10)
        closing = asyncio.create_task(sender.close())
        await turns(10)
        gate.open()
        await closing
    with pytest.raises(ValueError, match="closed before the source of the stream had ended"):
        await iterating
    assert [result.index for result in results] == [0, 1, 2, 3]
    assert flat(await stored_bodies(queue)) == list("0123")


@in_memory
async def test_closing_a_sender_closes_its_abandoned_stream(queue: Queue) -> None:
    sender = queue.client.get_queue_sender("q", max_in_flight=4)
    stream = sender.send_stream(Source(100))
    await anext(stream)
    await sender.close()
    assert sender.in_flight == 0


@in_memory
async def test_only_one_task_at_a_time_may_iterate_over_a_stream(queue: Queue, sender: ServiceBusSender) -> None:
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.shut = True
        stream = sender.send_stream(Source(3))
        first = asyncio.create_task(asyncio.wait_for(anext(stream), 60))
        await gate.reached()
        with pytest.raises(RuntimeError, match="one task at a time"):
            await anext(stream)
        gate.open()
        assert (await first).index == 0
        await stream.aclose()


@in_memory
async def test_another_task_may_close_a_stream_during_its_iteration(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=2) as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            stream = sender.send_stream(Source(30))
            sending = asyncio.create_task(asyncio.wait_for(stream, 60))
            await gate.reached()
            await turns(5)
            closing = asyncio.create_task(stream.aclose())
            await turns(5)
            gate.open()
            await closing
            assert await sending <= 2
        assert flat(await stored_bodies(queue)) == list("01")
