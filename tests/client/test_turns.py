"""Very many callers that begin something at once let the event loop run other work meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.client._turns import LaterTurns, TurnShare
from sbredis.exceptions import ServiceBusError
from sbredis.model import taking_of
from tests.aio.queues import Queue, at_rest, bodies, in_memory
from tests.waiting import eventually


class Turns:
    """Counts what is done in each turn of the event loop."""

    def __init__(self) -> None:
        self.done = [0]
        self._goes_on = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if self._goes_on:
            self.done.append(0)
            asyncio.get_running_loop().call_soon(self._turn)

    def note(self) -> None:
        self.done[-1] += 1

    def end(self) -> int:
        """Return the largest number of things that were done in a turn."""
        self._goes_on = False
        return max(self.done)


async def test_callers_go_on_in_their_order_and_only_some_in_each_turn() -> None:
    share, turns, order = TurnShare(3), Turns(), list[int]()

    async def begin(number: int) -> None:
        await share.take()
        turns.note()
        order.append(number)

    await asyncio.gather(*map(begin, range(20)))
    assert order == [*range(20)]
    assert turns.end() <= 2 * 3  # the share of a turn, and those that were woken in the last one


async def test_a_caller_who_goes_away_takes_no_place() -> None:
    share = TurnShare(1)
    tasks = [asyncio.ensure_future(share.take()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks[1:4]:
        task.cancel()
    await asyncio.wait_for(tasks[4], 60)
    assert [task.cancelled() for task in tasks] == [False, True, True, True, False]


async def test_a_single_caller_does_not_wait() -> None:
    share = TurnShare(1)
    taking = share.take()
    with pytest.raises(StopIteration):
        taking.send(None)
    await share.take()


async def test_work_is_done_in_its_order_after_the_callers_that_were_told_before_it() -> None:
    share, turns, order = TurnShare(3), Turns(), list[int]()
    loop = asyncio.get_running_loop()

    def work(number: int) -> None:
        turns.note()
        order.append(100 + number)

    for number in range(20):
        loop.call_soon(order.append, number)  # a caller that is told something
        share.soon(partial(work, number))
    await share.take()
    await eventually(lambda: len(order) == 40)
    assert [number for number in order if number >= 100] == [*range(100, 120)]
    assert all(order.index(number) < order.index(100 + number) for number in range(20))
    assert turns.end() <= 3


async def test_a_turn_has_only_some_places_for_work_that_is_done_at_once() -> None:
    share, order = TurnShare(2), list[int]()
    assert [share.takes() for _ in range(4)] == [True, True, False, False]
    share.soon(partial(order.append, 1))
    await eventually(lambda: order == [1])
    assert share.takes()


async def test_it_is_crowded_while_very_many_wait() -> None:
    share, done = TurnShare(1), list[int]()

    def crowded() -> bool:
        return share.crowded

    assert not crowded()
    for number in range(100):
        share.soon(partial(done.append, number))
    assert crowded()
    await eventually(lambda: len(done) == 100)
    assert not crowded()


async def test_later_work_is_done_once_in_the_order_of_its_times() -> None:
    later, order, turns = LaterTurns(TurnShare(3)), list[int](), Turns()
    now = asyncio.get_running_loop().time()

    def work(number: int) -> None:
        turns.note()
        order.append(number)

    works = [partial(work, number) for number in range(20)]
    for each in works:
        later.at(now + 0.01, each)
    later.at(now + 0.02, works[0])  # a new time, and not a second one
    await eventually(lambda: len(order) == 20)
    assert asyncio.get_running_loop().time() >= now + 0.02
    assert order == [*range(1, 20), 0]
    assert turns.end() <= 2 * 3
    later.at(0.0, works[1])
    await eventually(lambda: order[20:] == [1])


@in_memory
async def test_a_receiver_ends_although_its_closing_was_cancelled_in_a_crowd(queue: Queue) -> None:
    receiver = queue.receiver()
    assert await receiver.receive_messages(1, 0.01) == []
    turns = queue.client._connection.turns
    for _ in range(500):
        turns.soon(lambda: None)
    closing = asyncio.ensure_future(receiver.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait((closing,))
    assert closing.cancelled()
    assert turns.crowded
    await eventually(lambda: receiver not in queue.client._children)
    await receiver.close()


async def most_in_a_turn(receivers: Sequence[ServiceBusReceiver], done: Callable[[ServiceBusReceiver], bool]) -> int:
    """Wait until all receivers have done something. Return how many of them did it in one turn, at the most."""
    before = most = 0
    while before < len(receivers):
        await asyncio.sleep(0)
        now = sum(map(done, receivers))
        before, most = now, max(most, now - before)
    return most


@in_memory
async def test_very_many_receivers_close_in_many_turns(queue: Queue) -> None:
    receivers = [queue.receiver() for _ in range(500)]
    assert await asyncio.gather(*(receiver.receive_messages(1, 0.01) for receiver in receivers)) == [[]] * 500
    closing = [asyncio.ensure_future(receiver.close()) for receiver in receivers]
    assert await most_in_a_turn(receivers, lambda receiver: receiver not in queue.client._children) <= 100
    await asyncio.gather(*closing)


@in_memory
@pytest.mark.parametrize("again", [False, True], ids=["for the first time", "again"])
async def test_very_many_receivers_ask_in_many_turns(queue: Queue, again: bool) -> None:
    def asks(receiver: ServiceBusReceiver) -> bool:
        inbox = receiver._inbox
        return inbox is not None and (not again or inbox.callers.demand > 0)

    receivers = [queue.receiver() for _ in range(500)]
    if again:
        assert await asyncio.gather(*(receiver.receive_messages(1, 0.01) for receiver in receivers)) == [[]] * 500
    calls = [asyncio.ensure_future(receiver.receive_messages(1, 60)) for receiver in receivers]
    assert await most_in_a_turn(receivers, asks) <= 100
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


@in_memory
@pytest.mark.parametrize("end", ["closed", "ended", "let go", "cancelled"])
async def test_a_call_that_waits_for_its_turn_ends_like_one_that_waits_for_messages(queue: Queue, end: str) -> None:
    receiver = queue.receiver()
    assert await receiver.receive_messages(1, 0.01) == []
    inbox = receiver._inbox
    assert inbox is not None
    turns = queue.client._connection.turns
    for _ in range(500):
        turns.soon(lambda: None)
    call = asyncio.ensure_future(receiver.receive_messages(1, 900))
    await asyncio.sleep(0)
    assert (inbox.callers.demand, turns.crowded) == (0, True)
    closing: asyncio.Future[None] | None = None
    if end == "closed":
        closing = asyncio.ensure_future(receiver.close())
    elif end == "ended":
        taking_of(receiver).end_waits()
    elif end == "let go":
        await inbox.let_go()
        assert call.done()
    else:
        call.cancel()
    _, waiting = await asyncio.wait((call,), timeout=60)
    assert not waiting
    if closing is not None:
        await closing
        assert "The receiver was closed" in str(call.exception())
    else:
        assert call.cancelled() if end == "cancelled" else call.result() == []
    assert not inbox.callers


@in_memory
@pytest.mark.parametrize("before", [50, 5000])
async def test_a_call_asks_once_even_if_its_time_ends_before_its_turn(queue: Queue, before: int) -> None:
    receiver = queue.receiver()
    assert await receiver.receive_messages(1, 0.01) == []
    await at_rest(receiver)
    await queue.send("a")
    turns = queue.client._connection.turns
    for _ in range(before):
        turns.soon(lambda: None)
    assert bodies(await receiver.receive_messages(1, 1e-6)) == ["a"]
    for _ in range(before):
        turns.soon(lambda: None)
    assert await receiver.receive_messages(1, 1e-6) == []


@in_memory
async def test_a_waiting_call_ends_before_the_closing_of_its_receiver_gets_its_turn(queue: Queue) -> None:
    """It must get no message any more, because the receiver does not settle it."""
    receiver = queue.receiver()
    call = asyncio.ensure_future(receiver.receive_messages(1, 900))
    await queue.wait_for_waiters()
    turns = queue.client._connection.turns
    for _ in range(5000):
        turns.soon(lambda: None)
    closing = asyncio.ensure_future(receiver.close())
    with pytest.raises(ServiceBusError, match="The receiver was closed"):
        await call
    assert turns.crowded
    assert not closing.done()
    await queue.send("a")
    await closing
    assert await queue.counts_are(1, 0)
