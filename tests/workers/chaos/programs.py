"""Worker processes that a test starts, kills and terminates while it sends messages to them."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import signal
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage
from tests.children import child
from tests.waiting import eventually, eventually_in_steps
from tests.workers.chaos.journal import Ends, Handling, Journal, faults

__all__ = ["AT_ONCE", "LOCK", "Town", "crowd", "in_work"]

LOCK = timedelta(seconds=5)
"""The shortest lock that an entity can have."""
AHEAD = 20
"""The number of messages for each worker that wait in each entity, so that every worker has something to do."""
SESSIONS = 6
AT_ONCE = {"plain": 8, "thread": 8, "session": 4, "batch": 10, "process": 2, "receivers": 25}
"""The number of messages of each entity that a worker handles at once."""
BATCH = 5


def in_work(kinds: Sequence[str]) -> int:
    """Return how many messages of these entities one worker can have in work.

    Those whose handlers have ended, and whose completions are not acknowledged, are as many again.
    """
    return 2 * sum(AT_ONCE[kind] for kind in kinds)


def _program(kinds: Sequence[str]) -> Sequence[str]:
    """Return what the processes for these entities run."""
    if "receivers" in kinds:
        return ("tests.workers.chaos.receivers",)
    return ("sbredis.workers", "tests.workers.chaos.app:worker")


class Town:
    """The messages that were sent, and the worker processes that handle them."""

    def __init__(
        self,
        client: ServiceBusClient,
        administration: ServiceBusAdministrationClient,
        url: str,
        folder: Path,
        kinds: Sequence[str],
        *,
        processes: AsyncExitStack,
        ahead: bool,
        lock: timedelta,
        namespace: str,
        deliveries: int,
        **options: Any,
    ) -> None:
        self.client = client
        self._administration = administration
        self.journal = Journal(folder)
        self.folder = folder
        self.kinds = tuple(kinds)
        self.sent: list[int] = []
        self.to_out: set[int] = set()
        self.sent_at: dict[int, float] = {}
        self.unknown: set[int] = set()
        """The messages whose sending was not acknowledged. The server may have them."""
        self.unsafe: set[int] = set()
        """The messages about which nothing is promised."""
        self.planted: set[int] = set()
        """The messages that their handlers give away at their first delivery, so that two have them at once."""
        self.killers: set[int] = set()
        """The messages whose handlers end their process."""
        self.ends = Ends(shutdown_timeout=options.get("shutdown_timeout", 25.0), in_work=in_work(kinds))
        self.takes: Sequence[float] = (0.0, 0.0, 0.001, 0.005, 0.02, 0.05)
        """How long the handlers take, chosen by chance."""
        self.long: tuple[Sequence[str], float] = (), 0.0
        """Some handlers of these entities take this long."""
        self.living: dict[int, asyncio.subprocess.Process] = {}
        self._processes = processes
        self._given: dict[str, Any] = {"url": url, "kinds": self.kinds, "options": options}
        self._given |= {"namespace": namespace, "prefetch": None if ahead else 0, "at_once": AT_ONCE, "batch": BATCH}
        self._lock, self._deliveries = lock, deliveries
        self._random = random.Random(len(kinds))
        self._senders = {kind: client.get_queue_sender(kind) for kind in kinds}

    async def create(self) -> None:
        await self.client.ensure_queue("out")
        for kind in self.kinds:
            await self.client.ensure_queue(
                kind, lock_duration=self._lock, max_delivery_count=self._deliveries, requires_session=kind == "session"
            )

    # -- messages ------------------------------------------------------------------------------------------------------

    async def send(self, kind: str, count: int, *takes: float) -> None:
        """Send messages to an entity."""
        first = len(self.sent) + len(self.unknown)
        numbers = range(first, first + count)
        messages = [self._message(kind, number, takes) for number in numbers]
        self.unknown.update(numbers)  # until the server has acknowledged them
        try:
            await self._senders[kind].send_messages(messages)
        except ServiceBusError:
            return
        self.unknown.difference_update(numbers)
        self.sent += numbers
        self.sent_at.update(dict.fromkeys(numbers, time.time()))

    async def send_one_by_one(self) -> None:
        """Send as many messages to each entity as its workers can begin at once, each in a call of its own."""

        async def send(kind: str) -> None:
            for _ in range(AT_ONCE[kind] * len(self.living)):
                await self.send(kind, 1)

        async with asyncio.TaskGroup() as group:
            for kind in self.kinds:
                group.create_task(send(kind))

    def _message(self, kind: str, number: int, takes: Sequence[float]) -> ServiceBusMessage:
        sends = kind in {"plain", "thread", "session"} and number % 3 == 0
        if sends:
            self.to_out.add(number)
        chosen = self._random.choice(takes or self.takes)
        if kind in self.long[0] and number % 10 == 0:
            chosen = self.long[1]
        planted = number in self.planted
        kills = number in self.killers
        body = json.dumps({"id": number, "takes": chosen, "sends": sends, "planted": planted, "kills": kills})
        session = f"s{number % SESSIONS}" if kind == "session" else None
        return ServiceBusMessage(body, session_id=session, message_id=str(number))

    async def feed(self) -> None:
        """Send messages for ever, so that each entity always has some that wait."""
        while True:
            self.journal.look()
            ahead = AHEAD * len(self.living)
            if len(self.sent) - len(self.journal.begun) < ahead * len(self.kinds):
                for kind in self.kinds:
                    await self.send(kind, ahead)
            await asyncio.sleep(0.05)

    # -- processes -----------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Start a worker process, and return its id."""
        program, env = _program(self.kinds), {"CHAOS": json.dumps(self._given), "JOURNAL": str(self.folder)}
        with (self.folder / "log").open("ab") as log:
            process = await self._processes.enter_async_context(child("-m", *program, env=env, stderr=log))
        self.living[process.pid] = process
        self.ends.workers = max(self.ends.workers, len(self.living))
        return process.pid

    async def working(self, pid: int) -> None:
        """Wait until a process works on a message. Fail if it has ended."""

        def works() -> bool:
            assert self.living[pid].returncode is None, (self.folder / "log").read_text()[-3000:]
            self.journal.look()
            return bool(self.journal.held.get(pid))

        await eventually(works)

    async def ready(self) -> list[bool]:
        """Return what each process with an HTTP port says about its readiness."""
        log = (self.folder / "log").read_text()
        addresses = re.findall(r"http://([^ /]+)/live", log)
        return await asyncio.gather(*(asyncio.to_thread(_is_ready, address) for address in addresses))

    async def kill(self, pid: int) -> None:
        """Kill a process while it holds messages."""
        self.ends.killed[pid] = time.time()
        self.living[pid].kill()
        await self.living.pop(pid).wait()

    async def replace_dead(self) -> None:
        """Start another process whenever one has ended by SIGKILL, for ever."""
        waits: dict[asyncio.Task[int], int] = {}
        while True:
            for pid in self.living.keys() - {*waits.values()}:
                waits[asyncio.create_task(self.living[pid].wait())] = pid
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                pid = waits.pop(task)
                self.ends.killed[pid] = time.time()
                del self.living[pid]
                assert task.result() == -signal.SIGKILL, (self.folder / "log").read_text()[-3000:]
                await self.start()

    async def terminate(self, pid: int) -> int:
        """Send SIGTERM to a process, and return its exit code."""
        self.ends.terminated[pid] = time.time()
        self.living[pid].send_signal(signal.SIGTERM)
        return await self.living.pop(pid).wait()

    @contextmanager
    def away(self) -> Generator[None]:
        """Note that the server, or a part of it, is away or moves while the block runs: locks may end because of it."""
        began = time.time()
        self.ends.away.append((began, inf))
        yield
        self.ends.away[-1] = (began, time.time())

    def forget(self, since: float, until: float) -> None:
        """Promise nothing about the messages that were sent, locked or completed between two times."""
        changed = {line["id"] for line in self.journal.lines() if line["time"] >= since}
        for number, sent_at in self.sent_at.items():
            if sent_at <= until and (sent_at >= since or number in changed):
                self.unsafe.add(number)

    # -- the check -----------------------------------------------------------------------------------------------------

    def handlings(self) -> list[Handling]:
        return self.journal.handlings()

    async def finished(self) -> None:
        """Wait until all messages are handled and completed. If they never are, say what is against the promises."""

        async def empty() -> bool:
            self.journal.look()
            return self.journal.done >= set(self.sent) - self.unsafe and not await self.left()

        try:
            await eventually_in_steps(empty, lambda: len(self.journal.lines()))
        except AssertionError:
            raise AssertionError("\n".join(["not all messages were completed", *self.faults()[:10]])) from None

    async def left(self) -> int:
        """Return how many messages the entities have, dead letters included."""
        counts = [await self._administration.get_queue_runtime_properties(kind) for kind in self.kinds]
        return sum(each.total_message_count for each in counts)

    def faults(self) -> list[str]:
        """Return everything that is against the promises."""
        exempt = self.unsafe | self.unknown
        given = [each for each in self.handlings() if each.message not in exempt]
        return faults(set(self.sent) - exempt, given, self.ends)

    async def outputs(self) -> list[int]:
        """Return what the handlers have sent in the transactions that completed their messages."""
        found: list[int] = []
        last = 0
        async with self.client.get_queue_receiver("out") as receiver:
            while page := await receiver.peek_messages(1000, sequence_number=last + 1):
                found += [int(str(message)) for message in page]
                last = page[-1].sequence_number or 0
        return sorted(found)


def _is_ready(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


@asynccontextmanager
async def crowd(
    url: str,
    folder: Path,
    kinds: Sequence[str],
    workers: int,
    *,
    ahead: bool = True,
    lock: timedelta = LOCK,
    namespace: str = "ns",
    deliveries: int = 2000,
    **options: Any,
) -> AsyncGenerator[Town]:
    """Start worker processes. At the end kill those that still run.

    Unless they may fetch ``ahead``, they lock only messages that they begin at once. A message may have this number of
    ``deliveries``.
    """
    async with (
        ServiceBusClient(url, namespace=namespace) as client,
        ServiceBusAdministrationClient(url, namespace=namespace) as administration,
        AsyncExitStack() as processes,
    ):
        town = Town(
            client,
            administration,
            url,
            folder,
            kinds,
            processes=processes,
            ahead=ahead,
            lock=lock,
            namespace=namespace,
            deliveries=deliveries,
            **options,
        )
        await town.create()
        for _ in range(workers):
            await town.start()
        yield town
