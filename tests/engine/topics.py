"""A topic for tests: one partition of the topic, with the subscriptions in that partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sbredis.engine import (
    Copy,
    Delivery,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Received,
    Sent,
    read_record,
)
from sbredis.transport import Transport
from tests.engine.bench import START
from tests.engine.calling import Caller
from tests.engine.taking import first_token, receiving, run_of

__all__ = ["SETTINGS", "START", "Topic"]

SETTINGS = PartitionSettings(clock="test", dead_letter_expired=True, max_delivery_count=2)


class Topic(Caller):
    """A topic of one partition with four subscriptions, one of which has sessions."""

    def __init__(self, transport: Transport) -> None:
        self.topic = Partition("ns", "abc", "t", "topic", 1, replace(SETTINGS, topic=True))
        shared = replace(SETTINGS, shared=True)
        self.one, self.two, self.brief, self.sessions = (
            Partition("ns", "abc", name, f"incarnation-{name}", 1, settings, store="t")
            for name, settings in (
                ("s1", shared),
                ("s2", shared),
                ("s3", replace(shared, time_to_live=1000)),
                ("s4", replace(shared, sessions=True)),
            )
        )
        super().__init__(
            transport, dict(zip(("t", "s1", "s2", "s3", "s4"), (self.topic, *self.subscriptions), strict=True))
        )

    @property
    def subscriptions(self) -> tuple[Partition, ...]:
        return self.one, self.two, self.brief, self.sessions

    async def publish(self, *routed: tuple[bytes, tuple[int, ...]], message_id: bytes = b"") -> int:
        messages = [Outgoing(payload, message_id=message_id) for payload, _ in routed]
        request = self.topic.publish(
            self.call_id(), messages, [[Copy(place) for place in route] for _, route in routed], self.subscriptions
        )
        return (await self.tell(request)).first

    async def receive(self, subscription: Partition, token: str | None = None, side: str = "") -> Received:
        return await self.take(subscription, token or first_token(), 10, side="d" if side else "")

    async def take(self, subscription: Partition, token: str, wanted: int, **how: Any) -> Received:
        run = run_of(self.transport, subscription)
        return await self.tell(receiving(subscription, token, wanted, run=run, now=self.now, **how))

    async def payloads(self, subscription: Partition) -> list[bytes]:
        return [read_record(one.record).payload for one in (await self.receive(subscription)).messages]

    async def stored(self) -> int:
        return sum([await self.transport.command("HLEN", key, key=key) for key in self.topic.keys[10:26]])

    async def bytes(self) -> int:
        return (await self.tell(self.topic.count(self.at()))).bytes

    async def hand_out(
        self, messages: Sequence[Outgoing], routes: Sequence[Sequence[Copy] | None], *, fence: int | None = None
    ) -> Sent:
        """Publish messages with these routes."""
        request = self.topic.publish(self.call_id(), messages, routes, self.subscriptions, fence=fence)
        return await self.tell(request)

    async def dead(self, subscription: Partition) -> list[Delivery]:
        """Receive and delete the dead letters of a subscription."""
        received = await self.take(subscription, first_token(), 100, side="d", mode="delete")
        return list(received.messages)

    async def taken(self, subscription: Partition) -> list[Delivery]:
        """Receive and delete the messages of a subscription."""
        received = await self.take(subscription, first_token(), 100, mode="delete")
        return list(received.messages)

    async def refs(self) -> dict[Any, Any]:
        """Return the number of copies of each record that has more than one."""
        return dict((await self.everything()).get(self.topic.keys[9].decode(), ("", {}))[1])

    async def complete(self, subscription: Partition, token: str, *names: str) -> None:
        settled = await self.tell(subscription.complete(self.call_id(), [Lock(token, name) for name in names]))
        assert settled.lost == ()
