"""The call of an idle lane is sent at once, and its reply is passed on at once. Failures are handled as usual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from sbredis.aio import ServiceBusSender
from sbredis.client import CallJob, PartitionClient
from sbredis.engine import CallId, Counts, Partition, Request
from sbredis.exceptions import (
    DataLayoutError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from sbredis.transport import Script
from sbredis.transport._stream import _SocketStream
from sbredis.transport._wire import Wire
from tests.aio.diverting import divert
from tests.aio.gates import stored_bodies
from tests.aio.queues import Queue, queue_at
from tests.aio.test_given_once import stopped
from tests.aio.test_repeating import behind_scissors
from tests.aio.test_sending import flat
from tests.client.test_lanes import changed
from tests.waiting import eventually


def counting(read: Callable[[Any], Any] | None = None) -> CallJob[Counts]:
    """Return the job of a call that counts the messages of a partition."""

    def make(partition: Partition, call_id: CallId) -> Request[Counts]:
        request = partition.count(CallId("", 0, call_id.now))
        return request if read is None else request._replace(read=read)

    return CallJob(make, asyncio.get_running_loop().time() + 20)


def submitted(partition: PartitionClient, job: CallJob[Counts]) -> asyncio.Future[Any]:
    return partition.calling("x").submit(job)


def wire_of(queue: Queue) -> Wire:
    node = queue.transport._nodes.of_slot(queue.partitions[0].keys.slot)
    assert node is not None
    assert node.calls.wire is not None
    return node.calls.wire


def is_idle(queue: Queue) -> bool:
    """Return whether a call would be sent at once."""
    return wire_of(queue).quiet


async def idle_partition(queue: Queue) -> PartitionClient:
    """Return a partition with a lane ``x`` that has made a call, after the connection has become idle."""
    partition = queue.entity.partition_client(queue.entity.numbers[0])
    await submitted(partition, counting())
    await eventually(lambda: is_idle(queue))
    return partition


async def test_the_call_of_an_idle_lane_is_sent_before_the_caller_waits(queue: Queue) -> None:
    partition = await idle_partition(queue)
    future = submitted(partition, counting())
    assert not is_idle(queue)
    assert (await future).active == 0


async def test_the_reply_is_passed_on_when_it_is_read(server: LocalServer) -> None:
    """No turn of the event loop lies between the reading of the reply and the end of the job."""
    async with queue_at(server.url) as queue:
        partition = await idle_partition(queue)
        stream, job, ended = wire_of(queue)._stream, counting(), list[bool]()
        assert isinstance(stream, _SocketStream)
        answer = stream._on_replies

        def answered(replies: list[Any]) -> None:
            answer(replies)
            ended.append(job.future.done())

        with mock.patch.object(stream, "_on_replies", answered):
            await submitted(partition, job)
        assert ended == [True]


async def test_jobs_that_come_during_the_call_share_the_next_one(queue: Queue, sender: ServiceBusSender) -> None:
    await sender.send_messages(ServiceBusMessage("first"))
    await eventually(lambda: is_idle(queue))
    sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(str(each)))) for each in range(5)]
    await asyncio.gather(*sends)
    assert await stored_bodies(queue) == [["first", "0", "1", "2", "3", "4"]]
    lane = queue.entity.partition_client(queue.entity.numbers[0]).sending
    assert sum(pipeline._number for pipeline in lane._pipelines) == 3


async def test_sends_that_begin_together_go_to_one_partition(server: LocalServer) -> None:
    """The first of them has a call of its own. A partition keeps its turn for 500 sends, and then the next one has it.

    Sends that follow each other go to one partition after the other.
    """
    async with queue_at(server.url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        for count in (1, 1, 20, 750):
            await eventually(lambda: is_idle(queue))
            await asyncio.gather(*[sender.send_messages(ServiceBusMessage(str(count))) for _ in range(count)])
        stored = await stored_bodies(queue)
        turns = [(text, bodies.count(text)) for bodies in stored for text in sorted(set(bodies))]
        assert sorted(turns) == [("1", 1), ("1", 1), ("20", 20), ("750", 250), ("750", 500)]


async def test_not_all_sends_gather_at_a_partition_that_is_slow(url: str) -> None:
    """It keeps its turn while sends gather there, but not if a turn of them waits already."""
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        slow, through, opened = queue.partitions[0].keys[0], queue.transport.call, asyncio.Event()

        async def call(script: Script, keys: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "send" and keys[0] == slow:
                await opened.wait()
            return await through(script, keys, *arguments, **options)

        divert(queue.transport, call)
        lanes = [queue.entity.partition_client(number).sending for number in queue.entity.numbers]
        sends: list[asyncio.Task[None]] = []
        for _ in range(15):
            sends += [asyncio.create_task(sender.send_messages(ServiceBusMessage("x"))) for _ in range(100)]
            await asyncio.sleep(0)
            await eventually(lambda: not any(lane.busy for lane in lanes[1:]))
        gathered = len(lanes[0].gathering)
        opened.set()
        await asyncio.gather(*sends)
        divert(queue.transport, through)
        assert 500 <= gathered < 510


async def test_a_call_that_loses_its_answer_is_repeated_and_runs_once(server: LocalServer) -> None:
    async with behind_scissors(server) as (queue, network), queue.client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        await eventually(lambda: is_idle(queue))
        network.cut("send", 2)
        await sender.send_messages(ServiceBusMessage("y"))
        assert network.cuts == 2
        assert flat(await stored_bodies(queue)) == ["x", "y"]


async def test_the_obstacle_to_a_call_is_removed(queue: Queue, sender: ServiceBusSender) -> None:
    """Another client has changed the settings, so the partition refuses the call, and the client reads them again."""
    await sender.send_messages(ServiceBusMessage("x"))
    await changed(queue, max_delivery_count=3)
    await eventually(lambda: is_idle(queue))
    await sender.send_messages(ServiceBusMessage("y"))
    assert flat(await stored_bodies(queue)) == ["x", "y"]


async def test_a_call_that_cannot_be_made_or_read_fails_alone(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    partition = await idle_partition(queue)

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("broken")

    unreadable = submitted(partition, counting(broken))
    with pytest.raises(DataLayoutError, match="The reply of the script 'count' cannot be read") as refused:
        await unreadable
    assert refused.value.outcome is Outcome.UNKNOWN
    await eventually(lambda: is_idle(queue))
    unmade = submitted(partition, CallJob(broken, asyncio.get_running_loop().time() + 20))
    with pytest.raises(ServiceBusError, match="ZeroDivisionError") as raised:
        await unmade
    assert raised.value.outcome is Outcome.NEVER_SENT
    assert (await submitted(partition, counting())).active == 0
    assert caplog.text.count("a call failed because of a defect") == 1


async def test_a_lane_that_is_dropped_during_its_call_completes_the_call(queue: Queue) -> None:
    partition = await idle_partition(queue)
    future = submitted(partition, counting())
    lane = partition.calling("x")
    partition.dismiss("x")
    assert (await future).active == 0
    await eventually(lambda: not lane.busy)


async def test_closing_the_client_ends_the_call(server: LocalServer) -> None:
    async with queue_at(server.url) as queue:
        partition = await idle_partition(queue)
        with stopped(server):
            future = submitted(partition, counting())
            assert not is_idle(queue)
            await queue.client.close()
            with pytest.raises(ServiceBusConnectionError, match="closed") as raised:
                await future
        assert raised.value.outcome is Outcome.UNKNOWN


async def test_a_call_without_an_answer_ends_at_its_deadline(server: LocalServer) -> None:
    async with queue_at(server.url) as queue:
        partition = await idle_partition(queue)
        job = counting()
        job.deadline = asyncio.get_running_loop().time() + 0.1
        with stopped(server), pytest.raises(OperationTimeoutError) as raised:
            await submitted(partition, job)
        assert raised.value.outcome is Outcome.UNKNOWN
