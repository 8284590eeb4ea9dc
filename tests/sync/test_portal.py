"""Calls from a thread into the event loop: their results, errors and interruptions, and the end of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.sync._portal import Portal
from tests.sync.interruptions import interrupted_when
from tests.waiting import wait_until


class Client:
    """An object that owns a portal."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class Wanted(BaseException):
    """An exception that a coroutine may raise and that is not a subclass of ``Exception``."""


@pytest.fixture
def owner() -> Client:
    return Client()


@pytest.fixture
def portal(owner: Client) -> Iterator[Portal]:
    portal = Portal("test", owner.close)
    yield portal
    portal.close()


async def echo(value: object) -> object:
    await asyncio.sleep(0)
    return value


async def for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def waiting(portal: Portal) -> int:
    """Return the number of calls whose callers still wait."""
    return 0 if portal._worker is None else len(portal._worker.calls)


def under_way(portal: Portal) -> bool:
    """Return whether the loop has begun a call. A call that is interrupted earlier never begins."""
    return portal._worker is not None and any(call.begun for call in list(portal._worker.calls))


def test_no_thread_is_started_before_it_is_needed(owner: Client) -> None:
    before = threading.active_count()
    portal = Portal("test", owner.close)
    assert threading.active_count() == before
    portal.close()
    with pytest.raises(ValueError, match="closed"):
        portal.call(echo, 1)
    assert (threading.active_count(), owner.closed) == (before, 0)


def test_the_portal_returns_results_and_errors(portal: Portal) -> None:
    async def fails(error: BaseException) -> None:
        raise error

    assert portal.call(echo, 1) == 1
    assert portal.run(threading.get_ident) != threading.get_ident()
    for error in (KeyError("x"), Wanted(), SystemExit(3), StopAsyncIteration()):
        with pytest.raises(type(error)) as caught:
            portal.call(fails, error)
        assert caught.value is error
    assert waiting(portal) == 0


def test_an_error_keeps_no_reference_to_the_call(portal: Portal) -> None:
    """Such a reference would keep the call and the contents of its frames alive until the next garbage collection."""

    class Held:
        pass

    async def fails(_: Held) -> None:
        raise KeyError

    held = Held()
    seen = weakref.ref(held)
    gc.disable()
    try:
        with pytest.raises(KeyError):
            portal.call(fails, held)
        del held
        portal.call(echo, 1)
        wait_until(lambda: seen() is None)
    finally:
        gc.enable()


def test_a_call_runs_in_the_context_of_its_caller(portal: Portal) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def read() -> str:
        await asyncio.sleep(0)
        return name.get()

    def within(value: str) -> str:
        name.set(value)
        return portal.call(read)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(within, "abcd")) == list("abcd")


def test_many_threads_start_only_one_loop(portal: Portal) -> None:
    together = threading.Barrier(8)

    def called(_: int) -> int:
        together.wait()
        return portal.run(threading.get_ident)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(called, range(8)))) == 1


def test_a_call_from_within_the_loop_is_refused_because_it_would_deadlock(portal: Portal) -> None:
    with pytest.raises(RuntimeError, match="would wait for itself"):
        portal.run(portal.call, echo, 1)


def test_an_interruption_cancels_the_call_and_waits_for_its_end(portal: Portal, interrupt: Callable[[], None]) -> None:
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("cancelled")

    portal.call(echo, 1)
    with interrupted_when(lambda: under_way(portal), interrupt), pytest.raises(KeyboardInterrupt):
        portal.call(slow_to_end)
    assert ended == ["cancelled"]
    assert waiting(portal) == 0
    assert portal.call(echo, 1) == 1


def test_a_result_that_arrives_with_the_interruption_is_not_lost(portal: Portal, interrupt: Callable[[], None]) -> None:
    unwanted: list[str] = []

    async def brings() -> str:
        interrupt()
        return "brought"

    with pytest.raises(KeyboardInterrupt):
        portal.call_undoable(unwanted.append, brings)
    assert unwanted == ["brought"]
    assert waiting(portal) == 0


def test_a_result_that_arrives_despite_the_cancellation_is_not_lost(
    portal: Portal, interrupt: Callable[[], None]
) -> None:
    unwanted: list[str] = []

    async def brings() -> str:
        try:
            await for_ever()
        except asyncio.CancelledError:
            return "brought"

    portal.call(echo, 1)
    with interrupted_when(lambda: under_way(portal), interrupt), pytest.raises(KeyboardInterrupt):
        portal.call_undoable(unwanted.append, brings)
    assert unwanted == ["brought"]


def test_a_second_interruption_ends_the_wait_for_the_cancelled_call(
    portal: Portal, interrupt: Callable[[], None]
) -> None:
    cancelled, go_on = threading.Event(), asyncio.Event()

    async def does_not_end() -> None:
        try:
            await for_ever()
        finally:
            cancelled.set()
            await go_on.wait()

    portal.call(echo, 1)
    with (
        interrupted_when(lambda: under_way(portal), interrupt),
        interrupted_when(cancelled.is_set, interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        portal.call(does_not_end)
    portal.run(go_on.set)
    wait_until(lambda: waiting(portal) == 0)


def test_closing_the_portal_ends_waiting_calls_with_an_error(portal: Portal, owner: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(portal.call, for_ever)
        wait_until(lambda: waiting(portal) > 0)
        portal.close()
        with pytest.raises(ServiceBusError, match="closed meanwhile") as raised:
            waits.result()
    assert raised.value.outcome is Outcome.UNKNOWN
    assert owner.closed == 1


def test_a_call_that_never_began_ends_when_the_loop_ends(portal: Portal) -> None:
    portal.call(echo, 1)
    worker = portal._worker
    assert worker is not None
    worker.stop()
    worker.join()
    with pytest.raises(ValueError, match="closed"):
        portal.call(echo, 1)
    assert waiting(portal) == 0


@pytest.mark.slow
def test_calls_during_closing_end_with_a_result_or_an_error(owner: Client) -> None:
    for _ in range(20):
        portal = Portal("test", owner.close)
        portal.call(echo, 1)

        def call_until_closed(portal: Portal = portal) -> None:
            while True:
                portal.call(echo, 1)

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(call_until_closed) for _ in range(4)]
            wait_until(lambda: waiting(portal) > 0)  # noqa: B023
            portal.close()
            for call in calls:
                assert isinstance(call.exception(60), ValueError | ServiceBusError)


def test_closing_twice_and_from_several_threads_closes_once(portal: Portal, owner: Client) -> None:
    portal.call(echo, 1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: portal.close(), range(4)))
    portal.close()
    assert owner.closed == 1
    assert portal.closed


def test_an_interrupted_close_still_ends_the_thread(interrupt: Callable[[], None]) -> None:
    portal = Portal("test", for_ever)
    portal.call(echo, 1)
    with interrupted_when(lambda: under_way(portal), interrupt), pytest.raises(KeyboardInterrupt):
        portal.close()
    worker = portal._worker
    assert worker is not None
    assert not worker.is_alive()


def test_a_forgotten_client_is_closed_automatically(owner: Client) -> None:
    portal = Portal("test", owner.close)
    portal.call(echo, 1)
    worker = portal._worker
    assert worker is not None
    with pytest.warns(ResourceWarning, match="not closed: test"):
        del portal
    worker.join(60)
    assert owner.closed == 1
