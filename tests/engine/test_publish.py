"""Messages that several subscriptions carry: stored once, and each subscription a queue of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TypeVar

import pytest

from sbredis.engine import (
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Received,
    Request,
    SettingsStaleError,
    Turn,
    load,
    new_token,
    operations,
    perform,
    read_record,
)
from sbredis.exceptions import ServiceBusError
from sbredis.transport import Transport, open_transport

pytestmark = pytest.mark.anyio

T = TypeVar("T")
SETTINGS = PartitionSettings(clock="test", dead_letter_expired=True, max_delivery_count=2)
START = 1_700_000_000_000


class Topic:
    """A topic of one partition with three subscriptions."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.now = START
        self._number = 0
        self.topic = Partition("ns", "abc", "t", "topic", 1, SETTINGS)
        shared = replace(SETTINGS, shared=True)
        self.one, self.two, self.brief = (
            Partition("ns", "abc", name, f"incarnation-{name}", 1, settings, store="t")
            for name, settings in (("s1", shared), ("s2", shared), ("s3", replace(shared, time_to_live=1000)))
        )

    @property
    def subscriptions(self) -> tuple[Partition, ...]:
        return self.one, self.two, self.brief

    async def tell(self, request: Request[T]) -> T:
        return await perform(self.transport, request)

    def turn(self) -> Turn:
        self._number += 1
        return Turn(f"lane{self._number}", 1, self.now)

    async def publish(self, *routed: tuple[bytes, tuple[int, ...]], message_id: bytes = b"") -> int:
        messages = [Outgoing(payload, message_id=message_id) for payload, _ in routed]
        request = self.topic.publish(self.turn(), messages, [route for _, route in routed], self.subscriptions)
        return (await self.tell(request)).first

    async def receive(self, subscription: Partition, token: str | None = None, side: str = "") -> Received:
        request = subscription.receive(self.turn(), token or new_token(), 10, side="d" if side else "")
        return await self.tell(request)

    async def payloads(self, subscription: Partition) -> list[bytes]:
        return [read_record(one.record).payload for one in (await self.receive(subscription)).messages]

    async def stored(self) -> int:
        return sum([await self.transport.command("HLEN", key, key=key) for key in self.topic.keys[11:]])

    async def everything(self) -> list[object]:
        return [
            await self.transport.command("DUMP", key, key=key)
            for partition in (self.topic, *self.subscriptions)
            for key in partition.keys
        ]

    async def bytes(self) -> int:
        return (await self.tell(self.topic.count(Turn("", 0, self.now)))).bytes


@pytest.fixture
async def topic(url: str) -> AsyncIterator[Topic]:
    async with await open_transport(url, scripts=[load(name) for name in operations()]) as transport:
        made = Topic(transport)
        for partition in (made.topic, *made.subscriptions):
            await made.tell(partition.configure(create=True))
        yield made


async def test_each_subscription_receives_what_is_for_it(topic: Topic) -> None:
    await topic.publish((b"both", (0, 1)), (b"first", (0,)), (b"second", (1,)))
    assert await topic.payloads(topic.one) == [b"both", b"first"]
    assert await topic.payloads(topic.two) == [b"both", b"second"]
    assert await topic.payloads(topic.brief) == []


async def test_a_message_that_several_carry_is_stored_once_and_goes_with_the_last(topic: Topic) -> None:
    await topic.publish((b"x" * 100, (0, 1, 2)))
    weight = await topic.bytes()
    assert await topic.stored() == 1
    assert 100 <= weight < 200
    for carrier in (topic.two, topic.brief):
        token = new_token()
        (message,) = (await topic.receive(carrier, token)).messages
        await topic.tell(carrier.complete(topic.turn(), [Lock(token, message.name)]))
        assert await topic.stored() == 1
        assert await topic.bytes() == weight
    token = new_token()
    (message,) = (await topic.receive(topic.one, token)).messages
    await topic.tell(topic.one.complete(topic.turn(), [Lock(token, message.name)]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0
    assert await topic.transport.command("EXISTS", topic.topic.keys[10], key=topic.topic.keys[10]) == 0


async def test_a_message_for_nobody_is_gone_at_once(topic: Topic) -> None:
    assert await topic.publish((b"nobody", ())) == 1
    assert await topic.publish((b"somebody", (0,))) == 2
    assert await topic.stored() == 1


async def test_a_subscription_abandons_and_dead_letters_for_itself_alone(topic: Topic) -> None:
    await topic.publish((b"m", (0, 1)))
    for _ in range(2):
        token = new_token()
        (message,) = (await topic.receive(topic.one, token)).messages
        await topic.tell(topic.one.abandon(topic.turn(), [Lock(token, message.name, b"why")]))
    assert (await topic.receive(topic.one)).messages == ()
    token = new_token()
    (dead,) = (await topic.receive(topic.one, token, side="d")).messages
    assert (dead.name, dead.reason, dead.changes, read_record(dead.record).payload) == ("d1", "M", b"why", b"m")
    (other,) = (await topic.receive(topic.two)).messages
    assert (other.failures, other.changes) == (0, b"")
    await topic.tell(topic.one.complete(topic.turn(), [Lock(token, "d1")]))
    assert await topic.stored() == 1


async def test_a_subscription_with_a_shorter_life_expires_its_own(topic: Topic) -> None:
    await topic.publish((b"m", (1, 2)))
    topic.now += 1000
    assert await topic.payloads(topic.brief) == []
    (dead,) = (await topic.receive(topic.brief, side="d")).messages
    assert dead.reason == "T"
    assert await topic.payloads(topic.two) == [b"m"]


async def test_a_duplicate_reaches_nobody(topic: Topic) -> None:
    settings = replace(SETTINGS, duplicate_window=60_000)
    topic.topic = Partition("ns", "abc", "t2", "topic2", 1, settings)
    shared = replace(SETTINGS, shared=True)
    topic.one, topic.two, topic.brief = (
        Partition("ns", "abc", name, name, 1, shared, store="t2") for name in ("s4", "s5", "s6")
    )
    for partition in (topic.topic, *topic.subscriptions):
        await topic.tell(partition.configure(create=True))
    await topic.publish((b"first", (0, 1)), message_id=b"id")
    await topic.publish((b"again", (0, 1)), message_id=b"id")
    assert await topic.payloads(topic.one) == [b"first"]
    assert await topic.payloads(topic.two) == [b"first"]


async def test_publishing_to_a_subscription_that_is_gone_is_refused_and_changes_nothing(topic: Topic) -> None:
    await topic.publish((b"before", (0, 1)))
    while await topic.tell(topic.two.destroy()):
        pass
    before = await topic.everything()
    with pytest.raises(SettingsStaleError, match="Subscription 2"):
        await topic.publish((b"m", (0, 1)))
    assert await topic.everything() == before


async def test_a_subscription_that_is_destroyed_gives_up_what_it_held_step_by_step(topic: Topic) -> None:
    for number in range(7):
        await topic.publish((b"%d" % number, (0, 1)))
    token = new_token()
    await topic.tell(topic.two.receive(topic.turn(), token, 2))
    await topic.tell(topic.two.dead_letter(topic.turn(), [Lock(token, "1")]))
    steps = 0
    while await topic.tell(topic.two.destroy(share=2)):
        steps += 1
        with pytest.raises(ServiceBusError, match="does not exist"):  # it is gone from the first step on
            await topic.receive(topic.two)
    assert steps == 3
    assert await topic.stored() == 7
    token = new_token()
    names = [one.name for one in (await topic.receive(topic.one, token)).messages]
    await topic.tell(topic.one.complete(topic.turn(), [Lock(token, name) for name in names]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0


async def test_a_repeated_publish_is_answered_as_the_first_time(topic: Topic) -> None:
    request = topic.topic.publish(topic.turn(), [Outgoing(b"m")], [(0, 1)], topic.subscriptions)
    first = await topic.tell(request)
    assert await topic.tell(request) == first
    assert await topic.payloads(topic.one) == [b"m"]


@pytest.mark.parametrize("routes", [[], [(3,)], [(-1,)], [(1, 0)], [(0, 0)], [(0,), (1,)]])
async def test_a_route_that_cannot_be_is_refused_before_it_is_sent(topic: Topic, routes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="route"):
        topic.topic.publish(topic.turn(), [Outgoing(b"m")], routes, topic.subscriptions)
    with pytest.raises(ValueError, match="scheduled"):
        topic.topic.publish(topic.turn(), [Outgoing(b"m", due=1)], [()], topic.subscriptions)
