"""Receiving while some partitions do not answer: a call ends at the time that its caller has asked for.

The tests run in an event loop whose time passes only by jumps (tests/workers/virtual.py), so they measure exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.client import Timings
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, ServiceBusConnectionError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import Queue, bodies, in_memory, queue_at
from tests.waiting import eventually
from tests.workers.virtual import VirtualLoop

pytestmark = in_memory

PARTITIONS = 8
SILENT = range(5)
TIMINGS = Timings()
"""Those of users: no time passes here while the machine is busy."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class Silence:
    """Partitions of a queue that do not answer receives until the silence ends."""

    def __init__(self, queue: Queue, places: Sequence[int]) -> None:
        self._transport, self._through = queue.transport, queue.transport.call
        self._keys = {queue.partitions[place].keys[0] for place in places}
        self._ended = asyncio.Event()
        self.asked: set[bytes] = set()
        """The silent partitions that were asked, by their first keys."""

    def begin(self) -> None:
        divert(self._transport, self._call)

    def end(self) -> None:
        """Let the calls run that have come meanwhile."""
        divert(self._transport, self._through)
        self._ended.set()

    async def _call(self, script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        if script.name in {"grant", "find_ready"} and keys[0] in self._keys:
            self.asked.add(keys[0])
            await self._ended.wait()
        return await self._through(script, keys, *arguments, **options)


@asynccontextmanager
async def silent_queue(url: str, silent: Sequence[int]) -> AsyncIterator[tuple[Queue, ServiceBusReceiver, Silence]]:
    """Create a queue, and a receiver that has not asked its partitions yet. Silence some of them."""
    async with (
        queue_at(url, partitioned=True, partitions=PARTITIONS, timings=TIMINGS) as queue,
        queue.receiver() as receiver,
    ):
        silence = Silence(queue, silent)
        silence.begin()
        try:
            yield queue, receiver, silence
        finally:
            silence.end()


async def timed(receiver: ServiceBusReceiver, wait: float | None) -> tuple[list[ServiceBusReceivedMessage], float]:
    """Receive up to five messages. Return them, and how long the call took."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with loop.jumping(lambda _: None):
        began = loop.time()
        messages = await receiver.receive_messages(5, wait, gather=False)
        return messages, loop.time() - began


@pytest.mark.parametrize("wait", [0.1, 0.5, 1.5, 2, 20, None])
@pytest.mark.parametrize("silent", [(0,), SILENT, range(1, PARTITIONS)], ids=len)
async def test_a_call_ends_in_time_if_a_partition_has_answered(
    url: str, wait: float | None, silent: Sequence[int]
) -> None:
    """A receiver without a stock asks one partition after the other, but it does not wait for each silent one."""
    async with silent_queue(url, silent) as (_, receiver, silence):
        messages, took = await timed(receiver, wait)
        assert len(silence.asked) == len(silent)
    assert messages == []
    expected = 60 if wait is None else wait
    assert expected - 0.001 <= took <= expected + 0.5  # a timer may be a clock tick early


async def test_the_messages_of_other_partitions_come_after_one_late_answer(url: str) -> None:
    async with silent_queue(url, SILENT) as (queue, receiver, silence):
        await queue.send("later", at=PARTITIONS - 1)
        messages, took = await timed(receiver, 20)
        assert bodies(messages) == ["later"]
        assert took <= 1.5
        assert len(silence.asked) == len(SILENT)


async def test_a_message_that_a_late_answer_brings_is_released_uncounted(url: str) -> None:
    async with silent_queue(url, SILENT) as (queue, receiver, silence):
        numbers = await queue.send(*"abc", at=0)
        assert (await timed(receiver, 2))[0] == []
        silence.end()
        await eventually(lambda: queue.counts_are(3, 0))
        messages = await receiver.receive_messages(3, 60)
        assert [message.sequence_number for message in messages] == numbers
        assert [message.delivery_count for message in messages] == [1] * 3


@pytest.mark.parametrize("silent", [(0,), SILENT], ids=len)
async def test_a_call_that_does_not_wait_asks_all_partitions_and_passes_over_the_silent_ones(
    url: str, silent: Sequence[int]
) -> None:
    """The first late answer costs its time, and then the looks at all other partitions."""
    async with silent_queue(url, silent) as (queue, receiver, silence):
        messages, took = await timed(receiver, 0)
        assert messages == []
        assert took <= 2
        assert len(silence.asked) == len(silent)
        await queue.send("later", at=PARTITIONS - 1)
        messages, took = await timed(receiver, 0)
        assert bodies(messages) == ["later"]
        assert took <= 1


async def test_a_call_that_does_not_wait_ends_after_two_late_answers_however_many_it_needs(url: str) -> None:
    """The search, the 16 partitions with a seat, and the others: each answers in time, but one after the other."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with ServiceBusClient(url, slot_count=24, _timings=TIMINGS) as client:
        await client.ensure_queue("wide", enable_partitioning=True, partition_count=24)
        async with client.get_queue_sender("wide") as sender, client.get_queue_receiver("wide") as receiver:
            for key in map(str, range(100)):
                await sender.send_messages(ServiceBusMessage(key, partition_key=key))
            transport = client._connection.transport
            through = transport.call

            async def slow(script: Any, *arguments: Any, **options: Any) -> Any:
                if script.name in {"grant", "find_ready"}:
                    await asyncio.sleep(0.9 * TIMINGS.late)
                return await through(script, *arguments, **options)

            divert(transport, slow)
            try:
                with loop.jumping(lambda _: None):
                    began = loop.time()
                    messages = await receiver.receive_messages(100, 0)
                    took = loop.time() - began
            finally:
                divert(transport, through)
            assert 0 < len(messages) < 100
            assert took <= 2 * TIMINGS.late


async def test_a_call_that_does_not_wait_asks_what_was_found_when_the_server_has_stalled(url: str) -> None:
    """The search is answered after more than two late answers, and what it has found can be had at once."""
    loop = asyncio.get_running_loop()
    async with queue_at(url, partitioned=True, partitions=PARTITIONS, timings=TIMINGS) as queue:
        for place in (3, 6):
            await queue.send("there", at=place)
        through, ends = queue.transport.call, loop.time() + 2.5 * TIMINGS.late

        async def stalled(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name in {"grant", "find_ready"} and loop.time() < ends:
                await asyncio.sleep(ends - loop.time() + (0.1 if script.name == "grant" else 0))
            return await through(script, *arguments, **options)

        async with queue.receiver() as receiver:
            divert(queue.transport, stalled)
            try:
                messages, took = await timed(receiver, 0)
            finally:
                divert(queue.transport, through)
    assert len(messages) > 0
    assert took <= 2.5 * TIMINGS.late + 0.1


@pytest.mark.parametrize("wait", [0, 0.5, 2])
async def test_a_call_that_no_partition_answers_fails_after_its_time(url: str, wait: float) -> None:
    async with silent_queue(url, range(PARTITIONS)) as (_, receiver, _silence):
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.jumping(lambda _: None):
            began = loop.time()
            with pytest.raises(OperationTimeoutError):
                await receiver.receive_messages(1, wait)
            took = loop.time() - began
    assert TIMINGS.answering - 0.001 <= took <= wait + TIMINGS.answering + 0.5


# -- calls that fail ---------------------------------------------------------------------------------------------------


def kept(receiver: ServiceBusReceiver) -> int:
    """Return the number of messages that wait in a receiver."""
    return 0 if receiver._inbox is None else len(receiver._inbox.buffer)


async def test_credit_is_granted_again_after_a_late_failure_that_no_call_waits_for(url: str) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with queue_at(url, timings=TIMINGS) as queue, queue.receiver() as receiver:
        with Gate(queue.client, "grant") as gate, loop.jumping(lambda _: None):
            gate.shut = True
            gate.fates.append("never arrives")
            await receiver.add_credit(1)
            await gate.reached()
            await asyncio.sleep(2 * TIMINGS.late)
            gate.open()
            await asyncio.sleep(TIMINGS.late)
            await queue.send("later")
            await asyncio.sleep(TIMINGS.late)
            assert kept(receiver) == 1


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_short_call_in_the_pause_after_failures_asks_when_its_time_is_over(url: str, partitions: int) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with (
        queue_at(url, partitioned=partitions > 1, partitions=partitions, timings=TIMINGS) as queue,
        queue.receiver() as receiver,
    ):
        with Gate(queue.client, "grant") as gate:
            gate.fates.extend(["never arrives" for _ in range(1000)])
            with pytest.raises(ServiceBusConnectionError):
                await timed(receiver, 20)
            gate.fates.clear()
            await queue.send("later")
            messages, took = await timed(receiver, 0.01)
        assert bodies(messages) == ["later"]
        assert took <= 0.02


async def test_an_error_of_an_earlier_outage_is_not_told_again(url: str) -> None:
    async with queue_at(url, timings=TIMINGS) as queue, queue.receiver() as receiver:
        with Gate(queue.client, "grant") as gate:
            gate.fates.append("never arrives")
            with pytest.raises(ServiceBusConnectionError, match="simulated"):
                await timed(receiver, 0)
        assert await timed(receiver, 0) == ([], 0)
        silence = Silence(queue, (0,))
        silence.begin()
        with pytest.raises(OperationTimeoutError, match="has not answered in time"):
            await timed(receiver, 0)
        silence.end()


async def test_a_new_queue_that_does_not_answer_is_not_missing(url: str) -> None:
    async with queue_at(url, timings=TIMINGS) as queue, queue.receiver() as receiver:
        await receiver.receive_messages(1, 0)
        await queue.client._connection.namespace.delete_entity("q")
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(1, 0)
        await queue.client.ensure_queue("q")
        await queue.client._connection.entity("q", asyncio.get_running_loop().time() + 60)
        silence = Silence(queue, (0,))
        silence.begin()
        with pytest.raises(OperationTimeoutError, match="has not answered in time"):
            await timed(receiver, 0)
        silence.end()
