"""Receiving without waiting (``max_wait_time=0``), and returning with the first message (``gather=False``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.model import NEXT_AVAILABLE_SESSION
from tests.aio.gates import Gate
from tests.aio.queues import bodies, both, in_memory, queue_at
from tests.aio.session_queues import session_queue_at

# -- receiving without waiting -----------------------------------------------------------------------------------------


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_non_waiting_receive_returns_messages_of_every_partition(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        assert await receiver.receive_messages(9, 0) == []
        await queue.send(*"12345")
        received = await receiver.receive_messages(9, 0)
        assert sorted(bodies(received)) == list("12345")
        assert await receiver.receive_messages(9, 0) == []
        await receiver.complete_messages(received)


@both
async def test_a_non_waiting_receive_returns_no_more_than_the_requested_number(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        await queue.send(*"1234567")
        seen: list[str] = []
        for wanted in (1, 2, 4):
            received = await receiver.receive_messages(wanted, 0)
            assert len(received) == wanted
            assert await queue.locked() == len(seen) + wanted
            seen += bodies(received)
        assert sorted(seen) == list("1234567")


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_non_waiting_receive_registers_no_waiter(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        for _ in range(3):
            assert await receiver.receive_messages(9, 0) == []
        assert await queue.waiters() == 0
        assert not queue.transport._listening._channels


@both
async def test_a_non_waiting_receive_does_not_reuse_the_answer_of_an_earlier_call(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        assert await receiver.receive_messages(1, 0) == []
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            earlier = asyncio.create_task(receiver.receive_messages(1, 60))
            await gate.reached()
            gate.shut = False
            first = gate.waiting[0]
            held = list(gate.waiting)
            gate.waiting.clear()
            now = asyncio.create_task(receiver.receive_messages(1, 0))
            await asyncio.sleep(0)
            assert not now.done()
            for passing in held:
                passing.released.set_result(None)
            assert await now == []
            assert first in gate.arrived
            assert len(gate.arrived) > len(held)
        earlier.cancel()
        await asyncio.wait((earlier,))


@both
async def test_a_non_waiting_receive_does_not_end_the_wait_of_another_call(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(1, 60))
        await queue.wait_for_waiters(1)
        assert await receiver.receive_messages(5, 0) == []
        assert not waiting.done()
        await queue.send("1", at=-1)
        assert bodies(await waiting) == ["1"]


@both
async def test_a_non_waiting_receive_also_returns_prefetched_messages(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send(*"12345")
        async with queue.receiver(prefetch_count=2) as receiver:
            assert sorted(bodies(await receiver.receive_messages(9, 0))) == list("12345")
            assert await receiver.receive_messages(9, 0) == []


@in_memory
async def test_a_non_waiting_receive_raises_an_error_if_no_partition_answers(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.receiver() as receiver:
        with Gate(queue.client, "grant") as gate:
            gate.fates.extend("never arrives" for _ in range(3))
            with pytest.raises(ServiceBusError):
                await receiver.receive_messages(1, 0)
        await queue.send("1")
        assert bodies(await receiver.receive_messages(1, 0)) == ["1"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_non_waiting_accept_returns_each_free_session_and_then_none(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        assert await queue.client.accept_next_session("q", max_wait_time=0) is None
        assert await queue.is_unused()
        names = [*queue.sessions_in(0, 2), *queue.sessions_in(2)] if partitioned else ["a", "b", "c"]
        for name in names:
            await queue.send_to(name, "1")
        accepted: list[Any] = []
        while (receiver := await queue.client.accept_next_session("q", max_wait_time=0)) is not None:
            accepted.append(receiver)
            assert bodies([message async for message in receiver]) == ["1"]
        assert sorted(each.session.session_id for each in accepted) == sorted(names)
        for receiver in accepted:
            await receiver.close()
        assert await queue.is_unused()


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_receiver_of_the_next_session_may_have_a_wait_time_of_zero(url: str, partitioned: bool) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1", "2")
        async with queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=0) as receiver:
            assert bodies([message async for message in receiver]) == ["1", "2"]


# -- returning at the first message ------------------------------------------------------------------------------------


@both
async def test_messages_of_the_same_reply_are_returned_with_the_first_message(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        await queue.fill(5, at=0)
        share = 3 if partitioned else 5  # of the ten messages that are wanted, a partition gives at least three
        assert share <= len(await receiver.receive_messages(10, 20, gather=False)) <= 5
