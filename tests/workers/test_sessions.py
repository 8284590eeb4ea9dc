"""Tests of handlers of messages that belong to sessions."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import SessionCannotBeLockedError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Abandon, Complete, Context, Retries, Worker
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Calls
from tests.waiting import eventually
from tests.workers.looking import empty, send_to, worker_of
from tests.workers.virtual import VirtualLoop

NOW = Retries(first_delay=0)


async def test_messages_of_a_session_are_handled_in_order_with_its_state(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "steps", requires_session=True, retries=NOW), dict[str, list[int]]()

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(number: int, context: Context) -> None:
        session = context.session
        assert session is not None
        total = await session.get_state(int) or 0
        if number == 3 and context.attempt == 1:
            raise ValueError
        session.set_state(total + number)
        seen.setdefault(session.session_id, []).append(number)

    async with worker.running():
        for number in range(1, 6):
            for session_id in ("a", "b"):
                await worker.send("steps", number, session_id=session_id)
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert seen == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}
    for session_id in seen:
        async with sbredis_bus.client.get_queue_receiver("steps", session_id=session_id) as receiver:
            assert await receiver.session.get_state() == b"15"


async def test_nothing_overtakes_a_message_that_its_handler_abandons(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "steps", requires_session=True, retries=NOW), list[int]()

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(number: int, context: Context) -> None:
        seen.append(number)
        await context.settle(Abandon() if context.attempt == 1 else Complete())

    await send_to(sbredis_bus, "steps", [ServiceBusMessage(number, session_id="a") for number in (b"1", b"2")])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert seen == [1, 1, 2, 2]


async def test_a_session_that_is_interrupted_says_so(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("steps", requires_session=True)
    begun = asyncio.Event()
    told: list[bool] = []
    first, second = Worker(sbredis_bus.url, shutdown_timeout=0), Worker(sbredis_bus.url)

    @first.queue("steps")
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(3600)

    @second.queue("steps", session_idle_timeout=0.1)
    async def step(context: Context) -> None:
        told.append(context.interrupted)

    async with first.running():
        await first.send("steps", b"", session_id="a")
        await begun.wait()
    async with second.running():
        await second.send("steps", b"", session_id="a")
        await eventually(lambda: len(told) == 2)
    assert told == [True, False]


@pytest.mark.parametrize("batch", [None, 1])
async def test_a_message_whose_settlement_fails_is_not_overtaken(sbredis_bus: Bus, batch: int | None) -> None:
    worker, handled = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()
    options: dict[str, Any] = {} if batch is None else {"batch": batch}

    @worker.queue("steps", session_idle_timeout=0.1, **options)
    async def step(context: Context) -> None:
        handled.append(str(context.message))

    async with worker.running(), sbredis_bus.client.get_queue_sender("steps") as sender:
        with Gate(worker._running().client, "complete") as gate:
            gate.fates.append("is lost")
            await sender.send_messages([ServiceBusMessage(text, session_id="a") for text in ("one", "two")])
            await eventually(lambda: empty(sbredis_bus, "steps"))
    assert handled == ["one", "one", "two"]


async def test_a_worker_holds_no_more_sessions_than_it_may(sbredis_bus: Bus) -> None:
    worker, begun = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()
    let_go = asyncio.Event()

    @worker.queue("steps", max_concurrent_calls=2, session_idle_timeout=0.1)
    async def step(text: str) -> None:
        begun.append(text)
        await let_go.wait()

    await send_to(sbredis_bus, "steps", [ServiceBusMessage(text, session_id=text) for text in "abc"])
    async with worker.running():
        await eventually(lambda: len(begun) == 2)
        for _ in range(200):
            await asyncio.sleep(0)
        receiver = await sbredis_bus.client.accept_next_session("steps", max_wait_time=60)
        assert receiver is not None
        assert sorted([*begun, receiver.session.session_id]) == ["a", "b", "c"]
        await receiver.close()
        let_go.set()
        await eventually(lambda: empty(sbredis_bus, "steps"))


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})], ids=["virtual"])
@pytest.mark.parametrize(("slots", "most"), [(4, 60), (1, 46)])
async def test_a_session_with_one_message_takes_few_calls(sbredis_bus: Bus, slots: int, most: int) -> None:
    """A session comes with its message, and the call that completes the message releases the session.

    If the worker has no other slot, the same call brings the next session. The first call and the idle session remain.
    A machine that stands still for a while would cause further calls, so no time passes here.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    worker, handled = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()

    @worker.queue("steps", max_concurrent_calls=slots, session_idle_timeout=3600, max_session_time=3600)
    async def step(text: str) -> None:
        handled.append(text)

    texts = [f"{number:02}" for number in range(40)]
    await send_to(sbredis_bus, "steps", [ServiceBusMessage(text, session_id=text) for text in texts])
    async with worker.running():
        with Calls(worker._running().client._connection.transport) as calls, loop.jumping(lambda _: None):
            await eventually(lambda: empty(sbredis_bus, "steps"))
    assert (handled if slots == 1 else sorted(handled)) == texts
    assert sum(calls.by_script[name] for name in ("grant", "complete", "release_session")) <= most


@pytest.mark.parametrize("workers", [1, 2])
async def test_idle_sessions_of_all_partitions_are_let_go_of(sbredis_bus: Bus, workers: int) -> None:
    """The workers would keep each session for an hour."""
    await sbredis_bus.create_queue("steps", requires_session=True, enable_partitioning=True)
    running, handled = [Worker(sbredis_bus.url) for _ in range(workers)], list[str]()

    async def step(text: str) -> None:
        handled.append(text)

    for worker in running:
        worker.queue("steps", max_concurrent_calls=2, session_idle_timeout=3600, max_session_time=3600)(step)
    texts = [f"{number:02}" for number in range(30)]
    async with AsyncExitStack() as stack, sbredis_bus.client.get_queue_sender("steps") as sender:
        for worker in running:
            await stack.enter_async_context(worker.running())
        for text in texts[:6]:  # one after the other: all slots have idle sessions then
            await sender.send_messages(ServiceBusMessage(text, session_id=text))
            await eventually(lambda text=text: text in handled)
        await sender.send_stream([ServiceBusMessage(text, session_id=text) for text in texts[6:]])
        await eventually(lambda: len(handled) == len(texts))
        await eventually(lambda: empty(sbredis_bus, "steps"))
        assert sorted(handled) == texts
        assert not any(worker._running().report().counts["steps"].locks_lost for worker in running)


async def test_a_session_of_a_full_worker_goes_on_while_it_has_messages(sbredis_bus: Bus) -> None:
    """Others wait, but nothing of the session is left behind, and its order is kept."""
    worker, handled = await worker_of(sbredis_bus, "steps", requires_session=True), dict[str, list[int]]()

    @worker.queue("steps", max_concurrent_calls=2, session_idle_timeout=3600, max_session_time=3600)
    async def step(number: int, context: Context) -> None:
        assert context.session is not None
        handled.setdefault(context.session.session_id, []).append(number)

    names = [f"s{place}" for place in range(5)]
    async with sbredis_bus.client.get_queue_sender("steps") as sender:
        for number in range(25):
            await sender.send_messages([ServiceBusMessage(str(number), session_id=name) for name in names])
    async with worker.running():
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert handled == {name: list(range(25)) for name in names}


async def test_the_session_that_is_idle_for_longest_is_given_back(sbredis_bus: Bus) -> None:
    worker, handled = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()
    busy = asyncio.Event()

    @worker.queue("steps", max_concurrent_calls=3, session_idle_timeout=3600, max_session_time=3600)
    async def step(text: str) -> None:
        handled.append(text)
        if text == "busy":
            await busy.wait()

    async def send(text: str) -> None:
        await worker.send("steps", text, session_id=text)
        await eventually(lambda: text in handled)
        if text != "busy":
            await eventually(lambda: empty_but_one(sbredis_bus))

    async with worker.running():
        for text in ("busy", "first", "second"):
            await send(text)
        await send("third")  # takes the slot of the first one
        async with sbredis_bus.client.get_queue_receiver("steps", session_id="first", max_wait_time=30) as receiver:
            assert receiver.session.session_id == "first"
        for held in ("busy", "second", "third"):
            with pytest.raises(SessionCannotBeLockedError):
                async with sbredis_bus.client.get_queue_receiver("steps", session_id=held, max_wait_time=0.1):
                    pass
        busy.set()


async def test_a_session_that_no_slot_is_free_for_is_left_to_others(sbredis_bus: Bus) -> None:
    """No session is idle, so the worker does not hold more sessions than it has slots."""
    await sbredis_bus.create_queue("steps", requires_session=True)
    worker, began, busy = Worker(sbredis_bus.url), list[str](), asyncio.Event()

    @worker.queue("steps", max_concurrent_calls=1, session_idle_timeout=3600)
    async def step(text: str) -> None:
        began.append(text)
        if text == "long":
            await busy.wait()

    async with worker.running():
        await worker.send("steps", "short", session_id="a")
        await eventually(lambda: began == ["short"])
        await worker.send("steps", "long", session_id="a")  # perhaps the worker waits for a further session now
        await eventually(lambda: began == ["short", "long"])
        await worker.send("steps", "other", session_id="b")
        async with sbredis_bus.client.get_queue_receiver("steps", session_id="b", max_wait_time=30) as receiver:
            (message,) = await receiver.receive_messages(1, 30)
            assert str(message) == "other"
            assert message.delivery_count == 1
            await receiver.complete_message(message)
        busy.set()


async def empty_but_one(bus: Bus) -> bool:
    """Return whether only the message of a running handler is left."""
    return len(await bus.active("steps")) == 1


# -- suspects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 4])
async def test_a_suspect_of_a_session_is_handled_while_the_worker_holds_nothing_else(
    sbredis_bus: Bus, batch: int | None
) -> None:
    """The session keeps its order meanwhile, and all other sessions come again."""
    lock = timedelta(seconds=10)
    await sbredis_bus.create_queue("steps", requires_session=True, max_delivery_count=2, lock_duration=lock)
    sender = sbredis_bus.client.get_queue_sender("steps")
    await sender.send_messages([ServiceBusMessage(text, session_id="a") for text in ("a1", "a2", "a3")])
    died = sbredis_bus.client.get_queue_receiver("steps", session_id="a")
    assert len(await died.receive_messages(1)) == 1
    sbredis_bus.clock.advance(seconds=11)
    others = {f"{session}{number}": session for session in "bcde" for number in (1, 2, 3)}
    await sender.send_messages([ServiceBusMessage(text, session_id=name) for text, name in others.items()])
    worker = Worker(sbredis_bus.url)
    handled: list[str] = []
    running: list[str] = []
    beside: dict[str, set[str]] = {}

    async def handle(messages: list[ServiceBusReceivedMessage]) -> None:
        texts = [str(message) for message in messages]
        running.extend(texts)
        if any(message.is_suspect for message in messages):
            beside[texts[0]] = set()
        for _ in range(20):
            await asyncio.sleep(0.001)
            for suspect in beside.keys() & {*running}:
                beside[suspect].update(running)
        for text in texts:
            running.remove(text)
        handled.extend(texts)

    async def single(message: ServiceBusReceivedMessage) -> None:
        await handle([message])

    if batch is None:
        worker.queue("steps", max_concurrent_calls=3)(single)
    else:
        worker.queue("steps", max_concurrent_calls=3, batch=batch, batch_wait=0)(handle)
    async with sbredis_bus.running(worker, timeout=100):
        await eventually(lambda: len(handled) == 3 + len(others))
    assert beside == {"a1": {"a1"}}
    for session in "abcde":
        assert [text for text in handled if text[0] == session] == [f"{session}{number}" for number in (1, 2, 3)]


async def test_a_worker_that_stops_lets_go_of_a_suspect_that_waits_for_its_turn(sbredis_bus: Bus) -> None:
    """Its handler never begins, and its delivery is not counted."""
    lock = timedelta(seconds=10)
    await sbredis_bus.create_queue("steps", requires_session=True, max_delivery_count=2, lock_duration=lock)
    sender = sbredis_bus.client.get_queue_sender("steps")
    await sender.send_messages(ServiceBusMessage("suspect", session_id="a"))
    died = sbredis_bus.client.get_queue_receiver("steps", session_id="a")
    assert len(await died.receive_messages(1)) == 1
    worker = Worker(sbredis_bus.url, shutdown_timeout=0.1)
    started: list[str] = []

    @worker.queue("steps", max_concurrent_calls=3)
    async def step(text: str) -> None:
        started.append(text)
        await asyncio.Event().wait()

    async def waits() -> bool:
        try:
            async with sbredis_bus.client.get_queue_receiver("steps", session_id="a"):
                return False
        except SessionCannotBeLockedError:
            return True

    await sender.send_messages(ServiceBusMessage("slow", session_id="b"))
    async with sbredis_bus.running(worker, timeout=100):
        await eventually(lambda: started == ["slow"])
        sbredis_bus.clock.advance(seconds=11)
        await eventually(waits)
    assert started == ["slow"]
    async with sbredis_bus.client.get_queue_receiver("steps", session_id="a") as receiver:
        (message,) = await receiver.receive_messages(1)
        assert (message.is_suspect, message.delivery_count, message.interrupted) == (True, 2, False)


async def test_a_session_that_waits_for_room_does_not_keep_a_suspect_from_its_turn(sbredis_bus: Bus) -> None:
    """It was accepted when the session before it seemed to have no more messages. Then the suspect came."""
    lock, names = timedelta(seconds=10), [f"s{place}" for place in range(6)]
    await sbredis_bus.create_queue("steps", requires_session=True, enable_partitioning=True, lock_duration=lock)
    client = sbredis_bus.client
    async with client.get_queue_sender("steps") as sender:
        for name in names:
            await sender.send_messages([ServiceBusMessage(text, session_id=name) for text in ("first", "suspect")])
    for _ in range(2):
        died = [client.get_queue_receiver("steps", session_id=name) for name in names]
        for receiver in died:
            assert len(await receiver.receive_messages(2)) == 2
        sbredis_bus.clock.advance(seconds=11)
    for name in names:
        async with client.get_queue_receiver("steps", session_id=name) as receiver:
            await receiver.abandon_message((await receiver.receive_messages(1))[0])
    worker, handled, waited = Worker(sbredis_bus.url), list[tuple[str | None, str]](), list[str]()
    begin = asyncio.Event()

    async def held() -> bool:
        """Return whether the worker has accepted a session of which nothing was handled."""
        for name in set(names) - {session for session, _ in handled}:
            try:
                async with client.get_queue_receiver("steps", session_id=name, max_wait_time=0.01):
                    pass
            except SessionCannotBeLockedError:
                waited.append(name)
                return True
        return False

    @worker.queue("steps", max_concurrent_calls=1)
    async def step(text: str, context: Context) -> None:
        await begin.wait()
        handled.append((context.message.session_id, text))

    async with worker.running():
        transport: Any = worker._running().client._connection.transport
        through = transport.call

        async def slow(script: Any, *arguments: Any, **options: Any) -> Any:
            reply = await through(script, *arguments, **options)
            if script.name == "complete" and len(handled) == 1:
                await eventually(held)
            return reply

        divert(transport, slow)
        begin.set()
        await eventually(lambda: len(handled) == 2 * len(names))
    assert len(waited) == 1
    for name in names:
        assert [text for session, text in handled if session == name] == ["first", "suspect"]
