"""Tests of how workers share messages and sessions. The times are exact: they pass only while nothing is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Context, Worker
from sbredis.workers.running import _handling
from sbredis.workers.schedules import _time
from tests.waiting import eventually
from tests.workers.virtual import VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class Town:
    """A bus in memory, and workers whose time is that of the event loop."""

    def __init__(self, bus: Bus, stack: AsyncExitStack) -> None:
        self.bus = bus
        self._stack = stack
        self.loop: Any = asyncio.get_running_loop()
        self.now: Callable[[], float] = self.loop.time
        self.over = asyncio.Event()
        """Set when the test has ended, so that its workers need not wait for handlers that pause."""

    async def start(self, *workers: Worker) -> None:
        for worker in workers:
            await self._stack.enter_async_context(worker.running())

    @contextmanager
    def exact(self) -> Any:
        """Let the time pass only while nothing is to be done."""
        with self.loop.jumping(lambda seconds: self.bus.clock.advance(timedelta(seconds=seconds))):
            yield

    async def pause(self, seconds: float) -> None:
        """Sleep as a slow handler does, but not for longer than the test lasts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    async def send(self, queue: str, *texts: str, **options: Any) -> None:
        async with self.bus.client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(text, **options) for text in texts])


@pytest.fixture
async def town(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Town]:
    async with Bus() as bus, AsyncExitStack() as stack:
        made = Town(bus, stack)
        monkeypatch.setattr(_handling, "monotonic", made.now)
        monkeypatch.setattr(_time, "time", SimpleNamespace(monotonic=made.now))
        yield made
        made.over.set()


@pytest.mark.long("its handlers take real time")
async def test_no_message_waits_in_a_buffer_while_another_worker_is_idle(town: Town) -> None:
    await town.bus.create_queue("orders", lock_duration=timedelta(seconds=5))
    begun: dict[int, list[float]] = {0: [], 1: []}
    warm: set[int] = set()
    all_begun = asyncio.Event()

    def handler(number: int) -> Callable[..., Awaitable[None]]:
        async def place(text: str, context: Context) -> None:
            assert context.attempt == 1
            if text == "warm":
                warm.add(number)
                await eventually(lambda: len(warm) == 2)
                return
            begun[number].append(town.now())
            if sum(map(len, begun.values())) == 20:
                all_begun.set()
            await town.pause(2)

        return place

    for number in begun:
        worker = Worker(town.bus.url, max_concurrent_calls=1)
        worker.queue("orders")(handler(number))
        await town.start(worker)
    await town.send("orders", "warm", "warm")
    await eventually(lambda: len(warm) == 2)
    with town.exact():
        sent = town.now()
        await town.send("orders", *map(str, range(20)))
        await all_begun.wait()
    for times in begun.values():
        assert len(times) == 10
        assert times[0] - sent <= 0.5
        assert max(later - earlier for earlier, later in pairwise(times)) <= 2.5


@pytest.mark.slow
async def test_three_messages_in_sixteen_partitions_are_received_at_once(town: Town) -> None:
    await town.bus.create_queue("orders", enable_partitioning=True)
    received: dict[str, float] = {}
    both, all_three = asyncio.Event(), asyncio.Event()
    warm: set[int] = set()

    def handler(number: int) -> Callable[..., Awaitable[None]]:
        async def place(text: str) -> None:
            if text == "warm":
                warm.add(number)
                if len(warm) == 2:
                    both.set()
                await both.wait()
                return
            received[text] = town.now()
            if len(received) == 3:
                all_three.set()

        return place

    for number in range(2):
        worker = Worker(town.bus.url, max_concurrent_calls=1)
        worker.queue("orders", prefetch=0)(handler(number))
        await town.start(worker)
    await town.send("orders", "warm", "warm")
    await both.wait()
    with town.exact():
        sent = town.now()
        for text in ("one", "two", "three"):
            await town.send("orders", text)
        await all_three.wait()
    assert max(received.values()) - sent <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_session_messages": 3}, {"max_session_time": 1.0}], ids=["messages", "time"])
async def test_small_sessions_are_served_in_turn_beside_two_that_are_always_fed(
    town: Town, limit: dict[str, Any]
) -> None:
    await town.bus.create_queue("steps", requires_session=True)
    served: list[str] = []
    small = [f"small {number}" for number in range(10)]
    all_served = asyncio.Event()
    worker = Worker(town.bus.url)

    @worker.queue("steps", max_concurrent_calls=2, session_idle_timeout=0.1, **limit)
    async def step(context: Context) -> None:
        assert context.session is not None
        name = context.session.session_id
        if not served or served[-1] != name:
            served.append(name)
        if name in small:
            if set(served) >= set(small):
                all_served.set()
        else:
            await town.send("steps", "again", session_id=name)
        await town.pause(0.3)

    for name in ("fed a", "fed b"):
        await town.send("steps", *["first"] * 10, session_id=name)
    await town.start(worker)
    await eventually(lambda: len(served) > 3)
    with town.exact():
        began = town.now()
        for name in small:
            await town.send("steps", "only", session_id=name)
        await all_served.wait()
        took = town.now() - began
    # A fed session keeps its slot for about a second. So in each second each slot serves one fed session or some small
    # ones, and nothing comes twice before each that waits has had its turn. Two that are served at the same time may
    # begin in either order.
    assert took <= 20
    turns = sorted(served.index(name) for name in small)
    in_turn = [served[turn] for turn in turns]
    assert all(abs(in_turn.index(name) - place) <= 1 for place, name in enumerate(small)), served
    between = [name for name in served[turns[0] : turns[-1]] if name.startswith("fed")]
    assert len(between) <= 12, served


@pytest.mark.slow
async def test_a_session_whose_time_is_over_is_given_back_although_its_messages_were_received(town: Town) -> None:
    await town.bus.create_queue("steps", requires_session=True)
    begun: dict[str, float] = {}
    all_begun = asyncio.Event()
    worker = Worker(town.bus.url)

    @worker.queue("steps", max_concurrent_calls=1, session_idle_timeout=0.1, max_session_time=1.0)
    async def step(text: str) -> None:
        begun[text] = town.now()
        if "other" in begun:
            all_begun.set()
        if text != "warm":
            await town.pause(0.3)

    await town.start(worker)
    await town.send("steps", "warm", session_id="warm")
    await eventually(lambda: begun)
    with town.exact():
        began = town.now()
        await town.send("steps", *map(str, range(10)), session_id="long")
        await town.send("steps", "other", session_id="other")
        await all_begun.wait()
    assert begun["other"] - began < 2, begun


@pytest.mark.long("its handlers take real time")
async def test_a_worker_whose_handlers_become_slow_keeps_no_messages_from_others(town: Town) -> None:
    await town.bus.create_queue("orders", lock_duration=timedelta(seconds=60))
    slow, idle = Worker(town.bus.url, max_concurrent_calls=1), Worker(town.bus.url, max_concurrent_calls=1)
    handled: list[tuple[str, float]] = []
    done = asyncio.Event()

    def handler(name: str) -> Callable[..., Awaitable[None]]:
        async def place(text: str) -> None:
            if text == "fast":
                await asyncio.sleep(0.01)
                return
            handled.append((name, town.now()))
            if len(handled) == 6:
                done.set()
            await town.pause(20)

        return place

    slow.queue("orders")(handler("slow"))
    await town.start(slow)
    consumer: Any = slow._running().services[0].consumer
    with town.exact():
        await town.send("orders", *["fast"] * 60)
        await eventually(lambda: consumer.origin.receiver.prefetch_count)
        await town.send("orders", *["slow"] * 6)
        await eventually(lambda: handled)
    idle.queue("orders")(handler("idle"))
    await town.start(idle)
    with town.exact():
        began = town.now()
        await done.wait()
    # Each of the two begins three messages, 20 s apart. The second worker finds its first one at once.
    assert town.now() - began < 41, handled


@pytest.mark.slow
async def test_a_batch_waits_no_longer_than_it_may_although_messages_come(town: Town) -> None:
    await town.bus.create_queue("orders")
    handled: list[tuple[float, list[str]]] = []
    done = asyncio.Event()
    worker = Worker(town.bus.url, max_concurrent_calls=1)

    @worker.queue("orders", batch=10, batch_wait=2)
    async def insert(texts: list[str]) -> None:
        handled.append((town.now(), texts))
        if len(handled) > 1:
            done.set()

    await town.start(worker)
    await town.send("orders", "warm")
    await eventually(lambda: handled)
    with town.exact():
        began = town.now()
        for text in ("one", "two", "three"):
            await town.send("orders", text)
            await town.pause(0.9)
        await done.wait()
    (_, (ended, texts)) = handled
    assert texts == ["one", "two", "three"]
    assert ended - began == pytest.approx(2, abs=0.01)
