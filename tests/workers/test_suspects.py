"""A message whose handler ends the process takes no others with it. The kills are real."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusSubQueue, taking_of
from sbredis.servers import LocalServer
from sbredis.testing import Bus
from sbredis.workers import Worker
from sbredis.workers.running._suspects import Alone, SuspectTurns
from sbredis.workers.schedules._time import Time
from tests.plugins.parts import first
from tests.waiting import eventually, eventually_in_steps
from tests.workers import slow_to_start
from tests.workers.looking import send_to
from tests.workers.virtual import VirtualLoop
from tests.workers.worker_programs import program

KILLED = """
    import asyncio, os, signal
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", max_concurrent_calls=16)
    async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.3)
"""
"""A worker whose handler kills its process for a message."""
BATCHES = KILLED.replace("max_concurrent_calls=16)", "max_concurrent_calls=2, batch=16)").replace(
    """async def place(text: str, context: Context) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt}\\n")
        if text == "die":""",
    """async def place(texts: list[str]) -> None:
        with open("log", "a") as log:
            log.writelines(f"{os.getpid()} {text} -\\n" for text in texts)
        if "die" in texts:""",
)
"""The same for batches."""
EATS = KILLED.replace(
    "os.kill(os.getpid(), signal.SIGKILL)",
    """eaten = []
            while True:
                eaten.append(bytes(1 << 20).replace(bytes(1), b"x"))
                await asyncio.sleep(0.002)""",
)
"""The same with a handler that eats memory, until its process is killed."""
MOST_MEMORY = 200_000_000
IN_SESSIONS = 3
"""The number of messages in each session, of those beside the one that kills, which is in the middle of a session."""
TEXTS = [f"m{number}" for number in range(15)]
"""The messages that kill nobody."""
MIXED = dict.fromkeys([*TEXTS[:7], "die", *TEXTS[7:]])
NAMED = "MaxDeliveryCountExceeded: The process of its handler ended with the signal SIGKILL."
"""What the dead letter says if a supervisor has started the next process before the lock has ended."""
LAPSED = (
    "MaxDeliveryCountExceeded: The message was delivered as often as its entity allows, and its holder ended, or lost "
    "the lock, the last {} times."
)
"""What it says otherwise: the pause before the next process grows with each kill."""


def test_a_worker_that_holds_nothing_takes_suspects_at_once_and_others_seldom() -> None:
    turns = SuspectTurns()
    assert turns.due_in(now=5, held=3) == 0
    turns.ended(stopped=5, now=6)
    assert (turns.due_in(now=6, held=0), turns.due_in(now=6, held=1), turns.due_in(now=40, held=1)) == (0, 29, 0)
    assert (turns.goes_on(began=6, now=6.9), turns.goes_on(began=6, now=7)) == (True, False)


def test_slow_handlers_are_stopped_for_a_tenth_of_the_time() -> None:
    turns = SuspectTurns()
    turns.ended(stopped=0, now=60)
    assert turns.due_in(now=60, held=1) == 540


def test_handlers_that_last_longer_than_a_worker_waits_get_longer_turns_and_no_more_of_its_time() -> None:
    turns, stopped = SuspectTurns(), 0.0
    waits = []
    for _ in range(9):
        waits.append(turns.patience)
        turns.ended(stopped, stopped + turns.patience, in_time=False)
        after = stopped + waits[-1]
        assert turns.due_in(after, held=1) >= 9 * waits[-1]
        stopped = after + turns.due_in(after, held=1)
    assert waits == [3, 6, 12, 24, 48, 96, 192, 300, 300]
    turns.ended(stopped, stopped + 1)
    assert turns.patience == 3


class Taker:
    """A consumer as the others of its process see it."""

    def __init__(self) -> None:
        self.entity = "orders"
        self.held = 0
        self.rests = self.let = False

    def rest(self) -> None:
        self.rests = True

    async def let_go(self) -> None:
        self.let = True

    def resume(self) -> None:
        self.rests = False


async def test_a_consumer_takes_suspects_when_no_other_one_holds_anything() -> None:
    alone, first, second = Alone(Time()), Taker(), Taker()
    alone.join(first)
    alone.join(second)
    second.held = 1
    beginning = asyncio.create_task(alone.begin(first))
    await eventually(lambda: second.rests)
    assert (alone.lets_begin(first), alone.lets_begin(second), beginning.done()) == (True, False, False)
    later = asyncio.create_task(alone.begin(second))
    second.held = 0
    alone.noted()
    await beginning
    assert not later.done()
    alone.end(second)  # it is not its turn
    assert not alone.lets_begin(second)
    alone.end(first)
    await later
    assert (first.rests, second.rests, first.let, second.let) == (True, False, True, True)


async def test_a_turn_that_others_do_not_let_begin_in_time_ends_and_lets_them_go_on() -> None:
    class Hurried(Time):
        def now(self) -> float:
            return 0.0

    alone, taker, other, turns = Alone(Hurried()), Taker(), Taker(), SuspectTurns()
    alone.join(taker)
    alone.join(other)
    other.held = 1
    turns.patience = 0.0

    async def take(_: float) -> None:
        raise AssertionError("another consumer holds a message")

    await alone.turn(taker, turns, take)
    assert (other.rests, alone.is_taken, turns.patience) == (False, False, 0.0)
    assert turns.due_in(now=0, held=1) > 0
    turns.patience = 60.0
    other.held = 0
    began: list[float] = []

    async def note(now: float) -> None:
        assert (alone.is_taken, other.rests) == (True, True)
        began.append(now)

    await alone.turn(taker, turns, note)
    assert (began, alone.is_taken, other.rests) == ([0.0], False, False)


def test_each_suspect_has_the_whole_patience_of_a_turn_from_the_moment_when_its_handler_begins() -> None:
    """The consumer may have waited for nearly as long before. Then the suspect would soon go on beside others."""
    loop, ended = VirtualLoop(), list[float]()

    class LoopTime(Time):
        def now(self) -> float:
            return loop.time()

    alone, taker, other, turns = Alone(LoopTime()), Taker(), Taker(), SuspectTurns()
    alone.join(taker)
    alone.join(other)
    suspect: Any = SimpleNamespace(lock_token="token", delivery_count=3)

    def let_go() -> None:
        other.held = 0
        alone.noted()

    async def take(_: float) -> None:
        for seconds in (2.5, 2.5, 3600):
            with alone.handling("orders", suspect):
                await asyncio.sleep(seconds)
            ended.append(loop.time())

    async def turn() -> float:
        began, other.held = loop.time(), 1
        loop.call_later(2.5, let_go)
        await alone.turn(taker, turns, take)
        return loop.time() - began

    with closing(loop), loop.jumping(lambda _: None):
        lasted = loop.run_until_complete(turn())
    assert lasted == pytest.approx(3 * 2.5 + 3)
    assert (len(ended), alone.suspect, alone.is_taken, turns.patience) == (2, None, False, 6)


async def test_whoever_waits_for_a_process_that_holds_nothing_is_told_once() -> None:
    alone, first, second, told = Alone(Time()), Taker(), Taker(), list[str]()
    alone.join(first)
    alone.join(second)
    first.held = second.held = 1
    alone.at_calm(lambda: told.append("calm"))
    first.held = 0
    alone.noted()
    assert told == []
    second.held = 0
    alone.noted()
    alone.noted()
    assert told == ["calm"]


@asynccontextmanager
async def after_a_turn(
    bus: Bus, caplog: pytest.LogCaptureFixture, *, sessions: bool = False, **options: Any
) -> AsyncIterator[Worker]:
    """Run a worker with a suspect and a slow message of another queue. The block begins when a turn has ended in vain.

    Then the slow handler ends, and the suspect must begin.
    """
    caplog.set_level(logging.INFO, "sbredis.worker")
    await bus.create_queue("orders", max_delivery_count=2, lock_duration=timedelta(seconds=10))
    await bus.create_queue("steps", requires_session=sessions, lock_duration=timedelta(seconds=300))
    worker, began, slow = Worker(bus.url), list[str](), asyncio.Event()
    await send_to(bus, "orders", ServiceBusMessage("suspect"))
    assert len(await bus.client.get_queue_receiver("orders").receive_messages(1)) == 1
    await send_to(bus, "steps", ServiceBusMessage("slow", session_id="s" if sessions else None))

    async def one(text: str) -> None:
        began.append(text)
        if text == "slow":
            await slow.wait()

    async def many(texts: list[str]) -> None:
        began.extend(texts)

    async def turn_ended() -> bool:
        bus.clock.advance(seconds=0.5)  # a long turn: the next one would come after ten times as long
        return "suspects wait for a later turn" in caplog.text

    worker.queue("orders", **options)(many if options else one)
    worker.queue("steps")(one)
    async with bus.running(worker, timeout=100):
        await eventually(lambda: began == ["slow"])
        bus.clock.advance(seconds=11)
        await eventually(turn_ended)
        yield worker
        assert began == ["slow"]
        slow.set()
        await eventually(lambda: began == ["slow", "suspect"])


@pytest.mark.parametrize("sessions", [False, True])
async def test_a_suspect_that_waits_for_a_later_turn_begins_when_the_last_handler_ends(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, sessions: bool
) -> None:
    """The handler belongs to another queue. It lasts longer than the first turn, so the next one would come late."""
    async with after_a_turn(sbredis_bus, caplog, sessions=sessions):
        pass


@pytest.mark.parametrize(
    "options", first(1, [{}, {"batch": 4, "batch_wait": 0}], "single messages show it"), ids=["single", "batches"]
)
async def test_a_suspect_that_comes_after_its_turn_is_given_back(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    """The reply to a call of the turn may be late. The handler of another queue lasts for longer than the turn."""
    async with after_a_turn(sbredis_bus, caplog, **options) as worker:
        services: Any = worker._running().services
        (consumer,) = [each.consumer for each in services if each.consumer.entity == "orders"]
        taking = taking_of(consumer.origin.receiver)
        taking.suspects = True  # as the late reply has it
        taking.end_waits()
        await eventually(lambda: worker._running().report().counts["orders"].given_back > 0)
        taking.suspects = False


async def beside_a_suspect(bus: Bus) -> tuple[Worker, list[str]]:
    """Return a worker of the queues ``orders``, which has a suspect, and ``steps``, and what the latter has begun."""
    worker, began = Worker(bus.url), list[str]()
    await bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage("suspect"))
    assert len(await bus.client.get_queue_receiver("orders").receive_messages(1)) == 1
    bus.clock.advance(seconds=11)
    worker.queue("orders", execution="process", max_concurrent_calls=1)(slow_to_start.quick)

    @worker.queue("steps")
    async def step(text: str) -> None:
        began.append(text)

    return worker, began


async def test_the_process_of_a_handler_is_ready_before_the_turn_of_a_suspect_begins(
    sbredis_bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start may take longer than a turn: then the suspect would go on beside others. They go on meanwhile."""
    monkeypatch.setenv("STARTING", str(tmp_path))
    await sbredis_bus.create_queue("orders", max_delivery_count=2, lock_duration=timedelta(seconds=10))
    for name in ("steps", "out"):
        await sbredis_bus.create_queue(name)
    client, (worker, began) = sbredis_bus.client, await beside_a_suspect(sbredis_bus)
    async with worker.running():
        await eventually((tmp_path / "begun").exists)
        assert worker._running().report().counts["orders"].received == 0
        await worker.send("steps", "innocent")
        await eventually(lambda: began == ["innocent"])
        (tmp_path / "go").touch()
        (out,) = await client.get_queue_receiver("out").receive_messages(1, 60)
        assert json.loads(str(out)) == ["suspect", 2]


async def test_a_suspect_whose_process_cannot_start_fails_and_does_not_hold_up_others(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2, lock_duration=timedelta(seconds=10))
    await sbredis_bus.create_queue("steps")
    client, (worker, began) = sbredis_bus.client, await beside_a_suspect(sbredis_bus)
    monkeypatch.setenv("STARTING", "/nowhere")
    async with worker.running():
        await eventually(lambda: dead(client))
        await worker.send("steps", "innocent")
        await eventually(lambda: began == ["innocent"])
    assert "ended with the exit code 1" in await reason(client)


@asynccontextmanager
async def running(url: str, folder: Path, processes: int, app: str) -> AsyncIterator[None]:
    """Run a worker program, and start it again whenever it ends."""

    async def run() -> None:
        while True:
            async with program(url, folder, "--processes", str(processes), app=app) as worker:
                await worker.end()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def there(client: ServiceBusClient, sub_queue: ServiceBusSubQueue | None = None) -> list[str]:
    """Return the bodies of the messages of the queue, locked ones included, or of its dead letters."""
    receiver = client.get_queue_receiver("orders", sub_queue=sub_queue)
    return [bytes(message.body).decode() for message in await receiver.peek_messages(1000, sequence_number=1)]


async def dead(client: ServiceBusClient) -> list[str]:
    return await there(client, ServiceBusSubQueue.DEAD_LETTER)


async def reason(client: ServiceBusClient) -> str:
    """Return why the only dead letter died, as far as it says it."""
    (message,) = await client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER).peek_messages(1)
    return f"{message.dead_letter_reason}: {message.dead_letter_error_description}"


def starts(folder: Path) -> Counter[str]:
    """Return how often the handler of each message has started."""
    log = folder / "log"
    return Counter(line.split()[1] for line in log.read_text().splitlines()) if log.exists() else Counter()


@pytest.mark.parametrize(
    ("most", "processes", "app"),
    [
        pytest.param(3, 1, KILLED, id="3 deliveries, one process"),
        pytest.param(3, 4, KILLED, id="3 deliveries, four", marks=pytest.mark.long("one process shows it")),
        pytest.param(3, 1, BATCHES, id="3 deliveries, batches", marks=pytest.mark.long("single messages show it")),
        pytest.param(10, 1, BATCHES, id="10, batches", marks=pytest.mark.long("each of ten kills costs a lock")),
        pytest.param(10, 1, KILLED, id="10 deliveries", marks=pytest.mark.long("each of ten kills costs a lock")),
        pytest.param(10, 4, KILLED, id="10, four", marks=pytest.mark.long("each of ten kills costs a lock")),
    ],
)
async def test_one_message_that_kills_takes_no_others_with_it(
    server: LocalServer, tmp_path: Path, most: int, processes: int, app: str
) -> None:
    await check_that_it_dies_alone(server, tmp_path, most, processes, app)


@pytest.mark.long("it fills memory")
async def test_a_message_that_eats_memory_takes_no_others_with_it(server: LocalServer, tmp_path: Path) -> None:
    """The killer of memory is one of the test: that of the machine would need a limit that only root can set."""
    killing = asyncio.create_task(kill_large_processes(tmp_path))
    try:
        await check_that_it_dies_alone(server, tmp_path, 3, 1, EATS)
    finally:
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing


async def kill_large_processes(folder: Path) -> None:
    """Kill processes of workers that need too much memory, as the machine does."""
    while True:
        await asyncio.sleep(0.05)
        for pid in workers_in(folder):
            with suppress(OSError):  # it has ended
                if memory_of(pid) > MOST_MEMORY:
                    os.kill(pid, signal.SIGKILL)


def workers_in(folder: Path) -> set[int]:
    """Return the processes whose handlers have started."""
    log = folder / "log"
    return {int(line.split()[0]) for line in log.read_text().splitlines()} if log.exists() else set()


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def check_that_it_dies_alone(
    server: LocalServer, folder: Path, most: int, processes: int, app: str, *, sent: Mapping[str, str | None] = MIXED
) -> None:
    """Let workers handle a message that kills among others. Each message may have a session."""
    lock, sessions = timedelta(seconds=5), any(sent.values())
    async with ServiceBusClient(server.url) as client:
        await client.ensure_queue("orders", requires_session=sessions, lock_duration=lock, max_delivery_count=most)
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage(text, session_id=name) for text, name in sent.items()])
        async with running(server.url, folder, processes, app):

            async def done() -> bool:
                return not await there(client) and await dead(client) == ["die"]

            await eventually_in_steps(done, lambda: starts(folder))
        assert await reason(client) in (NAMED, LAPSED.format(most))
    count = starts(folder)
    assert set(count) == set(sent)
    assert count.pop("die") == most
    assert max(count.values()) <= 3


@pytest.mark.long("each kill costs a lock, and messages without sessions show it sooner")
@pytest.mark.parametrize(
    ("most", "processes", "app"),
    [
        pytest.param(3, 1, KILLED, id="3 deliveries, one process"),
        pytest.param(3, 4, KILLED, id="3, four"),
        pytest.param(3, 1, BATCHES, id="3, batches"),
        pytest.param(10, 1, KILLED, id="10 deliveries"),
        pytest.param(10, 4, BATCHES, id="10, batches, four"),
    ],
)
async def test_in_sessions_a_message_that_kills_takes_no_others_with_it_and_what_follows_it_waits(
    server: LocalServer, tmp_path: Path, most: int, processes: int, app: str
) -> None:
    names = {text: f"session-{place // IN_SESSIONS}" for place, text in enumerate(TEXTS)}
    sent = {TEXTS[0]: "session-0", "die": "session-0"} | names
    await check_that_it_dies_alone(server, tmp_path, most, processes, app, sent=sent)
    order = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    alone = len(order) - 1 - order[::-1].index("die")
    for name in set(names.values()):
        own = [text for text in order if sent[text] == name]
        firsts = list(dict.fromkeys(own[alone:] if app is BATCHES else own))
        assert firsts == [text for text in sent if text in firsts]
    if app is KILLED:
        assert not {TEXTS[1], TEXTS[2]} & set(order[:alone])


@pytest.mark.parametrize("session", first(1, ["s", None], "each kill costs the start of a process"))
async def test_under_a_supervisor_the_dead_letter_names_the_signal(
    server: LocalServer, tmp_path: Path, session: str | None
) -> None:
    """The next process makes it a dead letter, long before its lock ends."""
    async with ServiceBusClient(server.url) as client, ServiceBusAdministrationClient(server.url) as administration:
        lock = timedelta(seconds=5)
        await client.ensure_queue(
            "orders", requires_session=session is not None, lock_duration=lock, max_delivery_count=2
        )
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("die", session_id=session))
        holder = client.get_queue_receiver("orders", session_id=session)
        assert len(await holder.receive_messages(1)) == 1
        queue = await administration.get_queue("orders")
        queue.lock_duration = timedelta(minutes=5)
        await administration.update_queue(queue)
        async with program(server.url, tmp_path, "--processes", "1", app=KILLED):

            async def done() -> bool:
                return await dead(client) == ["die"]

            await eventually(done)
        assert await reason(client) == NAMED
    assert starts(tmp_path) == {"die": 1}


AHEAD = """
    import asyncio, os
    from sbredis import ServiceBusReceivedMessage
    from sbredis.workers import Context, Worker

    worker = Worker(os.environ["BUS"])

    @worker.queue("orders", max_concurrent_calls=16, prefetch=1000)
    async def place(text: str, context: Context, message: ServiceBusReceivedMessage) -> None:
        with open("log", "a") as log:
            log.write(f"{os.getpid()} {text} {context.attempt} {message.is_suspect}\\n")
        await asyncio.sleep(float(os.environ["TAKES"]))
"""
"""A worker that fetches 1,000 messages ahead."""
SLOTS, MANY = 16, 1000
MOST_BEGUN = 2 * SLOTS
"""The number of messages that count as begun for a process that ends: in each slot a message is handled, and one whose
settlement is not answered yet."""


async def fill(client: ServiceBusClient, most: int) -> None:
    await client.ensure_queue("orders", lock_duration=timedelta(seconds=5), max_delivery_count=most)
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(MANY)])


async def fetched(client: ServiceBusClient) -> None:
    """Wait until all messages are locked."""

    async def locked() -> bool:
        async with client.get_queue_receiver("orders") as receiver:
            ready = await receiver.receive_messages(1, 0)
            for message in ready:  # otherwise its lock would end here, and count
                await receiver.release_message(message)
            return not ready

    await eventually(locked)


async def lapsed(client: ServiceBusClient) -> None:
    """Wait until locks have ended."""
    async with client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, 120)
        await receiver.release_message(message)


async def test_a_killed_worker_counts_no_delivery_of_what_it_had_only_fetched_ahead(
    server: LocalServer, tmp_path: Path
) -> None:
    async with ServiceBusClient(server.url) as client:
        await fill(client, most=1)
        async with program(server.url, tmp_path, app=AHEAD, env={"TAKES": "3600"}) as worker:
            await eventually(lambda: len(starts(tmp_path)) == SLOTS)
            await fetched(client)
            worker.signal_group(signal.SIGKILL)
            await worker.end()
        begun = starts(tmp_path)
        async with client.get_queue_receiver("orders") as receiver:
            got: list[str] = []
            while not got or got[-1] != str(MANY - 1):
                got += [bytes(message.body).decode() for message in await receiver.receive_messages(MANY, 60)]
            died = await dead(client)
        assert len(died) <= MOST_BEGUN
        assert set(begun) <= set(died)
        assert sorted([*got, *died], key=int) == [str(number) for number in range(MANY)]


@pytest.mark.long("two outages are longer than a lock, and four processes start")
async def test_an_outage_longer_than_a_lock_makes_nobody_work_one_by_one(server: LocalServer, tmp_path: Path) -> None:
    """The processes of a worker stand still for longer than a lock, twice, with all messages in their hands."""
    async with ServiceBusClient(server.url) as client:
        await fill(client, most=10)
        async with program(server.url, tmp_path, "--processes", "4", app=AHEAD, env={"TAKES": "0.2"}) as worker:
            for _ in range(2):
                await fetched(client)
                before = starts(tmp_path).total()
                await eventually(lambda before=before: starts(tmp_path).total() > before)
                worker.signal_group(signal.SIGSTOP)
                await lapsed(client)
                worker.signal_group(signal.SIGCONT)

            async def done() -> bool:
                return not await there(client)

            await eventually(done)
        assert await dead(client) == []
        lines = (tmp_path / "log").read_text().splitlines()
        suspects = {line.split()[1] for line in lines if line.endswith("True")}
        assert set(starts(tmp_path)) == {str(number) for number in range(MANY)}
        assert len(suspects) <= 2 * 4 * MOST_BEGUN
