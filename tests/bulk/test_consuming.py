"""Tests of reading a reserved entity in ranges: each message once, whatever happens to the consumer."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import Committed, Reservation, list_reservations, read_range, release, reserve
from sbredis.bulk import _reservation as bulk_reservation
from sbredis.client import deadline_of
from sbredis.engine import decode, perform, read_record
from sbredis.exceptions import MessagesLostError, ReservationLostError
from sbredis.model import ReservationStatus, ServiceBusMessage
from tests.aio.queues import PATIENT, Calls, HandClock

pytestmark = pytest.mark.everywhere("the partitions of a reserved entity are on several nodes")

Admin = ServiceBusAdministrationClient
PARTITIONS = 3
PLENTY = 1 << 30


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url, slot_count=PARTITIONS, _timings=PATIENT) as client, Admin(url) as admin:
        await client._connection.open(asyncio.get_running_loop().time() + 60)
        await admin.create_queue("orders", enable_partitioning=True)
        yield client


async def send(client: ServiceBusClient, *bodies: str, name: str = "orders", **options: Any) -> None:
    async with client.get_sender(name) as sender:
        for start in range(0, len(bodies), 500):
            share = bodies[start : start + 500]
            await sender.send_messages([ServiceBusMessage(body, **options) for body in share])


async def capture(client: ServiceBusClient, path: str = "orders") -> Reservation:
    return await reserve(client, path, consumer="capture")


async def read(client: ServiceBusClient, number: int, after: Committed, upto: int) -> list[str]:
    found: list[str] = []
    async for page in read_range(client, "orders", number, after.birth, after.number, upto):
        found += [decode(read_record(each.record).payload).body.decode() for each in page.deliveries]
    return found


async def drain(client: ServiceBusClient, reservation: Reservation, rows: int) -> list[str]:
    """Read all messages in ranges of up to this number of messages."""
    found: list[str] = []
    for number in reservation.partitions:
        position = await reservation.begin(number)
        while (planned := await reservation.plan(number, position, rows, PLENTY)).rows:
            assert planned.rows <= rows
            found += await read(client, number, position, planned.end)
            position = planned.committed
    return found


# -- ranges ------------------------------------------------------------------------------------------------------------


async def test_a_consumer_reads_every_message_once_in_the_order_of_numbers(client: ServiceBusClient) -> None:
    sent = [f"m{number}" for number in range(100)]
    await send(client, *sent)
    reservation = await capture(client)
    assert Counter(await drain(client, reservation, 7)) == Counter(sent)
    await release(client, "orders")
    async with client.get_queue_receiver("orders") as receiver:
        assert await receiver.peek_messages(100) == []


async def test_a_range_is_the_same_until_it_is_committed(url: str, client: ServiceBusClient) -> None:
    await send(client, *map(str, range(60)))
    reservation = await capture(client)
    number = await filled(reservation)
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 5, PLENTY)
    found = await read(client, number, begun, planned.end)
    assert len(found) == planned.rows == 5
    for _ in range(PARTITIONS):
        await send(client, *map(str, range(60)))
    next_run = await capture(client)
    again = await next_run.plan(number, begun, 9, PLENTY)
    assert (again.plan, again.floor, again.end) == (planned.plan, planned.floor, planned.end)
    async with ServiceBusClient(url) as other:  # a reader in another process
        assert await read(other, number, begun, planned.end) == found
    following = await next_run.plan(number, planned.committed, 5, PLENTY)
    assert following.floor == planned.end
    with pytest.raises(MessagesLostError):
        await read(client, number, begun, planned.end)


async def test_a_long_range_is_read_page_by_page(client: ServiceBusClient) -> None:
    sent = [f"{number:04}" for number in range(2500)]
    await send(client, *sent, partition_key="key")
    reservation = await capture(client)
    number = await filled(reservation)
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 10_000, PLENTY)
    assert planned.rows == 2500
    pages = [page async for page in read_range(client, "orders", number, begun.birth, 0, planned.end)]
    assert [len(page.names) for page in pages] == [600] * 4 + [100]
    assert await read(client, number, begun, planned.end) == sent
    async for _ in read_range(client, "orders", number, begun.birth, 0, planned.end):
        break  # a reader may stop early
    assert await read(client, number, begun, begun.number) == []


@pytest.mark.parametrize("target", ["memory"], indirect=True)
async def test_ranges_cost_no_other_calls(client: ServiceBusClient) -> None:
    await send(client, *map(str, range(2500)), partition_key="key")
    reservation = await capture(client)
    number = await filled(reservation)
    with Calls(client._connection.transport) as calls:
        begun = await reservation.begin(number)
        planned = await reservation.plan(number, begun, 10_000, PLENTY)
        assert len(await read(client, number, begun, planned.end)) == 2500
    assert set(calls.by_script) == {"plan", "read_range"}
    assert calls.by_script["read_range"] == 5


async def test_each_share_of_a_removal_has_its_own_time_out(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many messages a range has, a time-out is that of one call."""
    for start in range(0, 2500, 500):
        await send(client, *map(str, range(start, start + 500)), partition_key="key")
    reservation = await capture(client)
    number = await filled(reservation)
    planned = await reservation.plan(number, await reservation.begin(number), 2500, PLENTY)
    given: list[float] = []

    def noted(timeout: float) -> float:
        given.append(timeout)
        return deadline_of(timeout)

    monkeypatch.setattr(bulk_reservation, "deadline_of", noted)
    await reservation.plan(number, planned.committed, 0, PLENTY, timeout=50)
    assert given == [50, 50, 50, 50]  # three shares of at most 1,000 messages, and a call that finds nothing


def places(status: ReservationStatus) -> list[tuple[int, int, int, int]]:
    return [(each.plan, each.committed, each.planned, each.left) for each in status.positions.values()]


async def test_a_sign_of_life_changes_nothing_else(client: ServiceBusClient) -> None:
    await send(client, *map(str, range(60)))
    reservation = await capture(client)
    await reservation.show_life()
    [status] = await list_reservations(client)
    assert [position.last_seen is None for position in status.positions.values()] == [False] * PARTITIONS
    number = await filled(reservation)
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 5, PLENTY)
    [before] = await list_reservations(client)
    await reservation.show_life()
    [after] = await list_reservations(client)
    assert places(after) == places(before)
    assert await reservation.plan(number, begun, 9, PLENTY) == planned
    await release(client, "orders")
    with pytest.raises(ReservationLostError):
        await reservation.show_life()


async def test_a_consumer_that_shows_life_is_not_stale_however_long_it_works() -> None:
    clock, url = HandClock(), f"memory://{uuid.uuid4().hex}"
    async with ServiceBusClient(url, _clock=clock, _timings=PATIENT) as client, Admin(url, _clock=clock) as admin:
        await admin.create_queue("orders")
        reservation = await capture(client)
        for _ in range(10):
            clock.move(600)
            await reservation.show_life()
        clock.move(600)
        assert [each.stale for each in await list_reservations(client)] == [False]
        clock.move(600)
        assert [each.stale for each in await list_reservations(client)] == [True]


async def test_a_plan_may_only_remove_what_is_committed(client: ServiceBusClient) -> None:
    await send(client, "a", "b", partition_key="key")
    reservation = await capture(client)
    number = await filled(reservation)
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 1, PLENTY)
    settled = await reservation.plan(number, planned.committed, 0, PLENTY)
    assert (settled.rows, settled.left, settled.end) == (0, 1, planned.end)
    async with client.get_queue_receiver("orders") as receiver:
        assert [str(message) for message in await receiver.peek_messages(9)] == ["b"]


async def test_a_partition_that_was_lost_and_made_again_is_a_loss(client: ServiceBusClient) -> None:
    await send(client, "a", "b", partition_key="key")
    reservation = await capture(client)
    number = await filled(reservation)
    begun = await reservation.begin(number)
    planned = await reservation.plan(number, begun, 1, PLENTY)
    connection = client._connection
    lost = connection.namespace.partition(await connection.namespace.get_entity("orders"), number)
    while (await perform(connection.transport, lost.destroy_source())).more:
        pass
    with pytest.raises(MessagesLostError) as raised:
        await reservation.plan(number, planned.committed, 1, PLENTY)
    assert raised.value.entity == "orders"
    with pytest.raises(MessagesLostError):
        await read(client, number, begun, planned.end)
    await send(client, "c", partition_key="key")
    accepted = await reservation.plan(number, planned.committed, 1, PLENTY, accept_loss=True)
    assert accepted.birth != begun.birth
    assert await read(client, number, Committed(accepted.birth, 0, accepted.floor), accepted.end) == ["c"]


async def test_a_position_in_an_entity_that_was_created_again_is_a_loss(url: str, client: ServiceBusClient) -> None:
    reservation = await capture(client)
    begun = await reservation.begin(0)
    async with Admin(url) as admin:
        await admin.release_reservation("orders")
        await admin.delete_queue("orders")
        await admin.create_queue("orders", enable_partitioning=True)
    next_run = await capture(client)
    assert next_run.incarnation != reservation.incarnation
    with pytest.raises(MessagesLostError):
        await next_run.plan(0, begun, 1, PLENTY)


async def filled(reservation: Reservation) -> int:
    """Return a partition that has messages."""
    for number in reservation.partitions:
        if (await reservation.plan(number, await reservation.begin(number), 0, PLENTY)).left:
            return number
    raise AssertionError("no partition has messages")


# -- anything that may happen ------------------------------------------------------------------------------------------

OFTEN = ("send", "plan", "read", "store", "show_life")
STEPS = st.lists(
    st.sampled_from([*OFTEN, *OFTEN, "expiring", "later", "crash", "stale", "release"]), min_size=10, max_size=40
)


@pytest.mark.slow
@settings(max_examples=10)
@given(STEPS, st.randoms(use_true_random=True))
def test_each_message_ends_in_one_place(steps: list[str], chance: random.Random) -> None:
    """A consumer may crash at any time. Its results, the dead letters and the queue have each message exactly once."""

    async def act() -> None:
        clock = HandClock()
        url = f"memory://{uuid.uuid4().hex}"
        async with (
            ServiceBusClient(url, slot_count=2, _clock=clock, _timings=PATIENT) as client,
            Admin(url, _clock=clock) as admin,
        ):
            await client._connection.open(asyncio.get_running_loop().time() + 60)
            await admin.create_queue("orders", enable_partitioning=True, dead_lettering_on_message_expiration=True)
            life = Life(client, clock, chance)
            for step in ["reserve", *steps, "store", "release"]:
                await getattr(life, step)()
            await release(client, "orders")
            clock.move(3600)
            found = life.results + await life.receive() + await life.receive("deadletter")
            assert found == Counter(life.sent)

    asyncio.run(act())


class Life:
    """A consumer with its results, and everything that can happen to it."""

    def __init__(self, client: ServiceBusClient, clock: HandClock, chance: random.Random) -> None:
        self.client = client
        self.results: Counter[str] = Counter()
        self.sent: list[str] = []
        self._clock = clock
        self._chance = chance
        self._stored: dict[int, Committed] = {}
        self._planned: dict[int, tuple[Committed, int]] = {}
        """For each partition, the position after the range, and the number of its messages."""
        self._seen: dict[Committed, list[str]] = {}
        """The messages of each range, from when they were first read."""
        self._reservation: Reservation
        self._earlier: Reservation | None = None

    async def reserve(self) -> None:
        self._reservation = await capture(self.client)
        for number in self._reservation.partitions:
            if number not in self._stored:
                self._stored[number] = await self._reservation.begin(number)

    async def send(self, **options: Any) -> None:
        bodies = [f"m{len(self.sent) + at}" for at in range(self._chance.randrange(1, 6))]
        self.sent += bodies
        await send(self.client, *bodies, **options)

    async def expiring(self) -> None:
        await self.send(time_to_live=timedelta(seconds=self._chance.randrange(1, 20)))

    async def later(self) -> None:
        self._clock.move(self._chance.randrange(1, 15))

    async def plan(self) -> None:
        number = self._chance.choice(self._reservation.partitions)
        before = self._planned.get(number)
        planned = await self._reservation.plan(number, self._stored[number], self._chance.randrange(1, 8), PLENTY)
        assert before is None or before == (planned.committed, planned.rows)
        if planned.rows:
            self._planned[number] = planned.committed, planned.rows

    async def read(self) -> None:
        if not self._planned:
            return
        number = self._chance.choice(sorted(self._planned))
        after, rows = self._planned[number]
        found = await read(self.client, number, self._stored[number], after.number)
        assert len(found) == rows
        assert self._seen.setdefault(after, found) == found

    async def store(self) -> None:
        """Store the results of the ranges that were read, together with their positions."""
        for number, (after, _) in list(self._planned.items()):
            if after in self._seen:
                self.results.update(self._seen[after])
                self._stored[number] = after
                del self._planned[number]

    async def show_life(self) -> None:
        await self._reservation.show_life()

    async def crash(self) -> None:
        """Begin another run of the consumer. It knows only what was stored."""
        self._earlier = self._reservation
        await self.reserve()
        if self._chance.random() < 0.5:
            self._planned.clear()  # otherwise check that the new run plans the same ranges

    async def stale(self) -> None:
        """Let an earlier run make a call that comes late."""
        if self._earlier is not None:
            number = self._chance.choice(self._reservation.partitions)
            with pytest.raises(ReservationLostError):
                await self._earlier.plan(number, self._stored[number], 5, PLENTY)

    async def release(self) -> None:
        """Stop, as a consumer does that settles what it has stored; let a receiver work, and begin again."""
        for number in self._reservation.partitions:
            await self._reservation.plan(number, self._stored[number], 0, PLENTY)
        await release(self.client, "orders")
        self._planned.clear()
        self.results += await self.receive(most=self._chance.randrange(0, 10))
        self._earlier = self._reservation
        await self.reserve()
        if self._chance.random() < 0.5:
            await release(self.client, "orders")
            await self.reserve()

    async def receive(self, sub_queue: str | None = None, most: int = 10_000) -> Counter[str]:
        found: Counter[str] = Counter()
        async with self.client.get_queue_receiver("orders", sub_queue=sub_queue) as receiver:
            while found.total() < most:
                messages = await receiver.receive_messages(min(1000, most - found.total()), 0)
                if not messages:
                    break
                found.update(map(str, messages))
                await receiver.complete_messages(messages)
        return found
