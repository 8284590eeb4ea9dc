"""The throttle of concurrent sends: it never exceeds its limits, admits sends in order, and loses no room."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import Throttle
from sbredis.exceptions import OperationTimeoutError, Outcome
from tests.transport.hand import in_seconds, turns

MESSAGES, BYTES = 5, 100


async def taking(throttle: Throttle, messages: int, size: int, seconds: float = 60) -> asyncio.Task[None]:
    """Start a task that takes a share or waits for it."""
    task = asyncio.create_task(throttle.take(messages, size, in_seconds(seconds)))
    await turns()
    return task


async def test_a_share_is_taken_without_waiting_when_there_is_room() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(3, 60)
    assert throttle.try_take(2, 40)
    assert not throttle.try_take(1, 0)
    assert throttle.messages == 5


async def test_a_share_above_the_limits_is_admitted_alone() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(1, 1)
    waiting = await taking(throttle, MESSAGES + 1, BYTES + 1)
    assert not waiting.done()
    throttle.release(1, 1)
    await waiting
    assert not throttle.try_take(1, 0)


async def test_a_small_share_does_not_overtake_a_waiting_one() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(4, 0)
    large = await taking(throttle, 3, 0)
    small = await taking(throttle, 1, 0)
    assert not throttle.try_take(1, 0)
    assert not large.done()
    assert not small.done()
    throttle.release(4, 0)
    await asyncio.gather(large, small)
    assert throttle.messages == 4


async def test_a_share_that_waits_too_long_times_out_as_never_sent() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(MESSAGES, BYTES)
    with pytest.raises(OperationTimeoutError, match="5 messages of 100 bytes were under way") as caught:
        await throttle.take(1, 0, in_seconds(0.01))
    assert (caught.value.outcome, caught.value.is_transient) == (Outcome.NEVER_SENT, True)
    throttle.release(MESSAGES, BYTES)
    assert throttle.try_take(MESSAGES, BYTES)


async def test_a_cancelled_waiter_passes_its_place_to_the_next_one() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(3, 0)
    large, small = await taking(throttle, 4, 0), await taking(throttle, 2, 0)
    large.cancel()
    await small
    with pytest.raises(asyncio.CancelledError):
        await large
    assert throttle.messages == 5


async def test_a_waiter_that_is_cancelled_while_it_is_admitted_returns_its_share() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    assert throttle.try_take(5, 0)
    waiting = await taking(throttle, 2, 0)
    throttle.release(5, 0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert throttle.messages == 0


async def test_drained_returns_when_every_share_has_been_released() -> None:
    throttle = Throttle(MESSAGES, BYTES)
    await throttle.drained()
    assert throttle.try_take(1, 0)
    assert throttle.try_take(1, 0)
    both = [asyncio.create_task(throttle.drained()) for _ in range(2)]
    await turns()
    both[0].cancel()
    throttle.release(1, 0)
    await turns()
    assert not both[1].done()
    throttle.release(1, 0)
    await both[1]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None, "5"])
async def test_limits_must_be_whole_numbers_of_at_least_one(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_in_flight must be a whole number"):
        Throttle(wrong, 1)
    with pytest.raises(ValueError, match="max_in_flight_bytes must be a whole number"):
        Throttle(1, wrong)


async def take_and_release(
    throttle: Throttle, number: int, share: tuple[int, int], chance: random.Random, held: dict[int, tuple[int, int]]
) -> None:
    """Take a share, keep it for a while and release it. A cancellation may come at any moment."""
    if not throttle.try_take(*share):
        await throttle.take(*share, in_seconds(60))
    held[number] = share
    try:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
    finally:
        del held[number]
        throttle.release(*share)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.integers(1, MESSAGES + 2), st.integers(0, BYTES + 20)), min_size=1, max_size=30),
    st.integers(0, 1 << 32),
)
def test_the_limits_of_the_throttle_are_never_exceeded(shares: list[tuple[int, int]], seed: int) -> None:
    """Tasks take, wait for and release shares, and are cancelled, in any order. At the end no share is in use."""

    async def act() -> None:
        chance = random.Random(seed)
        throttle = Throttle(MESSAGES, BYTES)
        held: dict[int, tuple[int, int]] = {}
        tasks: list[asyncio.Task[None]] = []

        def check_limits() -> None:
            messages, size = (sum(column) for column in zip((0, 0), *held.values(), strict=True))
            assert throttle.messages >= messages
            assert len(held) <= 1 or (messages <= MESSAGES and size <= BYTES)

        for number, share in enumerate(shares):
            tasks.append(asyncio.create_task(take_and_release(throttle, number, share, chance, held)))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            check_limits()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            check_limits()
            if chance.random() < 0.1:
                chance.choice(tasks).cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in ended} <= {type(None), asyncio.CancelledError}
        assert throttle.messages == 0
        assert throttle.try_take(MESSAGES, BYTES)

    asyncio.run(act())


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, MESSAGES), st.integers(0, BYTES)), min_size=2, max_size=20))
def test_shares_are_granted_in_the_order_of_the_requests(shares: list[tuple[int, int]]) -> None:
    async def act() -> None:
        throttle = Throttle(MESSAGES, BYTES)
        assert throttle.try_take(MESSAGES, BYTES)
        order: list[int] = []

        async def one(number: int, share: tuple[int, int]) -> None:
            await throttle.take(*share, in_seconds(60))
            order.append(number)
            throttle.release(*share)

        tasks = [asyncio.create_task(one(number, share)) for number, share in enumerate(shares)]
        await turns()
        throttle.release(MESSAGES, BYTES)
        await asyncio.gather(*tasks)
        assert order == list(range(len(shares)))

    asyncio.run(act())
