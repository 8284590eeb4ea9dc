"""A queue for a test. It sends and takes messages, and counts waiting receivers and calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Literal, Self

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.client import Clock, Entity, Timings
from sbredis.engine import (
    CallId,
    Counts,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    SidePrefix,
    every_script,
    perform,
)
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of, moment, outgoing
from sbredis.receiving._credit import CreditState
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.transport import Transport, open_transport
from tests.aio.diverting import divert
from tests.engine.bench import Everything, everything
from tests.engine.taking import first_token, receiving, run_of
from tests.waiting import eventually

__all__ = [
    "GATHERING",
    "PATIENT",
    "Calls",
    "HandClock",
    "Queue",
    "Waiting",
    "at_rest",
    "bodies",
    "bodies_in",
    "both",
    "exists",
    "in_memory",
    "load_all_scripts",
    "loop_time",
    "new_queue",
    "on_servers",
    "one",
    "queue_at",
    "queue_with",
    "receive_exactly",
]

PARTITIONS = 3
PATIENT: Final = Timings(answering=60.0, late=60.0)
"""The waits of the clients of queues and topics of tests.

They are those of users, except that no answer is late: the tests count calls and look at partitions, and on a busy
machine any answer may take seconds.
"""
GATHERING: Final = replace(PATIENT, gathering=60.0, gathering_all=60.0)
"""The same for a test in which one call gathers messages that come one after the other."""
Waiting = asyncio.Task[list[ServiceBusReceivedMessage]]
"""A receive call that waits."""
both = pytest.mark.both_shapes
queue_with = pytest.mark.queue_with
in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
on_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)


class HandClock(Clock):
    """A clock that moves only when the test moves it."""

    kind: Literal["server", "test"] = "test"

    def __init__(self) -> None:
        self.passed = 0.0
        self._told: list[Callable[[], None]] = []

    def now(self) -> float:
        return 1000.0 + self.passed

    def utc(self) -> float:
        return 1_700_000_000.0 + self.passed

    def told(self) -> int:
        return round(self.utc() * 1000)

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        self._told.append(moved)
        return lambda: self._told.remove(moved)

    def move(self, seconds: float) -> None:
        self.passed += seconds
        for moved in list(self._told):
            moved()


class Calls:
    """Counts the calls of a client by their script."""

    def __init__(self, transport: Transport) -> None:
        self.by_script: Counter[str] = Counter()
        self.under_way = 0
        self._transport = transport
        self._call = transport.call

    def __enter__(self) -> Self:
        divert(self._transport, self._counted)
        return self

    def __exit__(self, *_: object) -> None:
        divert(self._transport, self._call)

    async def _counted(self, script: Any, *arguments: Any, **options: Any) -> Any:
        self.by_script[script.name] += 1
        self.under_way += 1
        try:
            return await self._call(script, *arguments, **options)
        finally:
            self.under_way -= 1


class Queue:
    """A queue with a connected client. Its methods bypass the lanes of the client."""

    def __init__(self, client: ServiceBusClient, entity: Entity, url: str, clock: Clock | None) -> None:
        self.client = client
        self.entity = entity
        self.url = url
        self.clock = clock
        self._at = 0

    @property
    def transport(self) -> Transport:
        return self.client._connection.transport

    @property
    def call_id(self) -> CallId:
        return CallId("", 0, self.client._connection.clock.told())

    @property
    def partitions(self) -> list[Partition]:
        return [self.entity.partition(number) for number in self.entity.numbers]

    def receiver(self, **options: Any) -> ServiceBusReceiver:
        made: ServiceBusReceiver = self.client.get_queue_receiver(self.entity.name, **options)
        return made

    def other_client(self, clock: Clock | None = None, **options: Any) -> ServiceBusClient:
        """Return another client of the same namespace, not yet connected."""
        options.setdefault("_timings", self.client._connection.timings)
        return ServiceBusClient(self.url, namespace="ns", _clock=clock or self.clock, **options)

    async def send(
        self, *texts: str, at: int | None = None, properties: Mapping[Any, Any] | None = None, **options: Any
    ) -> list[int]:
        """Send messages to partition ``at``, or each message to the next partition. Return their sequence numbers."""
        numbers: list[int] = []
        for text in texts:
            message = ServiceBusMessage(text, application_properties=dict(properties or {}))
            if (due := options.get("due")) is not None:
                message.scheduled_enqueue_time_utc = moment(due)
            made = outgoing(message, detects_duplicates=False)
            if at is None:
                place, self._at = self._at, (self._at + 1) % len(self.entity.numbers)
            else:
                place = at
            numbers += await self.put(made._replace(**options), at=place)
        return numbers

    async def put(self, *messages: Outgoing, at: int = 0) -> list[int]:
        """Send messages to one partition in one call. Return their sequence numbers."""
        sent = await perform(self.transport, self.partitions[at].send(self.call_id, messages))
        base = self.entity.base(self.entity.numbers[at])
        return [base + sent.first + place for place in range(len(messages))]

    async def fill(self, count: int, *, at: int = 0, size: int = 0, start: int = 0) -> list[int]:
        """Send numbered messages of at least ``size`` bytes in few calls. Return their sequence numbers."""
        numbers: list[int] = []
        texts = [str(number).rjust(size) for number in range(start, start + count)]
        made = [outgoing(ServiceBusMessage(text), detects_duplicates=False) for text in texts]
        share = max(1, min(1000, 4_000_000 // (size + 100)))
        for begin in range(0, count, share):
            numbers += await self.put(*made[begin : begin + share], at=at)
        return numbers

    async def take(self, wanted: int = 1, *, at: int = 0, side: SidePrefix = "") -> list[Lock]:
        """Lock messages like another receiver."""
        token, partition = first_token(), self.partitions[at]
        request = receiving(
            partition, token, wanted, run=run_of(self.transport, partition), now=self.call_id.now, side=side
        )
        received = await perform(self.transport, request)
        return [Lock(token, message.name) for message in received.messages]

    async def abandon(self, locks: Sequence[Lock], *, at: int = 0, counted: bool = True) -> None:
        """Abandon the messages that ``take`` locked."""
        await perform(self.transport, self.partitions[at].abandon(self.call_id, locks, counted=counted))

    async def lose(self, message: ServiceBusReceivedMessage) -> None:
        """End the lock of a message in the last partition, without the knowledge of its receiver."""
        lease = hold_of(message).lease
        assert lease is not None
        await self.abandon([Lock(lease.token, hold_of(message).name)], at=-1)

    async def counts(self) -> Counts:
        """Return the sums of the counts of all partitions."""
        found = [await perform(self.transport, partition.count(self.call_id)) for partition in self.partitions]
        return Counts(*(sum(column) for column in zip(*found, strict=True)))

    async def counts_are(self, active: int, locked: int) -> bool:
        """Return whether these are the numbers of active and locked messages."""
        counts = await self.counts()
        return (counts.active, counts.locked) == (active, locked)

    async def locked(self) -> int:
        return (await self.counts()).locked

    async def open_grants(self) -> set[tuple[str, Any]]:
        """Return the open grants in all partitions."""
        contents = await self.contents()
        return {(key, each) for key, (_, held) in contents.items() if key.endswith(":grants") for each in held}

    async def waiters(self) -> int:
        """Return the number of open grants in all partitions."""
        return len(await self.open_grants())

    async def wait_for_waiters(self, receivers: int = 1) -> None:
        """Wait until this number of receivers waits in each partition."""
        count = receivers * len(self.partitions)

        async def all_wait() -> bool:
            return await self.waiters() == count

        await eventually(all_wait)

    async def waits(self, receiver: ServiceBusReceiver, wanted: int = 1, seconds: float = 60) -> Waiting:
        """Start a receive call, and wait until there is a new grant in every partition.

        Grants of other receivers may end meanwhile.
        """
        before = await self.open_grants()
        task = asyncio.create_task(receiver.receive_messages(wanted, seconds))

        async def receiver_waits() -> bool:
            return len(await self.open_grants() - before) == len(self.partitions)

        await eventually(receiver_waits)
        return task

    async def register_waiter(self, receiver: ServiceBusReceiver) -> None:
        """Let a receiver wait in every partition. Then cancel the waiting call, and wait until the receiver rests."""
        task = await self.waits(receiver)
        task.cancel()
        await asyncio.wait((task,))
        await at_rest(receiver)

    async def contents(self) -> Everything:
        """Return the contents of all keys."""
        found: Everything = {}
        for partition in self.partitions:
            found |= await everything(self.transport, partition.keys)
        return found

    async def stored(self) -> Everything:
        """Return the contents of all keys except those that the grants of idle receivers change."""
        changing = (":state", ":words", ":grants", ":kept")
        return {key: held for key, held in (await self.contents()).items() if not key.endswith(changing)}

    async def clear(self) -> None:
        """Delete all messages in every state. Close receivers before: they may hold some of these messages."""
        for partition in self.partitions:
            for key in partition.keys[1:6]:
                await self.transport.command("DEL", key, key=key)

    async def process_due(self) -> None:
        """Do all due work in every partition."""
        for partition in self.partitions:
            await perform(self.transport, partition.due(self.call_id))


async def at_rest(*receivers: ServiceBusReceiver) -> None:
    """Wait until receivers without callers make no more calls."""
    sources = [each for receiver in receivers if receiver._inbox is not None for each in receiver._inbox.drivers]

    def rests(driver: CreditDriver) -> bool:
        credit = driver.credit
        opening = driver._member is not None and credit.state is CreditState.UNHEARD
        return not (opening or driver.under_way or credit.outstanding or credit.needs_call(driver._clock.now()))

    await eventually(lambda: all(map(rests, sources)))


_loaded: set[str] = set()


async def load_all_scripts(url: str) -> None:
    """Let servers in memory have all scripts: the first call loads them for all such servers of this process. Other
    servers get them at once anyway.

    The tests stop calls and let them go on, in an order that they choose. A server that must load the script of a call
    first runs it later than the calls after it.
    """
    if url.startswith("memory:") and not _loaded:
        async with await open_transport("memory://scripts?scripts=all", scripts=every_script()):
            _loaded.add("memory")


async def new_queue(
    client: ServiceBusClient, url: str, *, partitioned: bool, clock: Clock | None, name: str, **settings: Any
) -> Queue:
    """Create a queue with a connected client."""
    if clock is not None:
        settings.setdefault("clock", clock.kind)
    namespace = client._connection.namespace
    await namespace.create_entity(name, PartitionSettings(**settings), partitioned=partitioned)
    return Queue(client, await client._connection.entity(name, asyncio.get_running_loop().time() + 60), url, clock)


_ENDING = "TestRunner._call_in_runner_task"
"""The task with which anyio ends a fixture."""


@asynccontextmanager
async def queue_at(
    url: str,
    *,
    partitioned: bool = False,
    partitions: int = PARTITIONS,
    clock: Clock | None = None,
    timings: Timings = PATIENT,
    name: str = "q",
    **settings: Any,
) -> AsyncIterator[Queue]:
    """Create a queue. At the end, close its client and check that no task is left."""
    await load_all_scripts(url)
    before = asyncio.all_tasks()
    async with ServiceBusClient(url, namespace="ns", slot_count=partitions, _clock=clock, _timings=timings) as client:
        yield await new_queue(client, url, partitioned=partitioned, clock=clock, name=name, **settings)
    left = {task for task in asyncio.all_tasks() - before if getattr(task.get_coro(), "__qualname__", "") != _ENDING}
    assert not left, f"left behind: {left}"


@asynccontextmanager
async def handling(receiver: ServiceBusReceiver, *, dies: bool = True) -> AsyncIterator[None]:
    """Dead-letter all messages that arrive while the block runs; complete them instead if none ``dies``."""

    async def handle() -> None:
        while True:
            for message in await receiver.receive_messages(10, 60):
                if dies:
                    await receiver.dead_letter_message(message, "StillBroken")
                else:
                    await receiver.complete_message(message)

    handler = asyncio.ensure_future(handle())
    try:
        yield
    finally:
        handler.cancel()
        await asyncio.wait([handler])


def loop_time() -> float:
    """Return the time of the event loop."""
    return asyncio.get_running_loop().time()


async def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive one message."""
    (message,) = await receiver.receive_messages(1, 60)
    return message


async def receive_exactly(
    receiver: ServiceBusReceiver, count: int, seconds: float = 60.0
) -> list[ServiceBusReceivedMessage]:
    """Receive this number of messages. One call may return fewer of them if the machine is busy."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        page = await receiver.receive_messages(count - len(messages), seconds)
        assert page, f"{len(messages)} of {count} messages came, and no further one within {seconds} s"
        messages += page
    return messages


async def bodies_in(client: ServiceBusClient, name: str, **options: Any) -> list[str]:
    """Return the bodies of the messages of an entity, in every state."""
    async with client.get_queue_receiver(name, **options) as receiver:
        return [str(message) for message in await receiver.peek_messages(1000)]


def bodies(messages: Sequence[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages as text."""
    return [str(message).strip() for message in messages]


async def exists(client: ServiceBusClient, name: str) -> bool:
    """Return whether the registry has an entity of this name."""
    try:
        await client._connection.namespace.get_entity(name)
    except MessagingEntityNotFoundError:
        return False
    return True
