"""Very many receivers of one client: they open with one grant each, and their grants share calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import MOST_SEATS, MalformedCallError, PartitionSettings
from sbredis.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError, Outcome
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.transport import Script
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import PATIENT, Calls, Queue, bodies, both, on_servers, queue_at
from tests.aio.test_many_partitions import PARTITIONS, wide_queue
from tests.waiting import eventually

pytestmark = on_servers

RECEIVERS = 96


async def grants_made(queue: Queue) -> Counter[int]:
    """Count the words of receivers by the number of grants that each of them has made."""
    words = [held for key, (_, held) in (await queue.contents()).items() if key.endswith(":words")]
    texts = [bytes(text).split(b" ") for each in words for key, text in each.items() if b" " in key]
    return Counter(int(parts[1]) for parts in texts)


async def test_receivers_that_come_later_make_one_grant_each_and_share_calls(queue: Queue) -> None:
    """The channel is heard already, so their first grant stays open."""
    first = asyncio.create_task(queue.receiver().receive_messages(1, 60))
    await queue.wait_for_waiters()
    receivers = [queue.receiver() for _ in range(RECEIVERS)]
    with Calls(queue.transport) as calls:
        tasks = [asyncio.create_task(receiver.receive_messages(1, 60)) for receiver in receivers]
        await queue.wait_for_waiters(1 + RECEIVERS)
        assert calls.by_script["grant"] < RECEIVERS / 2
    assert (await grants_made(queue))[1] == RECEIVERS
    await queue.fill(1 + RECEIVERS)
    got = Counter(body for messages in await asyncio.gather(first, *tasks) for body in bodies(messages))
    assert got == Counter(str(number) for number in range(1 + RECEIVERS))


async def test_receivers_of_a_wide_queue_make_hardly_more_than_one_grant_at_a_partition(url: str) -> None:
    """They wait for the confirmation of the channel before they ask partitions that have nothing."""
    async with wide_queue(url) as queue:
        receivers = [queue.receiver() for _ in range(10)]
        tasks = [asyncio.create_task(receiver.receive_messages(1, 60, gather=False)) for receiver in receivers]

        async def all_wait() -> bool:
            return await queue.waiters() == MOST_SEATS * len(receivers)

        await eventually(all_wait)
        made = await grants_made(queue)
        assert made.total() == MOST_SEATS * len(receivers)
        assert made[1] >= made.total() * 0.9  # a few have told another partition that it has the credit
        for place in range(PARTITIONS):
            await queue.fill(1, at=place, start=place)
        done, waiting = await asyncio.wait(tasks, timeout=60)
        assert (len(done), waiting) == (len(receivers), set())


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "disabled"])
async def test_all_receivers_learn_from_one_of_them_that_nobody_may_receive(queue: Queue, deleted: bool) -> None:
    namespace = queue.client._connection.namespace
    tasks = [asyncio.create_task(queue.receiver().receive_messages(1, 900)) for _ in range(RECEIVERS)]
    await queue.wait_for_waiters(RECEIVERS)
    record = await namespace.get_entity("q")
    with Gate(queue.client, "grant") as gate:
        gate.shut = True
        if deleted:
            await namespace.delete_entity("q")
        else:
            await namespace.update_entity(record, PartitionSettings(status="ReceiveDisabled"))
        while not any(task.done() for task in tasks):  # a call carries grants of some receivers
            if gate.waiting:
                gate.let_one()
            await asyncio.sleep(0)
        _, waiting = await asyncio.wait(tasks, timeout=60)  # the calls of the others are held
        assert not waiting
        kind = MessagingEntityNotFoundError if deleted else MessagingEntityDisabledError
        assert {type(task.exception()) for task in tasks} == {kind}


async def each_gets_one(queue: Queue, tasks: Sequence[asyncio.Task[list[ServiceBusReceivedMessage]]]) -> None:
    """Send a message for each call, and wait until each of them has got one."""
    async with queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(len(tasks))])
    got = Counter(body for messages in await asyncio.gather(*tasks) for body in bodies(messages))
    assert got == Counter(str(number) for number in range(len(tasks)))


async def test_a_call_that_comes_after_a_refusal_does_not_get_its_error(queue: Queue) -> None:
    """The queue was disabled when receivers began to tell each other. A call that comes later asks for itself."""
    namespace, openings = queue.client._connection.namespace, queue.client._connection.openings
    receivers = [queue.receiver() for _ in range(RECEIVERS)]
    first = [asyncio.create_task(receiver.receive_messages(1, 900)) for receiver in receivers]
    await queue.wait_for_waiters(RECEIVERS)
    through, answered, opened = queue.transport.call, asyncio.Event(), asyncio.Event()

    async def call(script: Script, *arguments: Any, **options: Any) -> Any:
        """Hold the calls with grants after the first one that is answered."""
        if script.name != "grant":
            return await through(script, *arguments, **options)
        if answered.is_set():
            await opened.wait()
        reply = await through(script, *arguments, **options)
        if not answered.is_set():
            for _ in range(50_000):
                openings.soon(lambda: None)  # the receivers tell each other after these turns
            answered.set()
        return reply

    divert(queue.transport, call)
    disabled = await namespace.update_entity(
        await namespace.get_entity("q"), PartitionSettings(status="ReceiveDisabled")
    )
    await answered.wait()
    for _ in range(10):
        await asyncio.sleep(0)  # the answer reaches its receivers
    later = [asyncio.create_task(receiver.receive_messages(1, 900)) for receiver in receivers]
    await asyncio.wait(first, timeout=60)
    assert {type(task.exception()) for task in first} == {MessagingEntityDisabledError}
    await namespace.update_entity(disabled, PartitionSettings())
    opened.set()
    divert(queue.transport, through)
    await each_gets_one(queue, later)


async def test_the_error_of_one_grant_ends_no_calls_of_other_receivers(queue: Queue) -> None:
    tasks = [asyncio.create_task(queue.receiver().receive_messages(1, 900)) for _ in range(3)]
    await queue.wait_for_waiters(3)
    through = queue.transport.call

    async def malformed(*_: object, **__: object) -> None:
        raise MalformedCallError("A defect: planted by the test.", outcome=Outcome.REFUSED)

    divert(queue.transport, malformed)
    with pytest.raises(MalformedCallError):
        await queue.receiver().receive_messages(1, 900)
    divert(queue.transport, through)
    await each_gets_one(queue, tasks)


@both
async def test_calls_that_wait_go_on_if_their_queue_is_made_anew_at_once(url: str, partitioned: bool) -> None:
    """The client looks again before it tells them that there is no queue."""
    async with queue_at(url, partitioned=partitioned, timings=replace(PATIENT, missing=900.0)) as queue:
        namespace = queue.client._connection.namespace
        tasks = [asyncio.create_task(queue.receiver().receive_messages(1, 900, gather=False)) for _ in range(RECEIVERS)]
        await queue.wait_for_waiters(RECEIVERS)
        await namespace.delete_entity("q")
        await eventually(lambda: queue.entity.gone)
        assert not any(task.done() for task in tasks)
        await namespace.create_entity("q", PartitionSettings(), partitioned=not partitioned)
        await eventually(lambda: not queue.entity.gone)
        await each_gets_one(queue, tasks)


async def test_calls_that_wait_get_an_error_if_their_queue_stays_away(url: str) -> None:
    """All of them get it, and none that comes later."""
    async with queue_at(url, partitioned=True) as queue:
        receivers = [queue.receiver() for _ in range(RECEIVERS)]
        tasks = [asyncio.create_task(receiver.receive_messages(1, 900)) for receiver in receivers]
        await queue.wait_for_waiters(RECEIVERS)
        namespace = queue.client._connection.namespace
        await namespace.delete_entity("q")
        await asyncio.wait(tasks, timeout=60)
        assert {type(task.exception()) for task in tasks} == {MessagingEntityNotFoundError}
        await namespace.create_entity("q", PartitionSettings(), partitioned=True)
        again = [asyncio.create_task(receiver.receive_messages(1, 900, gather=False)) for receiver in receivers]
        await eventually(lambda: not queue.entity.gone)
        await each_gets_one(queue, again)
