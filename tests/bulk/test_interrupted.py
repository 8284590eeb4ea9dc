"""Tests of reservations by clients that end after any step, and by several clients at the same time."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.bulk import Reservations
from sbredis.bulk._reserving import Claimed
from sbredis.client import Clock
from sbredis.engine import CallId, Content, Outgoing, PartitionSettings, ScriptCaller, encode, perform
from sbredis.exceptions import EntityReservedError, Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.registry import EntityRecord, Namespace, reservation_of
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.engine.taking import first_token, receiving, run_of
from tests.registry.turns import Cut, Turns

pytestmark = pytest.mark.slow

on_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)
"""A reservation that is cut off in the middle has reached some slots and not others, so a cluster too."""


PARTITIONS = 2
MESSAGES = 5
PAYLOAD = encode(Content(b"body"))
WAITING = 60.0
Act = Callable[[Reservations], Awaitable[object]]


@pytest.fixture
async def transport(url: str) -> AsyncIterator[Transport]:
    async with await open_with_scripts(url) as transport:
        yield transport


class Place:
    """A queue with messages in all its partitions, in a namespace of its own."""

    def __init__(self, transport: Transport, namespace: Namespace) -> None:
        self.transport = transport
        self.namespace = namespace

    @classmethod
    async def fresh(cls, transport: Transport, name: str) -> Place:
        namespace = await Namespace.open(transport, name, PARTITIONS)
        record = await namespace.create_entity("Orders", PartitionSettings(), partitioned=True)
        for number in record.partitions:
            partition = namespace.partition(record, number)
            await perform(transport, partition.send(CallId("sender", 1), [Outgoing(PAYLOAD)] * MESSAGES))
        return cls(transport, namespace)

    def client(self, transport: ScriptCaller | None = None) -> Reservations:
        """Return a client of its own; all its calls go through this transport."""
        used = transport or self.transport
        return Reservations(used, Namespace(used, self.namespace.name, PARTITIONS, 0), Clock())

    async def record(self) -> EntityRecord:
        return await self.namespace.get_entity("Orders")

    async def plan_all(self, claimed: Claimed) -> None:
        """Plan a range of two messages in each partition, and commit it in the first partition."""
        record = claimed.record
        for number in record.partitions:
            partition = self.namespace.partition(record, number)
            planned = await perform(self.transport, partition.plan(claimed.fence, None, 2))
            planned = await perform(self.transport, partition.plan(claimed.fence, planned.committed, 2))
            if number == record.partitions[0]:
                while (await perform(self.transport, partition.plan(claimed.fence, planned.committed, 2))).more:
                    pass

    async def receive(self) -> int:
        """Receive and delete all messages, as a receiver that knows the present settings. Return their number."""
        record, found = await self.record(), 0
        for number in record.partitions:
            partition = self.namespace.partition(record, number)
            await perform(self.transport, partition.configure())  # as a client does that finds older settings
            run = run_of(self.transport, partition)
            receive = receiving(partition, first_token(), 1000, run=run, mode="delete")
            found += len((await perform(self.transport, receive)).messages)
        return found


async def interruptions(
    transport: Transport, first: Callable[[Place], Awaitable[object]], act: Act
) -> AsyncIterator[tuple[Place, int]]:
    """Let a client end before and after each of its calls, each time in a fresh place. Yield the place afterwards."""
    place = await Place.fresh(transport, "whole")
    await first(place)
    counting = Cut(transport, 10_000, before=True)
    await act(place.client(counting))
    assert counting.calls > PARTITIONS
    for at in range(1, counting.calls + 1):
        for before in (True, False):
            place = await Place.fresh(transport, f"ns{at}{before}")
            await first(place)
            with pytest.raises(ServiceBusError):
                await act(place.client(Cut(transport, at, before=before)))
            yield place, at - before


async def nothing(_: Place) -> None:
    pass


async def reserving(client: Reservations) -> Claimed:
    return await client.reserve("Orders", "A", "run", 0.0)


async def releasing(client: Reservations) -> bool:
    return await client.release("Orders", None, asyncio.get_running_loop().time() + WAITING)


async def reserved(place: Place) -> None:
    await place.plan_all(await reserving(place.client()))


# -- a client that ends ------------------------------------------------------------------------------------------------


@on_servers
async def test_an_interrupted_reservation_is_taken_over_by_the_next_run(transport: Transport) -> None:
    async for place, _ in interruptions(transport, nothing, reserving):
        before = reservation_of(await place.record())
        claimed = await reserving(place.client())
        assert before is None or claimed.fence > before.fence
        now = reservation_of(await place.record())
        assert now is not None
        assert (now.state, now.fence) == ("reserved", claimed.fence)
        with pytest.raises(EntityReservedError):
            await place.receive()
        await place.plan_all(claimed)


@on_servers
async def test_an_interrupted_reservation_keeps_other_consumers_out_until_it_is_released(transport: Transport) -> None:
    async for place, _ in interruptions(transport, nothing, reserving):
        there = reservation_of(await place.record()) is not None
        if there:
            with pytest.raises(EntityReservedError) as raised:
                await place.client().reserve("Orders", "B", "run", 0.0)
            assert raised.value.consumer == "A"
        assert await releasing(place.client()) is there
        assert reservation_of(await place.record()) is None
        assert await place.receive() == PARTITIONS * MESSAGES


@on_servers
async def test_an_interrupted_release_is_finished_by_the_next_release(transport: Transport) -> None:
    async for place, _ in interruptions(transport, reserved, releasing):
        there = reservation_of(await place.record()) is not None
        assert await releasing(place.client()) is there
        assert reservation_of(await place.record()) is None
        assert await place.receive() == PARTITIONS * MESSAGES - 2
        assert not await releasing(place.client())


@on_servers
@pytest.mark.parametrize("consumer", ["A", "B"])
async def test_an_interrupted_release_is_finished_by_the_next_reservation(transport: Transport, consumer: str) -> None:
    async for place, _ in interruptions(transport, reserved, releasing):
        before = reservation_of(await place.record())
        assert before is not None or not (await place.record()).settings.reserved
        if before is not None and before.state == "reserved" and consumer == "B":
            continue  # the release has not begun
        claimed = await place.client().reserve("Orders", consumer, "run", 0.0)
        now = reservation_of(await place.record())
        assert now is not None
        assert (now.consumer, now.state, now.fence) == (consumer, "reserved", claimed.fence)
        await place.plan_all(claimed)


# -- several clients ---------------------------------------------------------------------------------------------------

Actor = tuple[Literal["reserve", "release"], str]
ACTORS = st.lists(
    st.tuples(st.sampled_from(["reserve", "reserve", "release"]), st.sampled_from("AB")), min_size=2, max_size=4
)


@settings(max_examples=25)
@given(ACTORS, st.randoms(use_true_random=True), st.integers(0, 2))
def test_clients_that_act_at_the_same_time_never_share_an_entity(
    actors: list[Actor], chance: random.Random, dying: int
) -> None:
    """The calls come in any order, and some clients end in the middle. At most one consumer has the entity."""

    async def act() -> None:
        async with await open_with_scripts(f"memory://{uuid.uuid4().hex}") as transport:
            place = await Place.fresh(transport, "ns")
            ended = await Crowd(place, actors, chance, dying).act()
            claims = [found for found in ended if isinstance(found, Claimed)]
            assert len({each.fence for each in claims}) == len(claims)
            if all(what == "reserve" for what, _ in actors):
                having = {reservation.consumer for each in claims if (reservation := reservation_of(each.record))}
                last = reservation_of(await place.record())
                assert len(having) <= 1
                assert not having or (last is not None and having == {last.consumer})
            await releasing(place.client())
            claimed = await place.client().reserve("Orders", "C", "run", 0.0)
            assert all(claimed.fence > each.fence for each in claims)
            await place.plan_all(claimed)
            await releasing(place.client())
            assert await place.receive() == PARTITIONS * MESSAGES - 2

    asyncio.run(act())


class Crowd:
    """Clients that act at the same time. Their calls are let through one by one, in any order."""

    def __init__(self, place: Place, actors: list[Actor], chance: random.Random, dying: int) -> None:
        self._place = place
        self._turns = Turns(place.transport)
        self._actors = actors
        self._chance = chance
        self._dying = dying
        self._ended: list[object] = []

    async def act(self) -> list[object]:
        """Return the results and the errors of the clients that have ended."""
        lives = {number: self._chance.randrange(1, 20) for number in range(self._dying)}
        tasks = [asyncio.create_task(self._run(number, actor)) for number, actor in enumerate(self._actors)]
        turns = self._turns
        while not all(task.done() for task in tasks):
            await turns.quiet()
            if not turns.waiting:
                continue
            call = self._chance.choice(turns.waiting)
            lives[call.client] = lives.get(call.client, 10_000) - 1
            if lives[call.client] < 0:  # the client is dead; here it only learns that it reaches nobody any more
                turns.waiting.remove(call)
                call.answer.set_exception(ServiceBusCommunicationError("dead", outcome=Outcome.UNKNOWN))
                continue
            await turns.let_through(call)
            record = await self._place.record()
            assert record.settings.reserved == (reservation_of(record) is not None)
        await asyncio.gather(*tasks)
        return self._ended

    async def _run(self, number: int, actor: Actor) -> None:
        what, consumer = actor
        client = self._place.client(self._turns.client(number))
        try:
            if what == "reserve":
                self._ended.append(await client.reserve("Orders", consumer, f"run {number}", 0.0))
            else:
                until = asyncio.get_running_loop().time() + WAITING
                self._ended.append(await client.release("Orders", consumer, until))
        except ServiceBusError as error:
            self._ended.append(error)
