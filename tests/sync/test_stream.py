"""Streams of messages that a thread sends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sbredis import SendResult, SendStream, ServiceBusClient, ServiceBusError, ServiceBusMessage, ServiceBusSender
from sbredis.exceptions import MessageSizeExceededError
from sbredis.management import QueueOptions
from tests.sync.interruptions import interrupted_when
from tests.waiting import wait_until

LARGE = b"x" * 2_000_000


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    options: QueueOptions = {"enable_partitioning": True}
    with client.get_queue_sender("q", create_if_missing=options, max_in_flight=10) as sender:
        yield sender


def waiting_in(client: ServiceBusClient) -> int:
    with client.get_queue_receiver("q") as receiver:
        return receiver.purge_messages()


def numbered(count: int) -> Iterator[ServiceBusMessage]:
    return (ServiceBusMessage(str(number)) for number in range(count))


@pytest.mark.slow
def test_the_results_of_a_stream_have_the_order_of_its_source(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    results = list(sender.send_stream(numbered(200)))
    assert [result.index for result in results] == list(range(200))
    assert [str(result.message) for result in results] == [str(number) for number in range(200)]
    assert all(result.sequence_number and result.error is None for result in results)
    assert sender.send_stream(numbered(50)).count() == 50
    assert sender.send_stream([]).count() == 0
    assert waiting_in(client) == 250


@pytest.mark.slow
def test_the_iterating_thread_reads_the_source_as_far_as_the_window_allows(sender: ServiceBusSender) -> None:
    read: list[int] = []

    def source() -> Iterator[ServiceBusMessage]:
        for number in range(100):
            read.append(threading.get_ident())
            yield ServiceBusMessage(str(number))

    with sender.send_stream(source()) as stream:
        assert read == []
        for returned, _ in enumerate(stream):
            assert len(read) <= returned + 10
    assert set(read) == {threading.get_ident()}


@pytest.mark.slow
def test_messages_already_read_are_sent_while_the_source_blocks(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    """Here the source itself waits to receive the messages that it supplied before."""
    with client.get_queue_receiver("q", max_wait_time=10) as receiver:

        def source() -> Iterator[ServiceBusMessage]:
            yield ServiceBusMessage("first")
            message = receiver.next()
            receiver.complete_message(message)
            yield ServiceBusMessage(f"after the {message}")

        results = list(sender.send_stream(source()))
        assert str(results[1].message) == "after the first"


def test_the_first_failure_ends_the_stream_after_the_earlier_results(sender: ServiceBusSender) -> None:
    stream = sender.send_stream([ServiceBusMessage("a"), ServiceBusMessage(LARGE), ServiceBusMessage("b")])
    assert next(stream).index == 0
    with pytest.raises(MessageSizeExceededError, match="message 1 of the stream"):
        next(stream)
    assert list(stream) == []


@pytest.mark.slow
def test_failures_can_be_returned_as_results(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    messages = [ServiceBusMessage("a"), ServiceBusMessage(LARGE), ServiceBusMessage("b")]
    results = list(sender.send_stream(messages, errors="return"))
    assert [type(result.error) for result in results] == [type(None), MessageSizeExceededError, type(None)]
    assert sender.send_stream(messages, errors="return").count() == 2
    assert waiting_in(client) == 4


@pytest.mark.slow
def test_an_error_of_the_source_is_raised_after_the_earlier_results(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    def source() -> Iterator[ServiceBusMessage]:
        yield from numbered(3)
        raise LookupError("no more")

    stream = sender.send_stream(source())
    assert [next(stream).index for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LookupError, match="no more"):
        next(stream)
    assert list(stream) == []
    assert waiting_in(client) == 3


@pytest.mark.slow
def test_a_stream_that_is_closed_early_still_sends_the_messages_already_read(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    read: list[int] = []

    def source() -> Iterator[ServiceBusMessage]:
        for number in range(100):
            read.append(number)
            yield ServiceBusMessage(str(number))

    with sender.send_stream(source()) as stream:
        next(stream)
    assert len(read) <= 11
    assert list(stream) == []
    assert waiting_in(client) == len(read)


@pytest.mark.slow
def test_leaving_the_loop_early_ends_the_stream(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    stream = sender.send_stream(numbered(100))
    for result in stream:
        if result.index == 3:
            break
    assert sender.in_flight == 0
    assert list(stream) == []
    assert 4 <= waiting_in(client) <= 14


def test_a_closed_sender_ends_the_stream_after_the_earlier_results(sender: ServiceBusSender) -> None:
    stream = sender.send_stream(numbered(100))
    next(stream)
    sender.close()
    results: list[SendResult] = []
    with pytest.raises(ValueError, match="The sender was closed before the source"):
        results.extend(stream)
    assert list(stream) == []


@pytest.mark.slow
def test_wrong_arguments_are_refused_at_once(sender: ServiceBusSender) -> None:
    with pytest.raises(ValueError, match="errors must be"):
        sender.send_stream([], errors="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        sender.send_stream([], timeout=0)
    with pytest.raises(TypeError, match="not iterable"):
        sender.send_stream(1)  # type: ignore[arg-type]


def test_an_interruption_ends_the_stream(
    sender: ServiceBusSender, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = hold_back(sender, monkeypatch)
    stream = sender.send_stream(numbered(5))
    with interrupted_when(lambda: stream._exhausted, release_then(go_on, interrupt)), pytest.raises(KeyboardInterrupt):
        next(stream)
    assert list(stream) == []
    assert sender.in_flight == 0


def test_only_one_thread_at_a_time_can_use_a_stream(sender: ServiceBusSender, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = hold_back(sender, monkeypatch)
    stream = sender.send_stream(numbered(1))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, stream)
        wait_until(lambda: stream._exhausted)
        with pytest.raises(RuntimeError, match="one thread at a time"):
            next(stream)
        go_on()
        assert first.result().index == 0


def test_closing_the_client_ends_the_stream(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServiceBusClient(url) as client:
        sender = client.get_queue_sender("q", create_if_missing=True)
        hold_back(sender, monkeypatch)
        stream = sender.send_stream(numbered(3))
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(outcome, stream)
            wait_until(lambda: stream._exhausted)
            client.close()
            assert isinstance(ended.result(60), ServiceBusError | StopIteration | ValueError)


def outcome(stream: SendStream) -> Exception | None:
    try:
        next(stream)
    except Exception as error:  # noqa: BLE001  # any error
        return error
    return None


def hold_back(sender: ServiceBusSender, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Stop the sender from sending until the returned function is called."""
    held = asyncio.Event()
    original = sender._aio._outbox.begin

    async def begin(*arguments: Any, **options: Any) -> Any:
        await held.wait()
        return await original(*arguments, **options)

    monkeypatch.setattr(sender._aio._outbox, "begin", begin)
    return lambda: sender._bridge.run(held.set)


def release_then(go_on: Callable[[], None], interrupt: Callable[[], None]) -> Callable[[], None]:
    """Interrupt the main thread, and then let the calls under way end."""

    def both() -> None:
        interrupt()
        go_on()

    return both


def test_the_iterating_thread_is_told_how_many_messages_were_accepted(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    told: list[tuple[int, int]] = []
    stream = sender.send_stream(numbered(3), progress=lambda count: told.append((count, threading.get_ident())))
    assert stream.count() == 3
    assert told == [(count, threading.get_ident()) for count in (1, 2, 3)]
    deleted: list[int] = []
    with client.get_queue_receiver("q") as receiver:
        assert receiver.purge_messages(progress=deleted.append) == 3
        with client.get_queue_receiver("q", sub_queue="deadletter") as letters:
            assert letters.redrive_messages(progress=deleted.append).moved == 0
    assert deleted[-1] == 3
