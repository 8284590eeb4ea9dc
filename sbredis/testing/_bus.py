"""A bus in memory for tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Self, Unpack, final, overload

from sbredis.aio import ServiceBusClient
from sbredis.client import BusHooks, deadline_of, install_hooks, remove_hooks
from sbredis.engine import decode, require_slots
from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    RuleFilter,
    RuleProperties,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicOptions,
    TopicProperties,
    TrueRuleFilter,
    from_content,
    hold_of,
)
from sbredis.registry import split_path
from sbredis.testing._clock import TestClock, movable
from sbredis.testing._contents import BusClients, BusContents
from sbredis.testing._worker_run import Overrides, WorkerRun, running
from sbredis.workers import Worker

__all__ = ["Bus", "Rules"]

Rules = Sequence[RuleProperties] | Mapping[str, RuleFilter | str]
"""The rules of a subscription as a list, or as a mapping of names to filters. An SQL filter may be just its text."""


@final
class Bus:
    """An empty bus in memory with a clock of its own: ``async with Bus() as bus``, or the fixture ``sbredis_bus``.

    Code under test uses :attr:`client`, or makes a client of its own from :attr:`url`, in this process and in any
    thread. All these clients use :attr:`clock`. You need not open anything: everything opens at its first use. The
    helpers that return messages neither lock nor settle these messages, so messages that the code under test has locked
    stay locked.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the extra ``memory`` is not installed:
    run ``pip install '.[memory]'`` in the checkout of sbredis.
    """

    def __init__(self, *, begins: datetime | None = None, slot_count: int = 16) -> None:
        """``begins`` is the first time of the clock; the current time by default.

        A new namespace of the bus has ``slot_count`` slots, fewer than other namespaces, so that tests are quick. Give
        another number to test an entity with more than 16 partitions.
        """
        require_slots(slot_count)
        self._clock = TestClock(begins)
        self._name = f"test-{secrets.token_hex(8)}"
        self._hooks = BusHooks(movable(self._clock), slot_count)
        self._clients = BusClients(self.url)
        self._contents = BusContents(self._clients, self._hooks)
        install_hooks(self._name, self._hooks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Bus {self.url} {'closed' if self._clients.closed else 'open'}>"

    # -- for the code under test ---------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """A connection string, for code that makes its own clients; ``?namespace=…`` may be added to it."""
        return f"memory://{self._name}"

    @property
    def client(self) -> ServiceBusClient:
        """A client that is closed with the bus.

        If the code under test closes it, this property makes another client.
        """
        return self._clients.client()

    @property
    def clock(self) -> TestClock:
        """The clock of all clients of this bus."""
        return self._clock

    async def create_queue(self, queue_name: str, **properties: Unpack[QueueOptions]) -> QueueProperties:
        """Create a queue, with the properties of :class:`~sbredis.management.QueueProperties`.

        Code under test may also create its queues itself, in any way.
        """
        return await self._clients.administration().create_queue(queue_name, **properties)

    async def create_topic(self, topic_name: str, **properties: Unpack[TopicOptions]) -> TopicProperties:
        """Create a topic without subscriptions, with the properties of :class:`~sbredis.management.TopicProperties`."""
        return await self._clients.administration().create_topic(topic_name, **properties)

    async def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Rules | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Create a subscription, with the properties of :class:`~sbredis.management.SubscriptionProperties`.

        The subscription receives every message, unless there are ``rules``: a list of
        :class:`~sbredis.management.RuleProperties`, or a mapping of rule names to filters, as in ``rules={"dear":
        "price > 100"}``.
        """
        return await self._clients.administration().create_subscription(
            topic_name, subscription_name, rules=None if rules is None else _rules(rules), **properties
        )

    async def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        filter: RuleFilter | str = TrueRuleFilter(),  # noqa: A002, B008 -- Azure's name; the default is never changed
        action: SqlRuleAction | str | None = None,
    ) -> RuleProperties:
        """Create a rule. An SQL filter and an action may be given as text.

        A subscription that was created without ``rules`` also has the rule ``$Default``, which matches every message.
        """
        return await self._clients.administration().create_rule(
            topic_name,
            subscription_name,
            rule_name,
            filter=_filter(filter),
            action=SqlRuleAction(action) if isinstance(action, str) else action,
        )

    def running(
        self,
        worker: Worker,
        *,
        overrides: Overrides | None = None,
        timeout: float = 10.0,
        shutdown_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[WorkerRun]:
        """Run a worker on this bus while the block runs: ``async with bus.running(worker) as run``.

        The worker is used as the application defines it. Only the server is another one, and its HTTP port is not
        opened. Entities that its handlers need are created if they are missing. ``overrides`` maps the functions of
        dependencies to the functions that replace them in this run.

        ``timeout`` is the longest wait in seconds of real time, of each wait of the run. At the end, running handlers
        get ``shutdown_timeout`` seconds to finish: by default those of the worker, but not more than ``timeout``.
        """
        return running(
            self._contents,
            self._clients.url,
            self._clock,
            worker,
            overrides=overrides,
            timeout=timeout,
            shutdown_timeout=shutdown_timeout,
        )

    # -- messages that were sent ---------------------------------------------------------------------------------------

    async def sent(self, queue_or_topic_name: str) -> list[ServiceBusMessage]:
        """Return all messages that clients of this bus have sent to a queue or a topic, in the order of acceptance.

        They are returned as they were sent, whatever happened to them since. That includes messages that were
        completed, are scheduled, were dropped as duplicates, matched no subscription, or have expired. It does not
        include messages that were refused. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if no
        message was sent and there is no such queue or topic.
        """
        own = self._clients.connection()
        written = self._hooks.sent_to(own.target.namespace, queue_or_topic_name)
        if written is None:
            record = await own.record(queue_or_topic_name, deadline_of(None))
            if record.kind == "subscription":
                raise ValueError(
                    f"Messages are not sent to {record.path!r}, which is a subscription: ask for the messages that "
                    "were sent to its topic."
                )
        return [from_content(decode(payload)) for payload in written or ()]

    # -- messages that are there ---------------------------------------------------------------------------------------

    async def messages(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Return all messages that are in a queue or a subscription now, in any state, as a peek would.

        The dead-letter queue is not included. Everything that is due is done first: expired messages are gone, and
        scheduled messages whose time has come are active.
        """
        return await self._contents.messages_in(queue_or_topic_name, subscription_name)

    async def active(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages of a queue or a subscription that still need handling: neither scheduled nor deferred.

        They include the :meth:`locked` messages, and those that were abandoned with a delay.
        """
        found = await self._contents.messages_in(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state not in ("f", "s")]

    async def locked(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages of a queue or a subscription that a receiver has locked and not settled yet."""
        found = await self._contents.messages_in(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state in ("l", "g")]

    async def scheduled(self, queue_or_topic_name: str) -> list[ServiceBusReceivedMessage]:
        """Return the scheduled messages of a queue or a topic whose time has not come yet. No subscription has them
        before that time.
        """
        return await self._contents.scheduled(queue_or_topic_name)

    async def deferred(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Return the deferred messages of a queue or a subscription."""
        found = await self._contents.messages_in(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state == "f"]

    async def dead_lettered(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Return all messages on the dead-letter queue of a queue or a subscription.

        ``dead_letter_reason`` of a message says why it is there.
        """
        return await self._contents.messages_in(queue_or_topic_name, subscription_name, "d")

    @overload
    async def counts(self, queue_or_topic_name: str) -> QueueRuntimeProperties: ...

    @overload
    async def counts(self, queue_or_topic_name: str, subscription_name: str) -> SubscriptionRuntimeProperties: ...

    async def counts(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> QueueRuntimeProperties | SubscriptionRuntimeProperties:
        """Return the message counts of a queue or a subscription. Everything that is due is done first."""
        own = self._clients.administration()
        entity = await self._contents.queue_or_subscription(queue_or_topic_name, subscription_name)
        await self._contents.catch_up(entity)
        if subscription_name is None:
            return await own.get_queue_runtime_properties(queue_or_topic_name)
        return await own.get_subscription_runtime_properties(queue_or_topic_name, subscription_name)

    async def purge(self, queue_or_topic_name: str, subscription_name: str | None = None) -> int:
        """Delete the messages of a queue or a subscription and of its dead-letter queue; return the number deleted.

        For a topic, delete the messages that are scheduled on it. Locked messages stay. :meth:`sent` still returns all
        messages.
        """
        entity = await self._contents.entity(queue_or_topic_name, subscription_name)
        kind, gone = entity.record.kind, 0
        async with ServiceBusClient(self.url) as client:
            if kind != "subscription":
                scheduled = [each.sequence_number for each in await self.scheduled(entity.name)]
                async with client.get_queue_sender(entity.name) as sender:
                    await sender.cancel_scheduled_messages(scheduled)
                gone = len(scheduled)
            topic, name = split_path(entity.name)
            for side in (None, ServiceBusSubQueue.DEAD_LETTER) if kind != "topic" else ():
                receiver = (
                    client.get_queue_receiver(topic, sub_queue=side)
                    if name is None
                    else client.get_subscription_receiver(topic, name, sub_queue=side)
                )
                # the receiver is not opened first, because opening fails if the entity requires sessions
                gone += await receiver.purge_messages()
        return gone

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the clients that this bus has made, and delete all its messages and entities."""
        if not self._clients.closed:
            await self._clients.close(asyncio.get_running_loop())
        remove_hooks(self._name)

    def discard(self) -> None:
        """Close the bus from outside the event loop in which it was used, even if that loop no longer exists."""
        self._clients.discard()
        remove_hooks(self._name)


def _rules(given: Rules) -> Sequence[RuleProperties]:
    if not isinstance(given, Mapping):
        return given
    return [RuleProperties(name, filter=_filter(each)) for name, each in given.items()]


def _filter(given: RuleFilter | str) -> RuleFilter:
    return SqlRuleFilter(given) if isinstance(given, str) else given
