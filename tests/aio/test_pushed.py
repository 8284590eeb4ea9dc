"""Messages that a partition pushes to a receiver that waits: none is lost, none comes twice, and none needs a call."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from redis import Redis

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.engine import perform
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, hold_of
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.queues import Calls, Queue, at_rest, bodies, in_memory, new_queue, on_servers, queue_at
from tests.aio.scissors import PushScissors
from tests.engine.taking import run_of
from tests.waiting import eventually

FORGED = "AAAAAAAA"
"""The prefix of forged gifts."""


def outstanding(receiver: ServiceBusReceiver) -> list[int]:
    """Return how many messages each partition may still give to a receiver."""
    assert receiver._inbox is not None
    return [driver.credit.outstanding for driver in receiver._inbox.drivers]


async def test_a_message_for_a_waiting_receiver_needs_no_call(url: str) -> None:
    """It is locked for the whole duration, and its lock never ends later in the client than in the partition."""
    async with queue_at(url, lock_duration=60_000) as queue:
        receiver = queue.receiver()
        task = await queue.waits(receiver)
        with Calls(queue.transport) as calls:
            clock = queue.client._connection.clock
            before = clock.now()
            await queue.send("a")
            (message,) = await task
            assert not calls.by_script["grant"]
        lease = hold_of(message).lease
        assert lease is not None
        assert before + 50 < lease.until <= clock.now() + 60
        assert lease.fence
        await receiver.complete_message(message)
        assert await queue.counts_are(0, 0)


async def test_each_partition_pushes_to_a_receiver_that_wants_enough(url: str) -> None:
    """A receiver that wants at least one message from each partition has credit in all of them."""
    async with queue_at(url, partitioned=True) as queue:
        receiver = queue.receiver()
        task = await queue.waits(receiver, 2 * len(queue.partitions))
        with Calls(queue.transport) as calls:
            for place in range(len(queue.partitions)):
                await queue.send("a", at=place)
            await eventually(
                lambda: receiver._inbox is not None and receiver._inbox.callers.demand == len(queue.partitions)
            )
            assert not calls.by_script["grant"]
        await asyncio.gather(task)


async def test_a_message_that_a_partition_has_pushed_costs_a_grant_in_this_partition_only(url: str) -> None:
    """A receiver that wants one message from each partition has credit there again, and moves no other credit."""
    async with queue_at(url, partitioned=True) as queue:
        receiver, count = queue.receiver(), len(queue.partitions)
        task = asyncio.create_task(receiver.receive_messages(count, 60, gather=False))
        await eventually(lambda: receiver._inbox is not None and outstanding(receiver) == [1] * count)
        with Calls(queue.transport) as calls:
            for place in range(3 * count):
                await queue.send("a", at=place % count)
                await task
                task = asyncio.create_task(receiver.receive_messages(count, 60, gather=False))
                await eventually(lambda: outstanding(receiver) == [1] * count)
            # A message costs a grant, and a few more if the loop is late. To move credit would cost `count` each time.
            assert calls.by_script["grant"] <= 10 * count
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_single_messages_of_many_partitions_cost_a_grant_each(url: str) -> None:
    """The receiver keeps the news of the other partitions while its caller handles a message."""
    async with queue_at(url, partitioned=True) as queue:
        receiver, count = queue.receiver(), len(queue.partitions)
        for _ in range(10):
            for place in range(count):
                await queue.send("a", at=place)
        with Calls(queue.transport) as calls:
            for _ in range(10 * count):
                await receiver.receive_messages(1, 60)
                for _ in range(4):  # the caller does something else
                    await asyncio.sleep(0)
            assert calls.by_script["grant"] <= 20 * count, "a message costs a grant, and few more if the loop is late"


async def test_a_receiver_that_waits_after_it_has_asked_hears_of_messages_in_each_partition(url: str) -> None:
    """What a call without a wait has asked for ends with the answer, and news of messages ends with it."""
    async with queue_at(url, partitioned=True) as queue:
        for place in range(len(queue.partitions)):
            receiver = queue.receiver()
            first = await queue.waits(receiver)
            first.cancel()
            await asyncio.wait((first,))
            assert await receiver.receive_messages(1, 0) == []
            task = asyncio.create_task(receiver.receive_messages(1, 60))
            await queue.wait_for_waiters()
            await queue.send("a", at=place)
            assert bodies(await task) == ["a"]
            await receiver.close()


@in_memory
async def test_a_message_that_is_pushed_when_its_caller_was_cancelled_goes_to_the_next_caller(queue: Queue) -> None:
    """The delivery count does not rise, and without another caller the message returns to the queue."""
    receiver = queue.receiver()
    for follows in (True, False):
        task = await queue.waits(receiver)
        task.cancel()
        await queue.send("a")  # the receiver still has credit
        assert isinstance(*await asyncio.gather(task, return_exceptions=True), asyncio.CancelledError)
        if follows:
            (message,) = await receiver.receive_messages(1, 60)
            assert message.delivery_count == 1
            await receiver.complete_message(message)
        else:
            await eventually(lambda: queue.counts_are(1, 0))
        await at_rest(receiver)
    (message,) = await queue.receiver().receive_messages(1, 60)
    assert message.delivery_count == 1


async def test_a_receiver_without_callers_withdraws_its_credit(queue: Queue) -> None:
    """A message then goes to another receiver at once, and none stays locked for nobody."""
    quitter = queue.receiver()
    task = await queue.waits(quitter)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await at_rest(quitter)
    assert await queue.waiters() == 0
    task = await queue.waits(queue.receiver())
    await queue.send("a")
    assert bodies(await task) == ["a"]
    assert await queue.counts_are(0, 1)


async def test_a_receiver_that_is_closed_gives_back_what_is_pushed_meanwhile(queue: Queue) -> None:
    receiver = queue.receiver(prefetch_count=20)
    async with receiver:
        await eventually(queue.waiters)
        sending = [asyncio.create_task(queue.send(*"abc")) for _ in range(5)]
    await asyncio.gather(*sending)
    await eventually(lambda: queue.counts_are(15, 0))
    again = await queue.receiver().receive_messages(15, 60)
    assert {message.delivery_count for message in again} == {1}


async def test_many_receivers_of_a_client_share_a_channel_and_get_each_message_once(queue: Queue) -> None:
    receivers = [queue.receiver() for _ in range(250)]
    tasks = [asyncio.create_task(receiver.receive_messages(1, 60)) for receiver in receivers]

    async def all_wait() -> bool:
        return await queue.waiters() == len(receivers)

    await eventually(all_wait)
    assert len(queue.transport._listening._channels) == 1
    await queue.fill(len(receivers))
    got = Counter(body for messages in await asyncio.gather(*tasks) for body in bodies(messages))
    assert got == Counter(str(number) for number in range(len(receivers)))
    assert await queue.counts_are(0, len(receivers))


async def test_a_receiver_of_a_user_who_may_not_listen_asks_again_and_again(server: LocalServer) -> None:
    server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe")
    async with queue_at(server.url.replace("://", "://deaf:secret@")) as queue:
        task = asyncio.create_task(queue.receiver().receive_messages(1, 60))
        await eventually(lambda: queue.transport._listening._channels)
        await eventually(lambda: not queue.transport._listening._channels)
        await queue.send("a")
        assert bodies(await task) == ["a"]


@on_servers
async def test_a_receiver_has_credit_again_after_the_loss_of_its_subscription(
    queue: Queue, target: str, request: pytest.FixtureRequest
) -> None:
    running: LocalServer | LocalCluster = request.getfixturevalue(target)
    nodes = running.nodes if isinstance(running, LocalCluster) else [running]
    receiver = queue.receiver()
    for number in range(3):
        task = await queue.waits(receiver)
        for node in nodes:
            node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await queue.send(str(number))
        assert bodies(await task) == [str(number)]


async def test_a_user_who_may_only_publish_can_give_a_receiver_nothing(server: LocalServer) -> None:
    """It knows all but the prefix of the receiver's tokens, which only its client and the partition know."""
    server.ask("ACL", "SETUSER", "forger", "on", ">secret", "resetkeys", "allchannels", "-@all", "+spublish")
    async with queue_at(server.url) as queue:
        partition = queue.partitions[0]
        await queue.send("a")
        (lock,) = await queue.take()
        (shown,) = (await perform(queue.transport, partition.peek(0, 1, call_id=queue.call_id))).messages
        receiver = queue.receiver()
        task = await queue.waits(receiver)
        words = next(held for key, (_, held) in (await queue.contents()).items() if key.endswith(":words"))
        ((name, word),) = [(key, text) for key, text in words.items() if b" " in key and not text.startswith(b" ")]
        channel, _, prefix, *_ = word.split(b" ")
        head = f"{name.decode()}{run_of(queue.transport, partition)} {round(time.time() * 1000)} {FORGED} ".encode()
        gift = [b"", f"{FORGED} 1 1 22 300000 9".encode(), lock.name.encode(), shown.record]
        news = [
            head + b",".join(b"%d" % len(part) for part in parts) + b"\n" + b"".join(parts) for parts in ([b""], gift)
        ]
        with (
            Calls(queue.transport) as calls,
            Redis(host=server.host, port=server.port, username="forger", password="secret") as forger,
        ):
            for payload in (b"", head, *news):
                assert forger.execute_command("SPUBLISH", channel, payload) == 1
            await queue.abandon([lock])
            (message,) = await task  # it was pushed after what was forged
            assert calls.by_script.keys() == {"abandon"}
        assert message.delivery_count == 2
        assert (lease := hold_of(message).lease) is not None
        assert lease.token.startswith(prefix.decode())
        assert await receiver.receive_messages(10, 0) == []


async def receive_each_cut(queue: Queue, server: LocalServer, first: int, step: int) -> Counter[str]:
    """Receive messages whose pushes are cut, each ``step`` bytes later than the one before. Count the starts."""
    begun: Counter[str] = Counter()
    async with (
        PushScissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
        client.get_queue_receiver(queue.entity.name) as receiver,
    ):
        after = first
        while after < max(network.size, step):
            task = await queue.waits(receiver)
            network.cut(after)
            await queue.send(str(after))
            (message,) = await task
            begun[str(message)] += 1
            assert network.cuts == begun.total(), "the message came without a push"
            await receiver.complete_message(message)
            after += step
        assert await receiver.receive_messages(10, 0) == []
    return begun


async def test_a_listener_whose_connection_is_cut_at_any_byte_of_a_push_gets_the_message_once(
    server: LocalServer,
) -> None:
    """The message stays locked for the receiver, which learns of it as soon as it is subscribed again."""
    step = 10
    async with queue_at(server.url) as first:
        queues = [
            await new_queue(
                first.client, server.url, partitioned=False, clock=None, name=f"q{at}", lock_duration=300_000
            )
            for at in range(step)
        ]
        starts = [receive_each_cut(queue, server, at, step) for at, queue in enumerate(queues)]
        begun = sum(await asyncio.gather(*starts), Counter[str]())
    assert {*begun.values()} == {1}
    assert {*map(str, range(150))} <= begun.keys()  # a push has more bytes


async def test_a_receiver_has_credit_at_the_server_that_takes_over(replicated_cluster: LocalCluster) -> None:
    """The message is pushed by the new master, or is there when the receiver asks it."""
    async with queue_at(replicated_cluster.url) as queue:
        receiver = queue.receiver()
        task = await queue.waits(receiver)
        slot = key_slot(queue.partitions[0].keys[0])
        await asyncio.to_thread(replicated_cluster.master_of(slot).kill)

        async def is_sent() -> bool:
            try:
                await queue.send("a")
            except ServiceBusError:
                return False
            return True

        await eventually(is_sent)
        messages = await task
        assert bodies(messages) == ["a"]
        await receiver.complete_messages(messages)


@on_servers
@pytest.mark.parametrize("closes", [True, False], ids=["closed", "without a caller"])
async def test_receivers_that_wait_no_more_keep_no_due_time(queue: Queue, closes: bool) -> None:
    """Two receivers keep the due time of the queue, and then want nothing more. A third one waits on."""
    first, second, third = (queue.receiver() for _ in range(3))
    tasks = [await queue.waits(first), await queue.waits(second)]
    await queue.send("a", "b")
    for receiver, task in zip((first, second), tasks, strict=True):
        await receiver.complete_messages(await task)
    if closes:
        await first.close()
        await second.close()
    task = await queue.waits(third)
    async with queue.client.get_queue_sender("q") as sender:
        due = datetime.now(UTC) + timedelta(seconds=1)
        await sender.send_messages(ServiceBusMessage("c", scheduled_enqueue_time_utc=due))
    async with asyncio.timeout(60):  # without a keeper, the next call comes two minutes later
        messages = await task
    assert bodies(messages) == ["c"]
    await third.complete_messages(messages)


async def test_a_user_with_other_facts_of_the_server_pushes_news(server: LocalServer) -> None:
    """A user that may not read INFO knows no server process, and news of its calls say so."""
    server.ask("ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", "+@all", "-info")
    async with queue_at(server.url) as queue:
        limited = server.url.replace("://", "://few:secret@")
        for sends, receives in ((limited, server.url), (server.url, limited)):
            async with (
                ServiceBusClient(sends, namespace="ns") as sending,
                ServiceBusClient(receives, namespace="ns") as receiving,
                receiving.get_queue_receiver("q") as receiver,
            ):
                task = asyncio.create_task(receiver.receive_messages(1, 300))
                await eventually(queue.waiters)
                async with sending.get_queue_sender("q") as sender:
                    await sender.send_messages(ServiceBusMessage("a"))
                async with asyncio.timeout(90):  # without the news, the next call comes two minutes later
                    messages = await task
                await receiver.complete_messages(messages)
