"""Very many callers that begin something at once let the event loop run other work meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sbredis.client._turns import TurnShare
from tests.aio.queues import in_memory, queue_at
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


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


@in_memory
async def test_very_many_receivers_begin_in_many_turns(url: str) -> None:
    async with queue_at(url) as queue:
        receivers = [queue.receiver() for _ in range(500)]
        calls = [asyncio.ensure_future(receiver.receive_messages(1, 60)) for receiver in receivers]
        begun, most = 0, 0
        while begun < len(receivers):
            await asyncio.sleep(0)
            now = sum(receiver._inbox is not None for receiver in receivers)
            begun, most = now, max(most, now - begun)
        assert most <= 100
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
