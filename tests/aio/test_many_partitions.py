"""A receiver is at no more than 16 partitions of an entity. It gets the messages of all of them all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.engine import MOST_SEATS, PartitionSettings
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from sbredis.receiving import MessageInbox
from sbredis.servers import LocalServer
from tests.aio.gates import Gate
from tests.aio.queues import PATIENT, Calls, Queue, bodies, in_memory, load_all_scripts, on_servers
from tests.plugins.parts import first
from tests.waiting import eventually

PARTITIONS = 40


@asynccontextmanager
async def wide_queue(url: str, partitions: int = PARTITIONS, **settings: Any) -> AsyncIterator[Queue]:
    """Create a queue of many partitions."""
    await load_all_scripts(url)
    async with ServiceBusClient(url, namespace="ns", slot_count=partitions, _timings=PATIENT) as client:
        namespace, until = client._connection.namespace, asyncio.get_running_loop().time() + 60
        await namespace.create_entity("q", PartitionSettings(**settings), partitioned=True, partitions=partitions)
        yield Queue(client, await client._connection.entity("q", until), url, None)


def seats_of(receiver: ServiceBusReceiver) -> list[int]:
    """Return the indexes of the partitions that a receiver is at."""
    inbox = receiver._inbox
    assert isinstance(inbox, MessageInbox)
    search = inbox._seats.search
    assert search is not None
    seats = search.rotation.seats
    assert len(inbox.drivers) == len({*seats}) <= MOST_SEATS
    assert [each.partition_client.number for each in inbox.drivers] == [inbox.entity.numbers[place] for place in seats]
    return seats


async def waits(queue: Queue, receiver: ServiceBusReceiver, wanted: int = 1) -> asyncio.Task[list[Any]]:
    """Start a receive call, and wait until the receiver is at as many partitions as it may, and hears all calls."""
    task = asyncio.create_task(receiver.receive_messages(wanted, 60, gather=False))

    async def is_there() -> bool:
        search = inbox._seats.search if isinstance(inbox := receiver._inbox, MessageInbox) else None
        if search is None or search.under_way or not search.shared.is_heard_by(search):
            return False
        return await queue.waiters() >= MOST_SEATS

    await eventually(is_there)
    return task


@pytest.mark.parametrize("partitions", [8, PARTITIONS])
@pytest.mark.parametrize("wait", [0, 0.02, 60])
async def test_a_message_is_received_wherever_it_is(url: str, partitions: int, wait: float) -> None:
    async with wide_queue(url, partitions) as queue, queue.receiver() as receiver:
        for place in range(0, partitions, 7):
            await queue.send(str(place), at=place)
            messages = await receiver.receive_messages(1, wait)
            while not messages and wait == 0.02:  # a busy machine may need more time
                messages = await receiver.receive_messages(1, wait)
            (message,) = messages
            assert str(message) == str(place)
            await receiver.complete_message(message)
        assert await receiver.receive_messages(1, 0) == []


@pytest.mark.parametrize("partitions", [8, PARTITIONS])
async def test_an_empty_poll_asks_one_partition_and_reads_the_others(url: str, partitions: int) -> None:
    async with wide_queue(url, partitions) as queue, queue.receiver() as receiver:
        for _ in range(2):
            with Calls(queue.transport) as calls:
                assert await receiver.receive_messages(10, 0) == []
            assert calls.by_script == {"find_ready": partitions, "grant": 1}
            assert len(seats_of(receiver)) == 1


async def test_the_first_message_costs_a_search_and_a_grant(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        await queue.send("a", at=11)
        with Calls(queue.transport) as calls:
            assert bodies(await receiver.receive_messages(1, 60)) == ["a"]
        assert calls.by_script == {"find_ready": PARTITIONS, "grant": 1}


async def test_a_call_for_what_is_there_gets_all_of_it(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        await queue.send(*map(str, range(2 * PARTITIONS)))
        assert sorted(map(int, bodies(await receiver.receive_messages(200, 0)))) == [*range(2 * PARTITIONS)]
        seats_of(receiver)


async def test_a_waiting_receiver_is_at_some_partitions_and_the_others_call_it(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        for number in range(5):
            task = await waits(queue, receiver)
            assert len(seats_of(receiver)) == MOST_SEATS
            away = next(place for place in range(PARTITIONS) if place not in seats_of(receiver))
            with Gate(queue.client, "find_ready") as gate:
                gate.shut = True  # what is read now and then does not help
                await queue.send(str(number), at=away)
                assert bodies(await task) == [str(number)]
            assert away in seats_of(receiver)


async def test_a_message_of_a_partition_that_the_receiver_is_at_is_pushed(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        task = await waits(queue, receiver)
        await queue.send("a", at=seats_of(receiver)[3])
        assert bodies(await task) == ["a"]


async def test_a_receiver_that_leaves_a_partition_leaves_no_credit(url: str) -> None:
    """The partition calls for its next message."""
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        task = await waits(queue, receiver)
        for place in range(PARTITIONS):
            await queue.send(str(place), at=place)
            await task
            task = asyncio.create_task(receiver.receive_messages(1, 60))
        inbox = receiver._inbox
        assert isinstance(inbox, MessageInbox)
        await eventually(lambda: not inbox._seats.departing)

        async def is_at_its_seats() -> bool:
            return await queue.waiters() == len(seats_of(receiver)) == MOST_SEATS

        await eventually(is_at_its_seats)
        task.cancel()
        await asyncio.wait((task,))


AHEAD: dict[str, Any] = {"prefetch_count": 50}
ADAPTED: dict[str, Any] = {"prefetch_count": 50, "adaptive_prefetch": True}
WAYS = [(1, {}), (3, ADAPTED), (1, AHEAD), (1, ADAPTED), (3, {}), (3, AHEAD)]


@pytest.mark.parametrize(
    ("receivers", "options"),
    first(1, [pytest.param(*each, id=f"{each[0]}-{each[1]}") for each in WAYS], "each takes seconds"),
)
async def test_every_message_comes_once(url: str, receivers: int, options: dict[str, Any]) -> None:
    async with wide_queue(url, lock_duration=300_000) as queue:
        expected = {str(number) for number in range(4 * PARTITIONS)}
        got: Counter[str] = Counter()
        completed: list[None] = []

        async def receive(receiver: ServiceBusReceiver) -> None:
            async with receiver:
                async for message in receiver:
                    got[str(message)] += 1
                    await receiver.complete_message(message)
                    completed.append(None)

        tasks = [asyncio.create_task(receive(queue.receiver(**options))) for _ in range(receivers)]
        await queue.send(*sorted(expected))
        await eventually(lambda: len(completed) >= len(expected))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert got == dict.fromkeys(expected, 1)
        assert await queue.counts_are(0, 0)


async def test_a_partition_that_another_receiver_has_emptied_hides_no_messages(url: str) -> None:
    """The receiver has heard of more messages in the first partition, and another one has taken them."""
    async with wide_queue(url, 5) as queue, queue.receiver() as receiver, queue.receiver() as other:
        for place in range(5):
            await queue.send("a", "b", at=place)
            assert bodies(await receiver.receive_messages(1, 0)) == ["a"]
            assert bodies(await other.receive_messages(1, 0)) == ["b"]
            away = (place + 1) % 5
            await queue.send("c", at=away)
            with Calls(queue.transport) as calls:
                assert bodies(await receiver.receive_messages(1, 0)) == ["c"]
            assert calls.by_script["find_ready"] == 5


async def test_a_receiver_that_leaves_a_search_disturbs_nobody(url: str) -> None:
    async with wide_queue(url) as queue:
        receivers = [queue.receiver() for _ in range(2)]
        for receiver in receivers:
            assert await receiver.receive_messages(1, 0) == []
        for place in range(PARTITIONS):
            await queue.send("a", at=place)
        searches = [inbox._seats.search for receiver in receivers if isinstance(inbox := receiver._inbox, MessageInbox)]
        first, second = [search for search in searches if search is not None]
        first.ask_now()
        first.leave()
        task = asyncio.create_task(receivers[1].receive_messages(PARTITIONS, 0))
        await asyncio.sleep(0)  # the call asks in the turn in which the first receiver has left
        assert second.under_way
        assert len(await task) == PARTITIONS


async def test_receivers_share_a_search(url: str) -> None:
    async with wide_queue(url) as queue:
        receivers = [queue.receiver() for _ in range(10)]
        await asyncio.gather(*(receiver.receive_messages(1, 0) for receiver in receivers))
        with Calls(queue.transport) as calls:
            polls = [receiver.receive_messages(1, 0) for receiver in receivers]
            assert await asyncio.gather(*polls) == [[]] * 10
        assert calls.by_script["find_ready"] <= 2 * PARTITIONS


async def test_dead_letters_are_received_wherever_they_are(url: str) -> None:
    async with wide_queue(url) as queue, queue.receiver() as receiver, queue.receiver(sub_queue="deadletter") as dead:
        await queue.send("a", at=23)
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.dead_letter_message(message)
        assert bodies(await dead.receive_messages(1, 60)) == ["a"]


async def test_the_next_session_is_accepted_wherever_it_is(url: str) -> None:
    async with wide_queue(url, sessions=True) as queue:
        async with queue.client.get_queue_sender("q") as sender:
            for number in range(5):
                await sender.send_messages(ServiceBusMessage("m", session_id=f"s{number}"))
        found: set[str] = set()
        for _ in range(5):
            async with queue.receiver(session_id=NEXT_AVAILABLE_SESSION) as receiver:
                (message,) = await receiver.receive_messages(1, 60)
                await receiver.complete_message(message)
                assert message.session_id is not None
                found.add(message.session_id)
        assert found == {f"s{number}" for number in range(5)}


async def test_a_user_who_may_not_listen_searches_again_and_again(server: LocalServer) -> None:
    server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe")
    async with wide_queue(server.url.replace("://", "://deaf:secret@")) as queue, queue.receiver() as receiver:
        task = asyncio.create_task(receiver.receive_messages(1, 60))
        await eventually(lambda: receiver._inbox is not None and len(seats_of(receiver)) == MOST_SEATS)
        away = next(place for place in range(PARTITIONS) if place not in seats_of(receiver))
        await queue.send("a", at=away)
        assert bodies(await task) == ["a"]


@on_servers
async def test_a_message_comes_after_the_loss_of_the_subscription(
    url: str, target: str, request: pytest.FixtureRequest
) -> None:
    running = request.getfixturevalue(target)
    async with wide_queue(url) as queue, queue.receiver() as receiver:
        task = await waits(queue, receiver)
        for node in getattr(running, "nodes", [running]):
            node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        away = next(place for place in range(PARTITIONS) if place not in seats_of(receiver))
        await queue.send("a", at=away)
        assert bodies(await task) == ["a"]


@in_memory
async def test_a_closed_receiver_hears_no_more_calls(url: str) -> None:
    async with wide_queue(url) as queue:
        async with queue.receiver() as receiver:
            task = await waits(queue, receiver)
            task.cancel()
            await asyncio.wait((task,))
        assert await queue.waiters() == 0
        await eventually(lambda: not queue.transport._listening._channels)
