"""One attempt that several waiting callers share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbredis.client._connection import SharedAttempt
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)
from tests.waiting import eventually


class Attempts:
    """Attempts whose results the test determines."""

    def __init__(self) -> None:
        self.under_way: list[asyncio.Future[int]] = []
        self.over = 0
        self.shared = SharedAttempt[int]("test", "too late", Outcome.UNKNOWN, when_over=self._count)

    def _count(self) -> None:
        self.over += 1

    async def begin(self) -> int:
        self.under_way.append(asyncio.get_running_loop().create_future())
        return await self.under_way[-1]

    def join(self, seconds: float = 60) -> asyncio.Task[int]:
        until = asyncio.get_running_loop().time() + seconds
        return asyncio.create_task(self.shared.join(self.begin, until))

    async def begun(self, count: int) -> None:
        await eventually(lambda: len(self.under_way) == count)


def missing() -> ServiceBusError:
    return MessagingEntityNotFoundError("it is not there", outcome=Outcome.REFUSED)


def lost() -> ServiceBusError:
    return ServiceBusConnectionError("the connection was lost", outcome=Outcome.UNKNOWN)


async def ends(caller: Awaitable[int]) -> Any:
    """Return the result of a caller, or its error."""
    try:
        return await caller
    except ServiceBusError as error:
        return error


async def test_concurrent_callers_share_one_attempt() -> None:
    attempts = Attempts()
    callers = [attempts.join() for _ in range(3)]
    await attempts.begun(1)
    attempts.under_way[0].set_result(7)
    assert [await caller for caller in callers] == [7, 7, 7]
    assert (len(attempts.under_way), attempts.over, attempts.shared.under_way) == (1, 1, False)


@pytest.mark.parametrize("error", [missing, lost])
async def test_a_caller_does_not_get_the_error_of_an_attempt_that_began_before_the_call(
    error: Callable[[], ServiceBusError],
) -> None:
    """By then a missing entity may exist. So one more attempt is made for all later callers."""
    attempts = Attempts()
    first = attempts.join()
    await attempts.begun(1)
    later = [attempts.join() for _ in range(3)]
    await asyncio.sleep(0)
    attempts.under_way[0].set_exception(error())
    assert type(await ends(first)) is type(error())
    await attempts.begun(2)
    attempts.under_way[1].set_result(7)
    assert [await caller for caller in later] == [7, 7, 7]
    assert attempts.over == 2


async def test_each_caller_gets_its_own_copy_of_a_shared_error() -> None:
    attempts = Attempts()
    first = attempts.join()
    await attempts.begun(1)
    later = [attempts.join() for _ in range(2)]
    await asyncio.sleep(0)
    attempts.under_way[0].set_exception(missing())
    await attempts.begun(2)
    attempts.under_way[1].set_exception(missing())
    errors = [await ends(caller) for caller in (first, *later)]
    assert [type(error) for error in errors] == [MessagingEntityNotFoundError] * 3
    assert len({id(error) for error in errors}) == 3
    assert len(attempts.under_way) == 2


async def test_a_cancelled_caller_does_not_end_the_attempt_for_other_callers() -> None:
    attempts = Attempts()
    first = attempts.join()
    await attempts.begun(1)
    second = attempts.join()
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    assert first.cancelled()
    attempts.under_way[0].set_result(7)
    assert await second == 7


async def test_a_failed_attempt_without_callers_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    attempts = Attempts()
    caller = attempts.join()
    await attempts.begun(1)
    caller.cancel()
    await asyncio.wait((caller,))
    attempts.under_way[0].set_exception(lost())
    await eventually(lambda: attempts.over == 1)
    assert "never retrieved" not in caplog.text


async def test_a_caller_with_a_short_timeout_does_not_wait_for_the_attempt() -> None:
    attempts = Attempts()
    patient = attempts.join()
    await attempts.begun(1)
    error = await ends(attempts.join(0.001))
    assert isinstance(error, OperationTimeoutError)
    assert (str(error).startswith("too late"), error.outcome) == (True, Outcome.UNKNOWN)
    attempts.under_way[0].set_result(7)
    assert await patient == 7
