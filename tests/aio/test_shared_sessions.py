"""Sessions that share a consumer: a session without messages is let go of when others wait."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusSessionReceiver
from sbredis.aio.shared_sessions import (
    accept_sessions,
    asking,
    has_messages,
    is_empty,
    is_released,
    kept_messages,
    others_wait_elsewhere,
    receive_or_release,
)
from sbredis.exceptions import ServiceBusCommunicationError
from sbredis.model import NEXT_AVAILABLE_SESSION, taking_of
from tests.aio.gates import Gate
from tests.aio.queues import Calls, queue_with
from tests.aio.session_queues import SessionQueue, session_of, session_queue_at
from tests.waiting import eventually

pytestmark = queue_with(sessions=True)

FIRST = 10


async def accepted(queue: SessionQueue, count: int = 1) -> list[ServiceBusSessionReceiver]:
    """Accept this number of sessions, which are free."""
    found = await accept_sessions(queue.session(NEXT_AVAILABLE_SESSION), count, FIRST, 60)
    assert len(found) == count
    return found


async def complete_last(receiver: ServiceBusSessionReceiver, *, others: bool = False) -> None:
    """Complete the only message of a session."""
    [message] = await receiver.receive_messages(1, 0, gather=False)
    with asking(receiver, FIRST, FIRST, others=others):
        await receiver.complete_messages([message])


async def test_sessions_that_are_accepted_together_have_receivers_of_the_same_kind(queue: SessionQueue) -> None:
    for session in "ab":
        await queue.send_to(session, "1", "2")
    waiter = queue.session(NEXT_AVAILABLE_SESSION, max_wait_time=7)
    taking = taking_of(waiter)
    taking.hands, taking.suspects = 1, False
    one, other = await accept_sessions(waiter, 2, FIRST, 60)
    assert one is waiter
    assert {session_of(each).session_id for each in (one, other)} == {"a", "b"}
    for each in (one, other):
        assert (taking_of(each).hands, taking_of(each).suspects, taking_of(each).yields) == (1, False, True)
        assert [str(message) for message in kept_messages(each, FIRST)] == ["1", "2"]
        assert not has_messages(each)
        assert kept_messages(each, FIRST) == []
        assert each in queue.client._children
        await each.close()
        assert each not in queue.client._children
    assert await queue.counts_are(4, 0)


async def test_a_settlement_releases_the_session_and_brings_the_next_one(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    await queue.send_to("b", "2")
    with Calls(queue.transport) as calls:
        [one] = await accepted(queue)
        await complete_last(one)
        assert is_released(one)
        [other] = await accepted(queue)
    assert calls.by_script == {"grant": 1, "complete": 1}
    assert (session_of(other).session_id, has_messages(other)) == ("b", True)
    assert await queue.locked_sessions() == 1
    await complete_last(other)
    assert not is_released(other)  # nobody waits
    assert is_empty(other)
    await other.close()
    assert await queue.is_unused()


async def test_a_settlement_that_finds_more_messages_brings_them(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    await queue.send_to("b", "2")
    [receiver] = await accepted(queue)
    await queue.send_to("a", "3")
    await complete_last(receiver)
    assert not is_released(receiver)
    assert has_messages(receiver)
    with Calls(queue.transport) as calls:
        await complete_last(receiver)
    assert calls.by_script == {"complete": 1}
    assert is_released(receiver)


async def test_a_session_that_nobody_asks_for_after_a_settlement_is_released(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    await queue.send_to("b", "2")
    [receiver] = await accepted(queue)
    await complete_last(receiver)
    await eventually(queue.is_unused)


async def test_an_idle_session_is_let_go_of_when_others_wait(queue: SessionQueue) -> None:
    """The partition tells its holder, whose waiting call ends."""
    await queue.send_to("a", "1")
    [receiver] = await accepted(queue)
    await complete_last(receiver)
    waiting = asyncio.create_task(receiver.receive_messages(FIRST, 60, gather=False))
    await queue.wait_for_waiters()
    await queue.send_to("b", "2")
    assert await waiting == []
    assert is_released(receiver)
    [other] = await accepted(queue)
    assert session_of(other).session_id == "b"


async def test_an_idle_session_with_new_messages_is_kept(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    [receiver] = await accepted(queue)
    await complete_last(receiver)
    waiting = asyncio.create_task(receiver.receive_messages(FIRST, 60, gather=False))
    await queue.wait_for_waiters()
    await queue.send_to("a", "2")
    assert [str(message) for message in await waiting] == ["2"]
    await queue.send_to("b", "3")
    assert not is_released(receiver)


async def test_an_idle_session_of_a_plain_receiver_is_kept(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    async with queue.session("a") as receiver:
        await receiver.complete_message((await receiver.receive_messages(1, 60))[0])
        waiting = asyncio.create_task(receiver.receive_messages(FIRST, 60, gather=False))
        await queue.wait_for_waiters()
        await queue.send_to("b", "2")
        async with queue.session("b"):
            pass
        await queue.send_to("a", "3")
        assert [str(message) for message in await waiting] == ["3"]


async def test_one_of_two_clients_lets_go_for_a_session_that_waits(url: str) -> None:
    async with session_queue_at(url) as queue, queue.other_client() as client:
        await queue.send_to("a", "1")
        await queue.send_to("b", "2")
        waiter = client.get_queue_receiver(queue.entity.name, session_id=NEXT_AVAILABLE_SESSION)
        held = [*await accepted(queue), *await accept_sessions(waiter, 1, FIRST, 60)]
        for one in held:
            await complete_last(one)
        waiting = [asyncio.create_task(one.receive_messages(FIRST, 60, gather=False)) for one in held]
        await queue.wait_for_waiters(2)
        await queue.send_to("c", "3")
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [[]]
        [other] = await accepted(queue)
        assert session_of(other).session_id == "c"
        for one in held:
            await one.close()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_session_is_let_go_of_for_those_in_other_partitions(url: str) -> None:
    """Its own partition has no sessions that wait."""
    async with session_queue_at(url, partitioned=True, partitions=2) as queue:
        [near], far = queue.sessions_in(0), queue.sessions_in(1, 2)
        await queue.send_to(near, "1")
        [receiver] = await accepted(queue)
        assert not others_wait_elsewhere(receiver, FIRST)
        for name in far:
            await queue.send_to(name, "2")
        [other] = await accepted(queue)
        assert others_wait_elsewhere(receiver, FIRST)
        assert not others_wait_elsewhere(other, FIRST)
        await complete_last(receiver)
        assert not is_released(receiver)
        assert await receive_or_release(receiver, FIRST, others=True) is None
        assert is_released(receiver)


async def test_a_session_whose_messages_come_is_not_released(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    await queue.send_to("b", "2")
    [receiver] = await accepted(queue)
    await receiver.complete_messages(await receiver.receive_messages(1, 0))
    await queue.send_to("a", "3")
    found = await receive_or_release(receiver, FIRST, others=True)
    assert found is not None
    assert [str(message) for message in found] == ["3"]
    await receiver.complete_messages(found)
    assert await receive_or_release(receiver, FIRST, others=False) is None
    assert await queue.locked_sessions() == 0


async def test_a_released_session_is_not_lost_although_the_answer_is(queue: SessionQueue) -> None:
    """The call has released the session, and the next one learns only that the session is not held."""
    await queue.send_to("a", "1")
    await queue.send_to("b", "2")
    [receiver] = await accepted(queue)
    with Gate(queue.client, "complete") as gate:
        gate.fates.append("is not answered")
        with pytest.raises(ServiceBusCommunicationError):
            await complete_last(receiver)
    assert not is_released(receiver)  # nobody knows
    assert await receive_or_release(receiver, FIRST, others=False) is None
    assert is_released(receiver)
    await receiver.close()
    await eventually(queue.is_unused)


async def test_a_receiver_may_be_closed_while_a_settlement_asks_for_more(queue: SessionQueue) -> None:
    await queue.send_to("a", "1")
    [receiver] = await accepted(queue)
    assert len(await receiver.receive_messages(1, 0, gather=False)) == 1
    with asking(receiver, FIRST, FIRST, others=False):
        await receiver.close()
    with asking(receiver, FIRST, FIRST, others=False):
        assert is_empty(receiver)
    await eventually(queue.is_unused)
