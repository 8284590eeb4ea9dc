"""Messages with very many copies wait on their topic, and a client makes their copies with several calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sbredis.client import ROUTE, Entity, Role, SpreadCall, facts_of, is_held
from sbredis.engine import CallId, Outgoing, Ripe, decode, perform, read_record
from sbredis.model import ServiceBusMessage, outgoing
from sbredis.registry import EntityRecord
from tests.aio.gates import Gate
from tests.aio.queues import PATIENT, both, in_memory
from tests.aio.topics import Subject, soon, topic_at
from tests.waiting import eventually

NAMES = [f"s{number:02}" for number in range(30)]
MANY = 100
"""So many messages for all subscriptions need several calls."""


def numbered(first: int, count: int = MANY) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(str(number), session_id="s") for number in range(first, first + count)]


async def has_role(subject: Subject) -> bool:
    """Return whether a client has the role that spreads messages."""
    return await is_held(subject.client._connection.transport, "ns", ROUTE)


async def received(subject: Subject, name: str, count: int) -> list[int]:
    """Receive messages of a subscription in their order."""
    found: list[int] = []
    async with subject.receiver(name) as receiver:
        while len(found) < count:
            page = await receiver.receive_messages(count - len(found), 60)
            found += [int(str(message)) for message in page]
            await receiver.complete_messages(page)
    return found


class KilledSender:
    """A client that is killed after it has stored messages, and perhaps after the first call that makes copies."""

    def __init__(self, subject: Subject, entity: Entity) -> None:
        self._transport = subject.client._connection.transport
        self._entity = entity
        self._number = entity.numbers[0]
        self._partition = entity.partition(self._number)

    @classmethod
    async def of(cls, subject: Subject) -> KilledSender:
        deadline = asyncio.get_running_loop().time() + 60
        entity = await subject.client._connection.entity("t", deadline)
        await entity.load_routing(deadline)
        return cls(subject, entity)

    async def store(self, messages: list[ServiceBusMessage]) -> None:
        made = [outgoing(each, detects_duplicates=False)._replace(due=1) for each in messages]
        await perform(self._transport, self._partition.publish(CallId("", 0), made, [None] * len(made), []))

    async def ripe(self) -> tuple[Ripe, ...]:
        return await perform(self._transport, self._partition.ripe(1000))

    async def make_first_copies(self) -> list[EntityRecord]:
        """Make a call that spreads all messages. Return the subscriptions that have no copies yet."""
        routing = self._entity.routing
        assert routing is not None
        ripe = await self.ripe()
        messages = [Outgoing(b"", origin=each.message.name) for each in ripe]
        facts = [facts_of(decode(read_record(each.message.record).payload)) for each in ripe]
        spread: SpreadCall = routing.spread(
            self._partition, self._number, CallId("", 0), messages, routing.routed(messages, facts), "", None
        )
        await perform(self._transport, spread.request)
        assert spread.to
        return [record for record in routing.records if record.incarnation > spread.to]


@both
async def test_a_client_with_the_role_spreads_the_messages_in_their_order(url: str, partitioned: bool) -> None:
    async with topic_at(url, dict.fromkeys(NAMES), partitioned=partitioned, maintenance=True) as subject:
        async with subject.sender() as sender:
            await sender.send_messages(numbered(0))
            await sender.send_messages(numbered(MANY, 1))
            await sender.send_messages(numbered(MANY + 1))
        for name in NAMES[::15]:
            assert await received(subject, name, 2 * MANY + 1) == list(range(2 * MANY + 1))
        assert await subject.scheduled() == 0


@in_memory
async def test_a_sender_spreads_messages_whose_scheduled_time_has_passed(url: str) -> None:
    async with topic_at(url, dict.fromkeys(NAMES)) as subject:
        async with subject.sender() as sender:
            await sender.schedule_messages(numbered(0), soon(-5))
            assert await subject.scheduled() == 0
            await sender.send_messages(numbered(MANY, 1))
        assert await received(subject, NAMES[0], MANY + 1) == list(range(MANY + 1))


@in_memory
async def test_a_sender_spreads_its_messages_as_soon_as_no_client_has_the_role(url: str) -> None:
    async with topic_at(url, dict.fromkeys(NAMES)) as subject, subject.sender() as sender:
        async with subject.other_client(maintenance=True):
            await eventually(lambda: has_role(subject))
            await sender.send_messages(numbered(0))
            assert await received(subject, NAMES[0], MANY) == list(range(MANY))
        await sender.send_messages(numbered(MANY))
        assert await subject.scheduled() == 0


@in_memory
async def test_a_sender_looks_again_after_a_client_with_the_role_was_killed(url: str) -> None:
    timings = replace(PATIENT, spreading_again=0.1)
    async with topic_at(url, dict.fromkeys(NAMES), timings=timings) as subject, subject.sender() as sender:
        async with subject.other_client() as other:
            killed = Role(other._connection.transport, "ns", ROUTE)
            await killed.claim(60)
            with Gate(subject.client, "hold_role") as gate:
                gate.shut = True
                sending = asyncio.create_task(sender.send_messages(numbered(0)))
                await gate.reached()
                gate.let_one()
                await sending
                await gate.reached(2)
                assert await subject.scheduled() == MANY
                await killed.give_up()  # as when its claim has ended
        assert await received(subject, NAMES[0], MANY) == list(range(MANY))


@in_memory
@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "in a transaction"])
async def test_a_send_returns_at_its_timeout_while_its_messages_are_spread(url: str, in_transaction: bool) -> None:
    async with topic_at(url, dict.fromkeys(NAMES)) as subject, subject.sender() as sender:
        await sender.send_messages(numbered(0, 1))
        with Gate(subject.client, "ripe") as gate:
            gate.shut = True
            if in_transaction:
                async with subject.client.transaction(timeout=2) as transaction:
                    transaction.send_messages(sender, numbered(1))
            else:
                await sender.send_messages(numbered(1), timeout=2)
            assert (len(gate.waiting), await subject.scheduled()) == (1, MANY)
        assert await received(subject, NAMES[0], MANY + 1) == list(range(MANY + 1))


@in_memory
async def test_messages_that_are_forwarded_to_a_topic_are_spread(url: str) -> None:
    async with topic_at(url, dict.fromkeys(NAMES), maintenance=True) as subject:
        await subject.admin.create_queue("in", forward_to="t")
        async with subject.client.get_queue_sender("in") as sender:
            for first in (0, MANY, 2 * MANY):
                await sender.send_messages(numbered(first))
        for name in NAMES[::15]:
            assert await received(subject, name, 3 * MANY) == list(range(3 * MANY))


@in_memory
async def test_the_next_client_goes_on_where_a_killed_one_has_stopped(url: str) -> None:
    async with topic_at(url, dict.fromkeys(NAMES)) as subject:
        killed = await KilledSender.of(subject)
        await killed.store(numbered(0))
        left = [record.name for record in await killed.make_first_copies()]
        assert [await subject.count(name) for name in NAMES] == [MANY * (name not in left) for name in NAMES]
        async with subject.sender() as sender:
            await sender.send_messages(numbered(MANY, 1))  # it waits behind the others, so this client spreads them
        for name in left[0], left[-1], next(name for name in NAMES if name not in left):
            assert await received(subject, name, MANY + 1) == list(range(MANY + 1))
        assert await killed.ripe() == ()


@in_memory
async def test_subscriptions_may_come_and_go_while_messages_are_spread(url: str) -> None:
    """A new subscription whose turn has not come gets the messages too; others go on without a deleted one."""
    async with topic_at(url, dict.fromkeys(NAMES)) as subject:
        killed = await KilledSender.of(subject)
        await killed.store(numbered(0))
        gone, *left = [record.name for record in await killed.make_first_copies()]
        await subject.admin.delete_subscription("t", gone)
        await subject.create({"new": None})

        async def none_waits() -> bool:
            return await subject.scheduled() == 0

        async with subject.other_client(maintenance=True):
            await eventually(none_waits, timeout=60, what="all messages spread")
        for name in left:
            assert await subject.count(name) == MANY
        assert await subject.count("new") in {0, MANY}
