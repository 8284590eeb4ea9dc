"""Tests of a worker that meets errors: in the application, in itself, and at the wrong moment."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.bulk import release, reserve
from sbredis.exceptions import WorkerSetupError
from sbredis.management import EntityStatus
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Complete, Context, DeadLetter, Depends, Retries, Worker
from sbredis.workers.observing._pulse import Pulse
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._locks import beating
from sbredis.workers.running._sessions import SessionConsumer
from sbredis.workers.schedules._time import Time
from tests.waiting import eventually
from tests.workers.looking import dead, empty, worker_of
from tests.workers.parts import Parts, Runtime, begun_with

NOW = Retries(first_delay=0)


class Hurried(Time):
    """The time of a worker whose pauses are noted, and are short."""

    def __init__(self, steady: float | None = None) -> None:
        self.pauses: list[float] = []
        self.steady = steady
        """The seconds after which a service counts as steady, instead of those that it asks for."""

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds / 1000)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        return super().call_later(seconds if self.steady is None else self.steady, function)


def paused(worker: Worker) -> dict[str, str]:
    return worker._running().report().paused


# -- errors that should not happen -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [False, True])
async def test_an_entity_goes_on_after_a_defect_which_is_logged_once_and_shown(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sessions: bool
) -> None:
    worker = await worker_of(sbredis_bus, "orders", requires_session=sessions)
    sender = sbredis_bus.client.get_queue_sender("orders")
    seen: list[str] = []
    broken, failures = True, 0
    owner, name = (SessionConsumer, "_handle_all") if sessions else (Handling, "choose")
    original: Callable[..., Any] = getattr(owner, name)

    def failing(*given: Any) -> Any:
        nonlocal failures
        if broken:
            failures += 1
            raise RuntimeError("a defect")
        return original(*given)

    monkeypatch.setattr(owner, name, failing)

    @worker.queue("orders", session_idle_timeout=0.1)
    async def place(text: str) -> None:
        seen.append(text)

    async def send(text: str) -> None:
        await sender.send_messages(ServiceBusMessage(text, session_id="s" if sessions else None))

    def defects() -> int:
        return sum(record.exc_info is not None and "a defect" in str(record.exc_info[1]) for record in caplog.records)

    clock = Hurried(steady=3600)
    async with begun_with(worker, Parts(time=clock)):
        for text in ("one", "two", "three"):
            await send(text)
        await eventually(lambda: failures >= 3)
        assert paused(worker) == {"orders": "RuntimeError: a defect (an error that was not expected)"}
        assert defects() == 1
        clock.steady = 0.0
        await send("four")
        await eventually(lambda: not paused(worker))
        broken = False
        await send("five")
        await eventually(lambda: "five" in seen)


@pytest.mark.slow
async def test_an_entity_that_is_disabled_or_deleted_pauses_and_resumes(sbredis_bus: Bus) -> None:
    queue = await sbredis_bus.create_queue("orders")
    worker = Worker(sbredis_bus.url)
    seen: list[str] = []

    @worker.queue("orders")
    async def place(text: str) -> None:
        seen.append(text)

    administration = sbredis_bus._clients.administration()
    async with begun_with(worker, Parts(time=Hurried(steady=0))):
        queue.status = EntityStatus.DISABLED
        await administration.update_queue(queue)
        await eventually(lambda: "Disabled" in paused(worker).get("orders", ""))
        queue.status = EntityStatus.ACTIVE
        await administration.update_queue(queue)
        await eventually(lambda: not paused(worker))
        queue.status = EntityStatus.DISABLED
        await administration.update_queue(queue)
        await eventually(lambda: paused(worker))
        await administration.delete_queue("orders")
        await eventually(lambda: "no entity" in paused(worker).get("orders", ""))
        await sbredis_bus.create_queue("orders")
        await worker.send("orders", "one")
        await eventually(lambda: seen == ["one"])


@pytest.mark.slow
async def test_an_entity_is_tried_again_after_longer_and_longer_pauses_until_it_was_received_from(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await sbredis_bus.create_queue("orders")
    administration = sbredis_bus._clients.administration()
    worker, clock = Worker(sbredis_bus.url), Hurried()
    worker.queue("orders")(nothing)
    async with Runtime(worker._setup(), Parts(time=clock)).running(worker) as runtime:
        for count in (8, 2):
            clock.pauses.clear()
            queue.status = EntityStatus.DISABLED
            await administration.update_queue(queue)
            await eventually(lambda count=count: len(clock.pauses) >= count)
            assert clock.pauses[:count] == [0.5, 1, 2, 4, 8, 16, 30, 30][:count]
            queue.status = EntityStatus.ACTIVE
            await administration.update_queue(queue)
            await eventually(lambda: not runtime.report().paused)
    assert caplog.text.count("orders: paused, and tried again until it works") == 2


@pytest.mark.slow
async def test_a_reserved_entity_which_can_be_looked_at_and_not_received_from_stays_paused(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sbredis.worker")
    await sbredis_bus.create_queue("orders")
    await reserve(sbredis_bus.client, "orders", consumer="capture")
    worker, clock = Worker(sbredis_bus.url), Hurried()
    worker.queue("orders")(nothing)
    await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
    async with Runtime(worker._setup(), Parts(time=clock)).running(worker) as runtime:
        await eventually(lambda: len(clock.pauses) > 2)
        steady = time.monotonic() + 1.1  # a service that receives for a second counts as steady
        await eventually(lambda: time.monotonic() > steady)
        assert "for the consumer 'capture'" in runtime.report().paused["orders"]
        assert "receiving again" not in caplog.text
        await release(sbredis_bus.client, "orders")
        await eventually(lambda: empty(sbredis_bus))


async def test_hooks_and_conditions_that_raise_harm_nothing(sbredis_bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2)
    told: list[str] = []

    def hook(message: ServiceBusReceivedMessage, error: BaseException) -> None:
        told.append(f"{message.delivery_count} {type(error).__name__}")
        raise LookupError("the hook is wrong")

    def when(message: ServiceBusReceivedMessage) -> bool:
        if message.subject == "reject":
            raise DeadLetter("Rejected")
        raise ArithmeticError("the condition is wrong")

    worker = Worker(sbredis_bus.url, retries=NOW, on_error=hook)

    @worker.queue("orders", when=when)
    async def place() -> None:
        raise AssertionError

    async with worker.running():
        await worker.send("orders", b"")
        await worker.send("orders", b"", subject="reject")
        await eventually(lambda: dead(sbredis_bus, 2))
        assert paused(worker) == {}
    reasons = {message.dead_letter_reason for message in await sbredis_bus.dead_lettered("orders")}
    assert reasons == {"ArithmeticError", "Rejected"}
    assert told == ["1 ArithmeticError", "2 ArithmeticError"]
    assert caplog.text.count("on_error failed") == 2
    with pytest.raises(TypeError, match="on_error must be a plain function"):
        Worker(sbredis_bus.url, on_error=place)  # type: ignore[arg-type]


async def test_an_error_of_a_condition_is_that_of_its_own_handler(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    def when(_: ServiceBusReceivedMessage) -> bool:
        raise ArithmeticError("the condition is wrong")

    @worker.queue("orders", subject="other", no_retry=(ArithmeticError,))
    async def first() -> None:
        raise AssertionError

    @worker.queue("orders", when=when, retries=Retries(first_delay=0, attempts=3))
    async def second() -> None:
        raise AssertionError

    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: dead(sbredis_bus, 1))
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "ArithmeticError"
    assert caplog.text.count("second failed for message") == 3
    assert "first failed" not in caplog.text


@pytest.mark.parametrize("batch", [None, 1])
async def test_an_error_after_the_message_was_settled_is_counted_and_told(sbredis_bus: Bus, batch: int | None) -> None:
    told: list[str] = []
    worker = await worker_of(sbredis_bus, "orders", on_error=lambda _, error: told.append(str(error)))

    async def place(context: Context) -> None:
        await context.settle(Complete())
        raise ValueError("after the end")

    options: dict[str, Any] = {} if batch is None else {"batch": batch}
    worker.queue("orders", **options)(place)
    async with worker.running():
        await worker.send("orders", b"")
        await eventually(lambda: told)
        counts = worker._running().report().counts["orders"]
    assert told == ["after the end"]
    assert (counts.errors, counts.completed, counts.settlements_failed) == (1, 1, 0)


async def test_a_message_that_becomes_a_dead_letter_is_logged_with_its_fate(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=2, retries=NOW)

    @worker.queue("orders", subject="one")
    async def place(number: int) -> None:
        raise ValueError(number)

    async with worker.running():
        await worker.send("orders", 1, subject="one")
        await worker.send("orders", "text", subject="one")
        await worker.send("orders", 1, subject="two")
        await eventually(lambda: dead(sbredis_bus, 3))
    said = [record.getMessage() for record in caplog.records if record.name == "sbredis.worker"]
    assert any(
        "for message 1, which comes again in 0.0 s, after attempt 1 of 2: ValueError(1)" in each for each in said
    )
    assert any("for message 1, which is dead-lettered after attempt 2 of 2: ValueError(1)" in each for each in said)
    assert any("message 2 is dead-lettered: MessageBody: " in each for each in said)
    assert any("message 3 is dead-lettered: NoHandler: " in each for each in said)


# -- an event loop that is blocked -------------------------------------------------------------------------------------


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 -- a fixed scheme
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
async def test_a_blocked_event_loop_fails_readiness_and_then_liveness_and_recovers(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sbredis.worker")
    states: list[tuple[int, int]] = []
    ended = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        states.append(await both(caplog))
        yield

    worker = await worker_of(sbredis_bus, "orders", stuck_after=1, http="127.0.0.1:0", lifespan=lifespan)

    @worker.queue("orders")
    async def place() -> None:
        at = address(caplog)
        while not states or states[-1] != (503, 503):  # this blocks the event loop, and the HTTP server answers
            state = status(f"{at}/live"), status(f"{at}/ready")
            if state != states[-1]:
                states.append(state)
            time.sleep(0.01)  # noqa: ASYNC251 -- what the test is about
        ended.set()

    async with worker.running():
        await worker.send("orders", b"")
        await ended.wait()

        async def well() -> bool:
            return await both(caplog) == (200, 200)

        await eventually(well)
    assert states[0] == (200, 503), "it was starting"
    assert (503, 200) not in states  # a slow machine may miss the quarter of a second in which only readiness fails


def address(caplog: pytest.LogCaptureFixture) -> str:
    line = next(each for each in caplog.messages if each.startswith("health and metrics at "))
    return line.partition(" at ")[2].partition("/live")[0]


async def both(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    at = address(caplog)
    return await asyncio.to_thread(status, f"{at}/live"), await asyncio.to_thread(status, f"{at}/ready")


@pytest.mark.slow
async def test_the_pulse_of_an_event_loop_ends_with_its_worker() -> None:
    class Counting(Pulse):
        turns = 0

        def turned(self, now: float) -> None:
            super().turned(now)
            self.turns += 1

    pulse = Counting(60, time.monotonic())
    with beating(pulse):
        await eventually(lambda: pulse.turns > 2)
    turns, beats = pulse.turns, time.monotonic() + 1.1  # two of them would have come by then
    await eventually(lambda: time.monotonic() > beats)
    assert pulse.turns == turns


async def test_a_port_that_is_in_use_is_refused_at_the_start(sbredis_bus: Bus) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    worker = Worker(sbredis_bus.url, http=f"127.0.0.1:{port}")

    @worker.queue("orders")
    async def place(text: str) -> None: ...

    with pytest.raises(WorkerSetupError, match=f"The HTTP port 127.0.0.1:{port} cannot be used"):
        await worker.run()
    server.close()


# -- the life of a worker ----------------------------------------------------------------------------------------------


async def test_a_worker_is_stopped_from_another_thread_and_runs_again(sbredis_bus: Bus) -> None:
    worker, runs = await worker_of(sbredis_bus, "orders"), list[str]()

    @worker.queue("orders")
    def place(text: str) -> None:
        runs.append(text)
        worker.stop()

    worker.stop()  # it does not run: nothing happens
    for number in ("first", "second"):
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage(number))
        await asyncio.wait_for(worker.run(), 60)
    assert runs == ["first", "second"]
    assert await empty(sbredis_bus)


async def test_a_program_that_is_not_in_the_main_thread_is_told_what_to_use(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders")
    worker.queue("orders")(nothing)
    with pytest.raises(RuntimeError, match=r"elsewhere, use `await worker\.run"):
        await asyncio.to_thread(worker.run_sync)
    with pytest.raises(RuntimeError, match=r"one runs already: use `await worker\.run"):
        worker.run_sync()


async def test_a_worker_that_is_cancelled_while_it_starts_can_run_later(sbredis_bus: Bus) -> None:
    starting = asyncio.Event()
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        told.append("begins")
        starting.set()
        try:
            if len(told) == 1:
                await asyncio.sleep(3600)
            yield
        finally:
            told.append("ends")

    worker = await worker_of(sbredis_bus, "orders", lifespan=lifespan)
    worker.queue("orders")(nothing)
    running = asyncio.create_task(worker.run())
    await starting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with worker.running():
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.run()
    assert told == ["begins", "ends"] * 2


@pytest.mark.parametrize("when", ["start", "end"])
async def test_an_error_in_the_lifespan_reaches_the_caller(sbredis_bus: Bus, when: str) -> None:

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        if when == "start":
            raise LookupError(when)
        yield
        await worker.client.describe_entity("orders")  # the client is still open
        raise LookupError(when)

    worker = await worker_of(sbredis_bus, "orders", lifespan=lifespan)
    worker.queue("orders")(nothing)
    with pytest.raises(LookupError, match=when):
        async with worker.running():
            worker.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = worker.client


async def nothing() -> None: ...


async def test_an_idle_session_does_not_delay_the_end(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "steps", requires_session=True), list[str]()

    @worker.queue("steps", session_idle_timeout=3600)
    async def step(text: str) -> None:
        seen.append(text)

    async with worker.running():
        await worker.send("steps", "one", session_id="a")
        await eventually(lambda: seen)
        await eventually(lambda: empty(sbredis_bus, "steps"))
    assert worker._runtime is None


# -- outcomes from anywhere --------------------------------------------------------------------------------------------


def rejecting() -> str:
    raise DeadLetter("Rejected")


async def test_an_outcome_may_be_raised_in_a_dependency_and_in_a_thread(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await worker_of(sbredis_bus, "orders")

    @worker.queue("orders", subject="async")
    async def one(value: Annotated[str, Depends(rejecting)]) -> None: ...

    @worker.queue("orders", subject="thread")
    def two(value: Annotated[str, Depends(rejecting)]) -> None: ...

    @worker.queue("orders", subject="group")
    def three() -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [DeadLetter("Rejected")])])

    async with worker.running():
        for subject in ("async", "thread", "group"):
            await worker.send("orders", b"", subject=subject)
        await eventually(lambda: dead(sbredis_bus, 3))
        counts = worker._running().report().counts["orders"]
    assert {letter.dead_letter_reason for letter in await sbredis_bus.dead_lettered("orders")} == {"Rejected"}
    assert counts.errors == 0
    assert [record for record in caplog.records if record.name == "sbredis.worker" and record.levelname != "INFO"] == []
