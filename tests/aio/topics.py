"""A topic for a test, with its subscriptions, their messages, and an administration client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import Entity, Timings
from sbredis.engine import CallId, perform
from sbredis.management import RuleProperties
from sbredis.model import ServiceBusReceivedMessage
from tests.aio.queues import PARTITIONS, PATIENT, Queue, bodies, load_all_scripts
from tests.waiting import eventually

__all__ = ["Subject", "soon", "topic_at"]

Rules = Sequence[RuleProperties] | None


def soon(seconds: float = 0.4) -> datetime:
    """Return a time in the near future."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


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
        options.setdefault("_timings", self.client._connection.timings)
        return ServiceBusClient(self.url, namespace="ns", _clock=self.clock, **options)

    async def create(self, subscriptions: Mapping[str, Rules], **options: Any) -> None:
        for name, rules in subscriptions.items():
            await self.admin.create_subscription("t", name, rules=rules, **options)

    async def take_all(self, subscription: str, *, dead: bool = False) -> list[ServiceBusReceivedMessage]:
        """Receive and complete all active messages of a subscription."""
        found: list[ServiceBusReceivedMessage] = []
        options: dict[str, Any] = {"sub_queue": "deadletter"} if dead else {}
        async with self.receiver(subscription, **options) as receiver:
            while await self.count(subscription, dead=dead):
                page = await receiver.receive_messages(1000, 60)  # a message is available, so the call does not wait
                await receiver.complete_messages(page)
                found += page
        return found

    async def count(self, subscription: str, *, dead: bool = False) -> int:
        """Return the number of active messages in a subscription."""
        counts = await (await self.queue_of(subscription)).counts()
        return counts.dead_active if dead else counts.active

    async def take_bodies(self, subscription: str, *, dead: bool = False) -> list[str]:
        """Receive all messages of a subscription and return their bodies, sorted."""
        return sorted(bodies(await self.take_all(subscription, dead=dead)))

    async def queue_of(self, subscription: str | None = None) -> Queue:
        """Return the topic or a subscription as a ``Queue``, to inspect its partitions."""
        path = "t" if subscription is None else f"t/subscriptions/{subscription}"
        connection = self.client._connection
        record = await connection.record(path, asyncio.get_running_loop().time() + 60)
        return Queue(self.client, Entity(connection, record), self.url, self.clock)

    async def wait_for_count(self, subscription: str, active: int) -> None:
        """Wait until a subscription has this number of active messages."""

        async def has_this_number() -> bool:
            return await self.count(subscription) == active

        await eventually(has_this_number, timeout=60, what=f"{active} messages in {subscription}")

    async def scheduled(self) -> int:
        """Return the number of scheduled messages of the topic."""
        queue = await self.queue_of()
        call_id = CallId("", 0, self.client._connection.clock.told())
        return sum([(await perform(queue.transport, each.count(call_id))).scheduled for each in queue.partitions])


@asynccontextmanager
async def topic_at(
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
) -> AsyncIterator[Subject]:
    """Create a topic. At the end, close its clients and check that no task is left."""
    await load_all_scripts(url)
    before = asyncio.all_tasks()
    async with (
        ServiceBusClient(
            url, namespace="ns", slot_count=partitions, maintenance=maintenance, _clock=clock, _timings=timings
        ) as client,
        ServiceBusAdministrationClient(url, namespace="ns", _clock=clock, _timings=timings) as admin,
    ):
        await admin.create_topic("t", enable_partitioning=partitioned, **options)
        subject = Subject(client, admin, url, clock, enable_partitioning=partitioned, **options)
        await subject.create(subscriptions or {}, requires_session=sessions)
        yield subject
    left = asyncio.all_tasks() - before
    assert not left, f"left behind: {left}"
