"""Tests of handlers that take batches."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import CircuitBreaker, Complete, Context, DeadLetter, Logging, Retries, Worker, message_of
from sbredis.workers.running._batches import BatchSize
from tests.waiting import eventually
from tests.workers.looking import bodies, empty, send_to, worker_of


@dataclass
class Order:
    id: int
    price: float = 0.0


NOW = Retries(first_delay=0)


async def locked(bus: Bus, queue: str, count: int) -> bool:
    return len(await bus.locked(queue)) == count


async def test_a_handler_of_batches_gets_lists_and_answers_for_each_message(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW, max_concurrent_calls=2)
    sizes: list[int] = []
    done: list[int] = []

    @worker.queue("orders", batch=4, batch_wait=0.05)
    async def insert(orders: list[Order], messages: list[ServiceBusReceivedMessage]) -> list[Any]:
        sizes.append(len(orders))
        assert [message.delivery_count for message in messages]
        done.extend(order.id for order in orders if order.id != 3)
        return [DeadLetter("three") if order.id == 3 else None for order in orders]

    sender = sbredis_bus.client.get_queue_sender("orders")
    await sender.send_messages([message_of(Order(number)) for number in range(9)])
    await sender.send_messages(ServiceBusMessage(b"{}"))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert max(sizes) == 4
    letters = await sbredis_bus.dead_lettered("orders")
    assert {dead.dead_letter_reason for dead in letters} == {"three", "MessageBody"}


async def test_messages_that_come_while_a_batch_waits_do_not_make_it_too_large(sbredis_bus: Bus) -> None:
    """Each partition has several messages, and the first one that answers does not fill the batch."""
    worker, sizes = await worker_of(sbredis_bus, "orders", enable_partitioning=True), list[int]()
    for key in ("a", "b", "c"):
        await send(sbredis_bus, "orders", *(ServiceBusMessage(b"", partition_key=key) for _ in range(5)))

    @worker.queue("orders", batch=8, batch_wait=30, max_concurrent_calls=1)
    async def insert(texts: list[str]) -> None:
        sizes.append(len(texts))

    async with worker.running():
        await eventually(lambda: sum(sizes) >= 8)
    assert max(sizes) == 8


async def test_a_batch_that_waits_for_more_messages_at_the_end_of_the_worker_is_given_back(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders", batch=3, batch_wait=30)
    async def insert() -> None:
        raise AssertionError

    async with worker.running():
        await send(sbredis_bus, "orders", *map(ServiceBusMessage, ("one", "two")))
        await eventually(lambda: locked(sbredis_bus, "orders", 2))
    assert not await sbredis_bus.locked("orders")
    left = await sbredis_bus.active("orders")
    assert [(message.delivery_count, message.interrupted) for message in left] == [(0, False)] * 2


async def test_an_error_in_a_batch_lets_all_its_messages_come_again(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    worker, counts = await worker_of(sbredis_bus, "out", retries=NOW), list[list[int]]()

    @worker.queue("orders", batch=10, batch_wait=0.05)
    async def insert(messages: list[ServiceBusReceivedMessage], context: Context) -> Any:
        counts.append([message.delivery_count for message in messages])
        if context.attempt == 1:
            raise ValueError
        context.send("out", len(messages))
        return ["not an outcome"] if len(messages) > 10 else None

    await sbredis_bus.client.get_queue_sender("orders").send_messages([ServiceBusMessage(b"") for _ in range(3)])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sorted(chain.from_iterable(counts)) == [1, 1, 1, 2, 2, 2]
    assert sum(int(body) for body in await bodies(sbredis_bus, "out")) == 3
    assert not await sbredis_bus.dead_lettered("orders")


async def test_a_batch_of_sessions_holds_one_session(sbredis_bus: Bus) -> None:
    worker, batches = await worker_of(sbredis_bus, "steps", requires_session=True), list[tuple[str | None, list[int]]]()

    @worker.queue("steps", batch=3, batch_wait=0.05, session_idle_timeout=0.1)
    async def steps(numbers: list[int], context: Context) -> None:
        assert context.session is not None
        batches.append((context.session.session_id, numbers))

    sender = sbredis_bus.client.get_queue_sender("steps")
    for session_id in ("a", "b"):
        await sender.send_messages([message_of(number, session_id=session_id) for number in range(5)])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    for session_id in ("a", "b"):
        assert [numbers for of, numbers in batches if of == session_id] == [[0, 1, 2], [3, 4]]


async def test_the_state_of_a_session_goes_with_the_messages_of_its_batch_that_are_completed(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "steps", requires_session=True)

    @worker.queue("steps", batch=2, batch_wait=30, session_idle_timeout=0.05)
    async def steps(texts: list[str], context: Context) -> Any:
        assert context.session is not None
        context.session.set_state(texts[0])
        return [None, DeadLetter("no")] if texts == ["c", "d"] else None

    for texts in ("ab", "cd"):
        await send(sbredis_bus, "steps", *(ServiceBusMessage(text, session_id=texts) for text in texts))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    for texts in ("ab", "cd"):
        async with sbredis_bus.client.get_queue_receiver("steps", session_id=texts) as receiver:
            assert await receiver.session.get_state() == texts[0].encode()
    assert [str(letter) for letter in await sbredis_bus.dead_lettered("steps")] == ["d"]


async def test_a_batch_that_is_not_completed_by_itself_may_answer_for_some_of_its_messages(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders", batch=3, batch_wait=30, auto_complete=False)
    async def insert(texts: list[str]) -> tuple[Complete | None, ...]:
        return tuple(Complete() if text == "one" else None for text in texts)

    await send(sbredis_bus, "orders", *map(ServiceBusMessage, ("one", "two", "three")))
    async with worker.running():
        counts = worker._running().report().counts["orders"]
        await eventually(lambda: counts.completed)
    assert sorted(str(message) for message in await sbredis_bus.locked("orders")) == ["three", "two"]


@pytest.mark.parametrize("requires_session", [False, True])
async def test_what_a_handler_returns_after_it_has_settled_its_batch_does_not_count(
    sbredis_bus: Bus, requires_session: bool
) -> None:
    worker, ended = await worker_of(sbredis_bus, "orders", requires_session=requires_session), list[int]()

    @worker.queue("orders", batch=2, batch_wait=30, session_idle_timeout=0.05)
    async def insert(texts: list[str], context: Context) -> DeadLetter:
        await context.settle(Complete())
        ended.append(len(texts))
        return DeadLetter("no")

    await send(sbredis_bus, "orders", *(ServiceBusMessage(text, session_id="a") for text in ("one", "two")))
    async with worker.running():
        await eventually(lambda: ended)
        counts = worker._running().report().counts["orders"]
    assert (ended, counts.completed, counts.dead_lettered, counts.settlements_failed) == ([2], 2, 0, 0)


async def send(bus: Bus, queue: str, *messages: ServiceBusMessage) -> None:
    await send_to(bus, queue, list(messages))


# -- several calls for what was received together ----------------------------------------------------------------------


async def test_no_more_batches_run_at_once_than_may_and_the_others_keep_their_locks(sbredis_bus: Bus) -> None:
    """Messages for three handlers that were received together need three calls."""
    worker, running, most = await worker_of(sbredis_bus, "orders"), list[str](), list[int]()
    let_go = asyncio.Event()

    async def insert(messages: list[ServiceBusReceivedMessage]) -> None:
        running.append(str(messages[0].subject))
        most.append(len(running))
        await let_go.wait()
        running.pop()

    for subject in "abc":
        worker.queue("orders", batch=9, batch_wait=30, subject=subject, max_concurrent_calls=1)(insert)
    received = [ServiceBusMessage(b"", subject=subject) for subject in "abcabcabc"]
    await send(sbredis_bus, "orders", *received)
    async with worker.running():
        await eventually(lambda: running)
        consumer: Any = worker._running().services[0].consumer
        assert len(list(consumer.renewables())) == 9
        let_go.set()
        await eventually(lambda: empty(sbredis_bus, "orders"))
        assert max(most) == 1
        let_go.clear()
        await send(sbredis_bus, "orders", *received)
        await eventually(lambda: running)
        asyncio.get_running_loop().call_later(0.05, let_go.set)
    left = await sbredis_bus.client.get_queue_receiver("orders").receive_messages(9, 1)
    assert sorted(str(message.subject) for message in left) == ["b", "b", "b", "c", "c", "c"]
    assert {(message.delivery_count, message.interrupted) for message in left} == {(1, False)}


async def test_a_batch_that_waits_is_handled_without_a_message_whose_lock_was_lost(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")
    begun, let_go = asyncio.Event(), asyncio.Event()
    handled: list[list[str]] = []

    async def insert(texts: list[str]) -> None:
        begun.set()
        await let_go.wait()
        handled.append(texts)

    for subject in "abc":
        worker.queue("orders", batch=4, batch_wait=30, subject=subject, max_concurrent_calls=1)(insert)
    parts = (("one", "a"), ("two", "b"), ("three", "b"), ("four", "c"))
    await send(sbredis_bus, "orders", *(ServiceBusMessage(text, subject=subject) for text, subject in parts))
    async with worker.running():
        await begun.wait()
        consumer: Any = worker._running().services[0].consumer
        for message in list(consumer.renewables()):
            if str(message) in {"two", "four"}:
                assert consumer.lost(message)
        receiver = sbredis_bus.client.get_queue_receiver("orders")
        again = [*await receiver.receive_messages(1, 60), *await receiver.receive_messages(1, 60)]
        assert {str(message) for message in again} == {"two", "four"}
        let_go.set()
        await eventually(lambda: len(handled) == 2)
        assert worker._running().report().counts["orders"].locks_lost == 2
    assert handled == [["one"], ["three"]]


async def test_the_time_for_renewals_begins_when_a_batch_that_has_waited_starts(sbredis_bus: Bus) -> None:
    worker, renewed = await worker_of(sbredis_bus, "orders"), dict[str, list[str]]()
    limit = 2.0

    async def insert(messages: list[ServiceBusReceivedMessage]) -> None:
        consumer: Any = worker._running().services[0].consumer
        renewed[str(messages[0])] = sorted(str(message) for message in consumer.renewables())
        if len(renewed) == 1:
            outlasts = time.monotonic() + limit
            await eventually(lambda: time.monotonic() > outlasts)

    for subject in "ab":
        options: Any = {"max_concurrent_calls": 1, "max_auto_lock_renewal_duration": limit}
        worker.queue("orders", batch=2, batch_wait=30, subject=subject, **options)(insert)
    await send(sbredis_bus, "orders", *(ServiceBusMessage(text, subject=text) for text in "ab"))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert renewed == {"a": ["a", "b"], "b": ["b"]}


async def test_batches_that_wait_when_a_circuit_opens_are_given_back(sbredis_bus: Bus) -> None:
    breaker = CircuitBreaker(failures=1, pause=3600)
    worker = await worker_of(
        sbredis_bus, "orders", middleware=[breaker], retries=Retries(first_delay=3000, longest_delay=3000)
    )
    handled: list[str] = []

    async def insert(messages: list[ServiceBusReceivedMessage]) -> None:
        handled.append(str(messages[0].subject))
        raise ConnectionError

    for subject in "ab":
        worker.queue("orders", batch=2, batch_wait=30, subject=subject, max_concurrent_calls=1)(insert)
    await send(sbredis_bus, "orders", *(ServiceBusMessage(b"", subject=subject) for subject in "ab"))
    async with worker.running():
        await eventually(lambda: handled)
        (message,) = await sbredis_bus.client.get_queue_receiver("orders").receive_messages(1, 60)
    assert (handled, message.subject, message.delivery_count) == (["a"], "b", 1)


# -- what a transaction can take ---------------------------------------------------------------------------------------


async def test_a_batch_that_is_too_large_for_a_transaction_comes_again_in_smaller_ones(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction takes 100 messages, and the handler sends one for each of its batch."""
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    worker, sizes = await worker_of(sbredis_bus, "out"), list[int]()

    @worker.queue("orders", batch=120, batch_wait=30, max_concurrent_calls=1)
    async def insert(texts: list[str], context: Context) -> None:
        sizes.append(len(texts))
        for text in texts:
            context.send("out", text)

    await send(sbredis_bus, "orders", *(ServiceBusMessage(str(number)) for number in range(120)))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sizes == [120, 60, 30, 30, 30, 30]
    assert sorted(map(int, await bodies(sbredis_bus, "out"))) == list(range(120))
    assert not await sbredis_bus.dead_lettered("orders")
    assert "a batch has up to 30 messages for a while: set batch=30" in caplog.text


def test_the_size_of_batches_recovers_after_a_single_message_that_was_too_large() -> None:
    """A handler that always sends too much is tried with the larger size more and more rarely."""
    plan: Any = SimpleNamespace(
        source=SimpleNamespace(path="orders"), handlers=[SimpleNamespace(settings=SimpleNamespace(batch=100))]
    )

    def call(count: int, *, overfull: bool) -> Any:
        return SimpleNamespace(
            messages=[0] * count, additions=SimpleNamespace(overfull=overfull), handler=SimpleNamespace(name="insert")
        )

    size = BatchSize(plan)
    while size.most > 1:
        size.adapt(call(size.most, overfull=True))
    size.adapt(call(1, overfull=True))
    assert size.most == 1
    sizes = [size.most]
    while size.most < 100:
        size.adapt(call(size.most, overfull=False))
        sizes.append(size.most)
    assert list(dict.fromkeys(sizes)) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert len(sizes) == 7 * 64 + 1

    size, tries = BatchSize(plan), list[int]()
    for number in range(1000):
        size.adapt(call(size.most, overfull=size.most > 50))
        if size.most > 50:
            tries.append(number)
    assert tries == [64, 64 + 129, 64 + 129 + 257, 64 + 129 + 257 + 513]


async def test_a_batch_whose_sends_have_too_many_bytes_comes_again_in_smaller_ones(sbredis_bus: Bus) -> None:
    """A transaction takes 4 MB."""
    await sbredis_bus.create_queue("orders", max_delivery_count=1, requires_session=True)
    worker, sizes = await worker_of(sbredis_bus, "out", max_message_size_in_kilobytes=1024), list[int]()

    @worker.queue("orders", batch=8, batch_wait=30, max_concurrent_calls=1, session_idle_timeout=0.1)
    async def insert(texts: list[str], context: Context) -> None:
        sizes.append(len(texts))
        for _ in texts:
            context.send("out", bytes(800_000))

    await send(sbredis_bus, "orders", *(ServiceBusMessage(b"", session_id="a") for _ in range(8)))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sizes == [8, 4, 4]
    assert len(await bodies(sbredis_bus, "out")) == 8
    assert not await sbredis_bus.dead_lettered("orders")


async def test_a_batch_of_a_handler_that_sends_has_messages_of_one_partition(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", enable_partitioning=True, max_delivery_count=1)
    worker, partitions = await worker_of(sbredis_bus, "out"), list[set[int]]()

    @worker.queue("orders", batch=10, batch_wait=0.2, max_concurrent_calls=1)
    async def insert(messages: list[ServiceBusReceivedMessage], context: Context) -> None:
        partitions.append({message.sequence_number >> 48 for message in messages})
        context.send("out", len(messages))

    for number in range(10):
        await send(sbredis_bus, "orders", ServiceBusMessage(b"", partition_key=f"{number}"))
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "orders"))
    assert sum(map(int, await bodies(sbredis_bus, "out"))) == 10
    assert {len(each) for each in partitions} == {1}


async def test_a_batch_of_a_handler_without_a_context_has_messages_of_all_partitions(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", enable_partitioning=True, middleware=[Logging()])
    sizes: list[int] = []

    @worker.queue("orders", batch=10, batch_wait=30)
    async def insert(messages: list[ServiceBusReceivedMessage]) -> None:
        sizes.append(len(messages))

    for number in range(10):
        await send(sbredis_bus, "orders", ServiceBusMessage(b"", partition_key=f"{number}"))
    async with worker.running():
        await eventually(lambda: sizes)
    assert sizes == [10]


# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_no_message_of_a_session_overtakes_one_of_another_handler(sbredis_bus: Bus) -> None:
    """Each handler gets messages that follow one another. After one that comes again, the others wait for it."""
    worker = await worker_of(sbredis_bus, "steps", requires_session=True, retries=NOW)
    handled: list[tuple[str, list[str], int]] = []

    @worker.queue("steps", batch=10, batch_wait=30, subject="a", session_idle_timeout=0.05)
    async def first(texts: list[str], context: Context) -> None:
        handled.append(("a", texts, context.attempt))
        if context.attempt == 1 and "4" in texts:
            raise ConnectionError

    @worker.queue("steps", batch=10, batch_wait=30, subject="b")
    async def second(texts: list[str], context: Context) -> None:
        handled.append(("b", texts, context.attempt))

    await send(
        sbredis_bus,
        "steps",
        *(ServiceBusMessage(str(at), subject=subject, session_id="s") for at, subject in enumerate("aabbaabaaa")),
    )
    run: Any
    async with sbredis_bus.running(worker, timeout=100) as run:
        await run.idle()
    expected = [("a", ["0", "1"], 1), ("b", ["2", "3"], 1), ("a", ["4", "5"], 1), ("a", ["4", "5"], 2), ("b", ["6"], 1)]
    assert handled == [*expected, ("a", ["7", "8", "9"], 1)]


async def test_messages_of_a_session_wait_behind_one_that_no_handler_takes_yet(sbredis_bus: Bus) -> None:
    worker, handled = await worker_of(sbredis_bus, "steps", requires_session=True), list[list[str]]()

    @worker.queue("steps", batch=10, batch_wait=30, subject="a", unmatched="abandon", session_idle_timeout=0.05)
    async def first(texts: list[str]) -> None:
        handled.append(texts)

    await send(
        sbredis_bus,
        "steps",
        *(ServiceBusMessage(text, subject=subject, session_id="s") for text, subject in ("1a", "2b", "3a", "4a")),
    )
    async with sbredis_bus.running(worker, timeout=100) as run:
        await run.idle()
        assert handled == [["1"]]
        left = await sbredis_bus.active("steps")
        assert [(str(message), message.delivery_count) for message in left] == [("2", 1), ("3", 0), ("4", 0)]


async def test_a_worker_of_batches_that_waits_takes_a_suspect_at_once(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2, lock_duration=timedelta(seconds=10))
    await sbredis_bus.client.get_queue_sender("orders").send_messages(message_of(Order(1)))
    worker = Worker(sbredis_bus.url)
    handled: list[bool] = []

    @worker.queue("orders", batch=4, batch_wait=0.05)
    async def insert(messages: list[ServiceBusReceivedMessage]) -> None:
        handled.extend(message.is_suspect for message in messages)

    receiver = sbredis_bus.client.get_queue_receiver("orders")
    assert len(await receiver.receive_messages(1, 60)) == 1
    async with sbredis_bus.running(worker, timeout=100):
        sbredis_bus.clock.advance(seconds=11)
        await eventually(lambda: handled == [True])
