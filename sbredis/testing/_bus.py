# pyright: reportPrivateUsage=false
"""A bus in memory for tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Self, Unpack, final, overload

from sbredis.aio import ServiceBusClient
from sbredis.aio.calls._arguments import deadline_of
from sbredis.aio.calls._test_hooks import dismantle, set_up
from sbredis.aio.maintenance._publishing import TopicPublisher
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.receiving._peeking import Peeking
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    Awoken,
    CallId,
    Outgoing,
    Partition,
    Request,
    SidePrefix,
    decode,
    name_key,
)
from sbredis.exceptions import MessagingEntityDisabledError
from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    RuleFilter,
    RuleProperties,
    ServiceBusMessage,
    ServiceBusMessageState,
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
from sbredis.registry import path_of, split_path
from sbredis.testing._clock import MovableClock, TestClock

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity

__all__ = ["Bus", "Rules"]

_CLOSING = 5.0
Rules = Sequence[RuleProperties] | Mapping[str, RuleFilter | str]
"""Rules of a subscription; or their filters by their names, and of a filter in SQL the text alone."""


class _Hooks:
    """What all clients find that connect to the URL of a bus."""

    def __init__(self, clock: MovableClock) -> None:
        self.clock = clock
        self.written: dict[tuple[str, str], list[bytes]] = {}

    def sent(self, namespace: str, entity: str, messages: Sequence[Outgoing]) -> None:
        self.written.setdefault((namespace, name_key(entity)), []).extend(message.payload for message in messages)


@final
class Bus:
    """A bus in memory, empty, with a clock of its own: ``async with Bus() as bus``, or the fixture ``bus``.

    Code under test takes :attr:`client`, or makes a client of its own from :attr:`url`, in this process, in any thread.
    Either way it goes by :attr:`clock`. Nothing needs to be opened: everything is when it is first used. The helpers
    look without touching anything, and from outside: what the code under test has locked stays locked.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the extra ``memory`` is not installed:
    run ``pip install '.[memory]'`` in the checkout of sbredis.
    """

    def __init__(self, *, begins: datetime | None = None) -> None:
        """``begins`` is the time that the clock begins with; now unless said."""
        self._clock = TestClock(begins)
        self._name = f"test-{secrets.token_hex(8)}"
        self._hooks = _Hooks(self._clock._clock)
        self._clients: list[ServiceBusClient | ServiceBusAdministrationClient] = []
        self._client: ServiceBusClient | None = None
        self._own: ServiceBusAdministrationClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        set_up(self._name, self._hooks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Bus {self.url} {'closed' if self._closed else 'open'}>"

    # -- for the code under test ---------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """A connection string, for code that makes its own clients; ``?namespace=…`` may be added to it."""
        return f"memory://{self._name}"

    @property
    def client(self) -> ServiceBusClient:
        """A client, closed with the bus. Once the code under test has closed it, it is another one."""
        self._check_open()
        client = self._client
        if client is None or client._connection.closed:
            client = self._client = ServiceBusClient(self.url)
            self._clients.append(client)
        return client

    @property
    def clock(self) -> TestClock:
        """By which all goes that clients of this bus do."""
        return self._clock

    async def create_queue(self, queue_name: str, **properties: Unpack[QueueOptions]) -> QueueProperties:
        """Create a queue, with the properties of :class:`~sbredis.management.QueueProperties`.

        Code under test may create its queues itself, by any of the ways there are.
        """
        return await self._administration().create_queue(queue_name, **properties)

    async def create_topic(self, topic_name: str, **properties: Unpack[TopicOptions]) -> TopicProperties:
        """Create a topic without subscriptions, with the properties of :class:`~sbredis.management.TopicProperties`."""
        return await self._administration().create_topic(topic_name, **properties)

    async def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Rules | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Create a subscription, with the properties of :class:`~sbredis.management.SubscriptionProperties`.

        It takes everything, unless there are ``rules``: a list of :class:`~sbredis.management.RuleProperties`, or
        filters by the names of their rules, as in ``rules={"dear": "price > 100"}``.
        """
        return await self._administration().create_subscription(
            topic_name, subscription_name, rules=None if rules is None else _rules(rules), **properties
        )

    async def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        filter: RuleFilter | str = TrueRuleFilter(),  # noqa: A002, B008 -- Azure's name, and what it does not change
        action: SqlRuleAction | str | None = None,
    ) -> RuleProperties:
        """Create a rule; of a filter in SQL and of an action the text is enough.

        A subscription that was created without ``rules`` takes everything by ``$Default`` besides.
        """
        return await self._administration().create_rule(
            topic_name,
            subscription_name,
            rule_name,
            filter=_filter(filter),
            action=SqlRuleAction(action) if isinstance(action, str) else action,
        )

    # -- what was sent -------------------------------------------------------------------------------------------------

    async def sent(self, queue_or_topic_name: str) -> list[ServiceBusMessage]:
        """All messages that any client of this bus has sent to a queue or a topic, in the order in which they were
        taken.

        Whatever became of them since: those that were received and completed, that are scheduled, that were dropped as
        duplicates, were for no subscription or have expired are all here, as they were when they were sent. What was
        refused is not. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if nothing was sent and there
        is no such queue or topic.
        """
        own = self._administration()._connection
        written = self._hooks.written.get((own.target.namespace, name_key(queue_or_topic_name)))
        if written is None:
            record = await own.record(queue_or_topic_name, deadline_of(None))
            if record.kind == "subscription":
                raise ValueError(f"Nothing is sent to {record.path!r}: ask for what was sent to its topic.")
        return [from_content(decode(payload)) for payload in written or ()]

    # -- what is there -------------------------------------------------------------------------------------------------

    async def messages(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """All that is in a queue or a subscription now, whatever its state, but not on its dead-letter queue: as if
        peeked.

        What is due is done first: what has expired is gone, what was scheduled for a time that has come is active.
        """
        return await self._kept(queue_or_topic_name, subscription_name)

    async def active(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue or a subscription that are still to be handled: neither scheduled nor deferred.

        Among them are those that are :meth:`locked`, and those that were abandoned with a delay.
        """
        found = await self._kept(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state not in ("f", "s")]

    async def locked(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue or a subscription that somebody has received and not settled yet."""
        found = await self._kept(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state in ("l", "g")]

    async def scheduled(self, queue_or_topic_name: str) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue or a topic whose time has not come yet; until then they are in no subscription."""
        entity = await self._entity(queue_or_topic_name)
        if entity.record.kind == "subscription":
            raise ValueError(f"Nothing is scheduled in {entity.name!r}: it waits on the topic.")
        return [each for each in await self._shown(entity) if each.state is ServiceBusMessageState.SCHEDULED]

    async def deferred(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages of a queue or a subscription that were deferred."""
        found = await self._kept(queue_or_topic_name, subscription_name)
        return [each for each in found if hold_of(each).delivery.state == "f"]

    async def dead_lettered(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """All that is on the dead-letter queue of a queue or a subscription; ``dead_letter_reason`` of a message says
        why it is there.
        """
        return await self._kept(queue_or_topic_name, subscription_name, "d")

    @overload
    async def counts(self, queue_or_topic_name: str) -> QueueRuntimeProperties: ...

    @overload
    async def counts(self, queue_or_topic_name: str, subscription_name: str) -> SubscriptionRuntimeProperties: ...

    async def counts(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> QueueRuntimeProperties | SubscriptionRuntimeProperties:
        """How many messages are in a queue or a subscription, by where they are; counted after what is due was done."""
        own = self._administration()
        await self._catch_up(await self._keeper(queue_or_topic_name, subscription_name))
        if subscription_name is None:
            return await own.get_queue_runtime_properties(queue_or_topic_name)
        return await own.get_subscription_runtime_properties(queue_or_topic_name, subscription_name)

    async def purge(self, queue_or_topic_name: str, subscription_name: str | None = None) -> int:
        """Delete what is in a queue or a subscription and on its dead-letter queue, and return how many messages it
        were; of a topic, what is scheduled on it.

        What is locked stays. :meth:`sent` does not forget.
        """
        entity = await self._entity(queue_or_topic_name, subscription_name)
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
                gone += await receiver.purge_messages()  # not opened, which an entity with sessions would refuse
        return gone

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the clients that this bus has made, and forget all that was in it."""
        if not self._closed:
            self._closed = True
            await self._close_clients(asyncio.get_running_loop())
        dismantle(self._name)

    def discard(self) -> None:
        """The same from outside the event loop in which the bus was used, whether or not that still exists."""
        loops = {_loop_of(client) for client in self._clients}
        self._closed = True
        for loop in loops:
            if loop is None or loop.is_closed() or loop.is_running() or _in_loop():
                continue  # it has ended and its tasks with it, or it will
            loop.run_until_complete(self._close_clients(loop))
        dismantle(self._name)

    async def _close_clients(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            async with asyncio.timeout(_CLOSING):
                for client in self._clients:
                    if _loop_of(client) is loop:
                        await client.close()
        except TimeoutError:
            return  # a test ends all the same

    # ------------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The bus is closed: a test takes a bus of its own.")

    def _administration(self) -> ServiceBusAdministrationClient:
        """What the helpers go through: a client that the code under test cannot close, in the loop that runs now."""
        self._check_open()
        own, loop = self._own, asyncio.get_running_loop()
        if own is None or self._loop is not loop or own._connection.closed:
            own, self._loop = ServiceBusAdministrationClient(self.url), loop
            self._own = own
            self._clients.append(own)
        return own

    async def _entity(self, name: str, subscription: str | None = None) -> Entity:
        path = name if subscription is None else path_of(name, subscription)
        return await self._administration()._connection.entity(path, deadline_of(None))

    async def _keeper(self, name: str, subscription: str | None) -> Entity:
        """A queue or a subscription. To ask a topic what it keeps would be a slip."""
        entity = await self._entity(name, subscription)
        if entity.record.kind == "topic":
            raise ValueError(f"{entity.name!r} is a topic, which keeps no messages: name a subscription as well.")
        return entity

    async def _kept(
        self, name: str, subscription: str | None, side: SidePrefix = ""
    ) -> list[ServiceBusReceivedMessage]:
        return await self._shown(await self._keeper(name, subscription), side)

    async def _shown(self, entity: Entity, side: SidePrefix = "") -> list[ServiceBusReceivedMessage]:
        await self._catch_up(entity)
        peeking, found = Peeking(entity, side), list[ServiceBusReceivedMessage]()
        while page := await peeking.peek(MAXIMUM_CALL_MESSAGES, 0, deadline_of(None)):
            found += page
        return found

    async def _catch_up(self, entity: Entity) -> None:
        """Do what is due, which those who look do not do by themselves."""

        def make(partition: Partition, call_id: CallId) -> Request[Awoken]:
            return partition.due(CallId("", 0, call_id.now))

        topic = await self._entity(split_path(entity.name)[0]) if entity.record.kind != "queue" else None
        for number in entity.numbers:
            if topic is not None:
                with suppress(MessagingEntityDisabledError):  # then it waits
                    await TopicPublisher(topic, number).publish_due(None)
            while (await entity.partition_client(number).call("u", make, deadline_of(None))).more:
                continue


def _rules(given: Rules) -> Sequence[RuleProperties]:
    if not isinstance(given, Mapping):
        return given
    return [RuleProperties(name, filter=_filter(each)) for name, each in given.items()]


def _filter(given: RuleFilter | str) -> RuleFilter:
    return SqlRuleFilter(given) if isinstance(given, str) else given


def _loop_of(client: ServiceBusClient | ServiceBusAdministrationClient) -> asyncio.AbstractEventLoop | None:
    """Where a client lives; nowhere, if it was never used."""
    root = client._connection._root
    return None if root is None else root.get_loop()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
