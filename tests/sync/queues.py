"""A queue and a topic for the tests that are made from the asynchronous ones. They have the names of the helpers in
tests/aio/queues.py, session_queues.py and topics.py, whose coroutines they run in the loop of the synchronous client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sbredis import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusSessionReceiver,
)
from sbredis.client import Clock, Entity, Timings
from sbredis.engine import Counts, Lock, Partition, SidePrefix
from sbredis.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage
from tests.aio import queues, session_queues
from tests.aio.queues import GATHERING, PARTITIONS, PATIENT, bodies, both, in_memory, new_queue, with_all_scripts
from tests.aio.topics import Rules
from tests.engine.bench import Everything
from tests.waiting import wait_until

__all__ = [
    "GATHERING",
    "PARTITIONS",
    "PATIENT",
    "HandClock",
    "Queue",
    "SessionQueue",
    "Subject",
    "bodies",
    "bodies_in",
    "both",
    "in_memory",
    "queue_at",
    "receive_exactly",
    "session_of",
    "session_queue_at",
    "topic_at",
    "wait_until",
]


class HandClock(queues.HandClock):
    """A clock that the thread of a test moves, and that the loops of clients watch."""

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(moved)

        return super().when_moved(tell)


class Queue:
    """A queue with a connected client."""

    def __init__(self, client: ServiceBusClient, inner: queues.Queue) -> None:
        self.client = client
        self.inner = inner

    @property
    def entity(self) -> Entity:
        return self.inner.entity

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def partitions(self) -> list[Partition]:
        return self.inner.partitions

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run a coroutine function in the loop of the client."""
        return self.client._bridge.call(function, *arguments, **options)

    def receiver(self, **options: Any) -> ServiceBusReceiver:
        made: ServiceBusReceiver = self.client.get_queue_receiver(self.entity.name, **options)
        return made

    def other_client(self, clock: Clock | None = None, **options: Any) -> ServiceBusClient:
        """Return another client of the same namespace, not yet connected."""
        options.setdefault("_timings", self.inner.client._connection.timings)
        return ServiceBusClient(self.url, namespace="ns", _clock=clock or self.inner.clock, **options)

    def send(
        self, *texts: str, at: int | None = None, properties: Mapping[Any, Any] | None = None, **options: Any
    ) -> list[int]:
        numbers: list[int] = self.run(self.inner.send, *texts, at=at, properties=properties, **options)
        return numbers

    def fill(self, count: int, *, at: int = 0, size: int = 0, start: int = 0) -> list[int]:
        numbers: list[int] = self.run(self.inner.fill, count, at=at, size=size, start=start)
        return numbers

    def take(self, wanted: int = 1, *, at: int = 0, side: SidePrefix = "") -> list[Lock]:
        locks: list[Lock] = self.run(self.inner.take, wanted, at=at, side=side)
        return locks

    def abandon(self, locks: Sequence[Lock], *, at: int = 0, counted: bool = True) -> None:
        self.run(self.inner.abandon, locks, at=at, counted=counted)

    def lose(self, message: ServiceBusReceivedMessage) -> None:
        self.run(self.inner.lose, message)

    def counts(self) -> Counts:
        counts: Counts = self.run(self.inner.counts)
        return counts

    def counts_are(self, active: int, locked: int) -> bool:
        return bool(self.run(self.inner.counts_are, active, locked))

    def locked(self) -> int:
        return self.counts().locked

    def contents(self) -> Everything:
        found: Everything = self.run(self.inner.contents)
        return found

    def stored(self) -> Everything:
        found: Everything = self.run(self.inner.stored)
        return found

    def clear(self) -> None:
        self.run(self.inner.clear)

    def process_due(self) -> None:
        self.run(self.inner.process_due)


class SessionQueue(Queue):
    """A queue that requires sessions."""

    inner: session_queues.SessionQueue

    def __init__(self, client: ServiceBusClient, inner: session_queues.SessionQueue) -> None:
        super().__init__(client, inner)

    def session(self, name: Any, **options: Any) -> ServiceBusSessionReceiver:
        """Return a receiver of a session."""
        made = self.receiver(session_id=name, **options)
        assert isinstance(made, ServiceBusSessionReceiver)
        return made

    def send_to(self, session: str, *texts: str, client: ServiceBusClient | None = None, **options: Any) -> None:
        """Send messages with these bodies to a session, one after the other."""
        with (client or self.client).get_queue_sender(self.entity.name) as sender:
            for text in texts:
                sender.send_messages(ServiceBusMessage(text, session_id=session, **options))

    def locked_sessions(self) -> int:
        return int(self.run(self.inner.locked_sessions))

    def sessions_in(self, place: int, count: int = 1) -> list[str]:
        return self.inner.sessions_in(place, count)


class Subject:
    """A topic called ``t``, with a client and an administration client."""

    def __init__(
        self, client: ServiceBusClient, admin: ServiceBusAdministrationClient, url: str, clock: Any, **options: Any
    ) -> None:
        self.client = client
        self.admin = admin
        self.url = url
        self.clock = clock
        self.options = options

    def sender(self, **options: Any) -> ServiceBusSender:
        return self.client.get_topic_sender("t", **options)

    def receiver(self, subscription: str, **options: Any) -> ServiceBusReceiver:
        made: ServiceBusReceiver = self.client.get_subscription_receiver("t", subscription, **options)
        return made

    def other_client(self, **options: Any) -> ServiceBusClient:
        """Return another client of the same namespace, not yet connected."""
        options.setdefault("_timings", self.client._aio._connection.timings)
        return ServiceBusClient(self.url, namespace="ns", _clock=self.clock, **options)

    def create(self, subscriptions: Mapping[str, Rules], **options: Any) -> None:
        for name, rules in subscriptions.items():
            self.admin.create_subscription("t", name, rules=rules, **options)

    def count(self, subscription: str, *, dead: bool = False) -> int:
        """Return the number of active messages in a subscription."""
        counts = self.admin.get_subscription_runtime_properties("t", subscription)
        return counts.dead_letter_message_count if dead else counts.active_message_count

    def take_all(self, subscription: str, *, dead: bool = False) -> list[ServiceBusReceivedMessage]:
        """Receive and complete all active messages of a subscription."""
        found: list[ServiceBusReceivedMessage] = []
        options: dict[str, Any] = {"sub_queue": "deadletter"} if dead else {}
        with self.receiver(subscription, **options) as receiver:
            while self.count(subscription, dead=dead):
                page = receiver.receive_messages(1000, 60)  # a message is available, so the call does not wait
                receiver.complete_messages(page)
                found += page
        return found


@contextmanager
def queue_at(
    url: str,
    *,
    partitioned: bool = False,
    partitions: int = PARTITIONS,
    clock: Clock | None = None,
    timings: Timings = PATIENT,
    name: str = "q",
    **settings: Any,
) -> Iterator[Queue]:
    """Create a queue. At the end, close its client."""
    with ServiceBusClient(
        with_all_scripts(url), namespace="ns", slot_count=partitions, _clock=clock, _timings=timings
    ) as client:

        async def make() -> queues.Queue:
            return await new_queue(client._aio, url, partitioned=partitioned, clock=clock, name=name, **settings)

        yield Queue(client, client._bridge.call(make))


@contextmanager
def session_queue_at(url: str, **options: Any) -> Iterator[SessionQueue]:
    """Create a queue that requires sessions."""
    with queue_at(url, sessions=True, **options) as queue:
        inner = queue.inner
        yield SessionQueue(
            queue.client, session_queues.SessionQueue(inner.client, inner.entity, inner.url, inner.clock)
        )


@contextmanager
def topic_at(
    url: str,
    subscriptions: Mapping[str, Rules] | None = None,
    *,
    partitioned: bool = False,
    partitions: int = PARTITIONS,
    clock: Any = None,
    timings: Timings = PATIENT,
    maintenance: bool = False,
    sessions: bool = False,
    **options: Any,
) -> Iterator[Subject]:
    """Create a topic. At the end, close its clients."""
    with (
        ServiceBusClient(
            with_all_scripts(url),
            namespace="ns",
            slot_count=partitions,
            maintenance=maintenance,
            _clock=clock,
            _timings=timings,
        ) as client,
        ServiceBusAdministrationClient(url, namespace="ns", _clock=clock, _timings=timings) as admin,
    ):
        admin.create_topic("t", enable_partitioning=partitioned, **options)
        subject = Subject(client, admin, url, clock, enable_partitioning=partitioned, **options)
        subject.create(subscriptions or {}, requires_session=sessions)
        yield subject


def receive_exactly(receiver: ServiceBusReceiver, count: int, seconds: float = 60.0) -> list[ServiceBusReceivedMessage]:
    """Receive this number of messages. One call may return fewer of them if the machine is busy."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        page = receiver.receive_messages(count - len(messages), seconds)
        assert page, f"{len(messages)} of {count} messages came, and no further one within {seconds} s"
        messages += page
    return messages


def bodies_in(client: ServiceBusClient, name: str, **options: Any) -> list[str]:
    """Return the bodies of the messages of an entity, in every state."""
    with client.get_queue_receiver(name, **options) as receiver:
        return [str(message) for message in receiver.peek_messages(1000)]


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    """Return the session that a receiver has accepted."""
    session = receiver.session
    assert session is not None
    return session
