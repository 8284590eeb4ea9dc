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
from sbredis.sync._bridge import Bridge
from tests.sync.interruptions import interrupted_when
from tests.waiting import wait_until


class Client:
    """An object that owns a bridge."""

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
def bridge(owner: Client) -> Iterator[Bridge]:
    bridge = Bridge("test", owner.close)
    yield bridge
    bridge.close()


async def echo(value: object) -> object:
    await asyncio.sleep(0)
    return value


async def for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def waiting(bridge: Bridge) -> int:
    """Return the number of calls whose callers still wait."""
    return 0 if bridge._thread is None else len(bridge._thread.calls)


def under_way(bridge: Bridge) -> bool:
    """Return whether the loop has begun a call. A call that is interrupted earlier never begins."""
    return bridge._thread is not None and any(call.begun for call in list(bridge._thread.calls))


def test_no_thread_is_started_before_it_is_needed(owner: Client) -> None:
    before = threading.active_count()
    bridge = Bridge("test", owner.close)
    assert threading.active_count() == before
    bridge.close()
    with pytest.raises(ValueError, match="closed"):
        bridge.call(echo, 1)
    assert (threading.active_count(), owner.closed) == (before, 0)


def test_the_portal_returns_results_and_errors(bridge: Bridge) -> None:
    async def fails(error: BaseException) -> None:
        raise error

    assert bridge.call(echo, 1) == 1
    assert bridge.run(threading.get_ident) != threading.get_ident()
    for error in (KeyError("x"), Wanted(), SystemExit(3), StopAsyncIteration()):
        with pytest.raises(type(error)) as caught:
            bridge.call(fails, error)
        assert caught.value is error
    assert waiting(bridge) == 0


def test_an_error_keeps_no_reference_to_the_call(bridge: Bridge) -> None:
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
            bridge.call(fails, held)
        del held
        bridge.call(echo, 1)
        wait_until(lambda: seen() is None)
    finally:
        gc.enable()


def test_a_call_runs_in_the_context_of_its_caller(bridge: Bridge) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def read() -> str:
        await asyncio.sleep(0)
        return name.get()

    def within(value: str) -> str:
        name.set(value)
        return bridge.call(read)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(within, "abcd")) == list("abcd")


def test_many_threads_start_only_one_loop(bridge: Bridge) -> None:
    together = threading.Barrier(8)

    def called(_: int) -> int:
        together.wait()
        return bridge.run(threading.get_ident)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(called, range(8)))) == 1


def test_a_call_from_within_the_loop_is_refused_because_it_would_deadlock(bridge: Bridge) -> None:
    with pytest.raises(RuntimeError, match="would wait for itself"):
        bridge.run(bridge.call, echo, 1)


def test_an_interruption_cancels_the_call_and_waits_for_its_end(bridge: Bridge, interrupt: Callable[[], None]) -> None:
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("cancelled")

    bridge.call(echo, 1)
    with interrupted_when(lambda: under_way(bridge), interrupt), pytest.raises(KeyboardInterrupt):
        bridge.call(slow_to_end)
    assert ended == ["cancelled"]
    assert waiting(bridge) == 0
    assert bridge.call(echo, 1) == 1


def test_a_result_that_arrives_with_the_interruption_is_not_lost(bridge: Bridge, interrupt: Callable[[], None]) -> None:
    unwanted: list[str] = []

    async def brings() -> str:
        interrupt()
        return "brought"

    with pytest.raises(KeyboardInterrupt):
        bridge.call_undoable(unwanted.append, brings)
    assert unwanted == ["brought"]
    assert waiting(bridge) == 0


def test_a_result_that_arrives_despite_the_cancellation_is_not_lost(
    bridge: Bridge, interrupt: Callable[[], None]
) -> None:
    unwanted: list[str] = []

    async def brings() -> str:
        try:
            await for_ever()
        except asyncio.CancelledError:
            return "brought"

    bridge.call(echo, 1)
    with interrupted_when(lambda: under_way(bridge), interrupt), pytest.raises(KeyboardInterrupt):
        bridge.call_undoable(unwanted.append, brings)
    assert unwanted == ["brought"]


def test_a_second_interruption_ends_the_wait_for_the_cancelled_call(
    bridge: Bridge, interrupt: Callable[[], None]
) -> None:
    cancelled, go_on = threading.Event(), asyncio.Event()

    async def does_not_end() -> None:
        try:
            await for_ever()
        finally:
            cancelled.set()
            await go_on.wait()

    bridge.call(echo, 1)
    with (
        interrupted_when(lambda: under_way(bridge), interrupt),
        interrupted_when(cancelled.is_set, interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        bridge.call(does_not_end)
    bridge.run(go_on.set)
    wait_until(lambda: waiting(bridge) == 0)


def test_closing_the_portal_ends_waiting_calls_with_an_error(bridge: Bridge, owner: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(bridge.call, for_ever)
        wait_until(lambda: waiting(bridge) > 0)
        bridge.close()
        with pytest.raises(ServiceBusError, match="closed meanwhile") as raised:
            waits.result()
    assert raised.value.outcome is Outcome.UNKNOWN
    assert owner.closed == 1


def test_a_call_that_never_began_ends_when_the_loop_ends(bridge: Bridge) -> None:
    bridge.call(echo, 1)
    thread = bridge._thread
    assert thread is not None
    thread.stop()
    thread.join()
    with pytest.raises(ValueError, match="closed"):
        bridge.call(echo, 1)
    assert waiting(bridge) == 0


@pytest.mark.slow
def test_calls_during_closing_end_with_a_result_or_an_error(owner: Client) -> None:
    for _ in range(20):
        bridge = Bridge("test", owner.close)
        bridge.call(echo, 1)

        def call_until_closed(bridge: Bridge = bridge) -> None:
            while True:
                bridge.call(echo, 1)

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(call_until_closed) for _ in range(4)]
            wait_until(lambda: waiting(bridge) > 0)  # noqa: B023
            bridge.close()
            for call in calls:
                assert isinstance(call.exception(60), ValueError | ServiceBusError)


def test_closing_twice_and_from_several_threads_closes_once(bridge: Bridge, owner: Client) -> None:
    bridge.call(echo, 1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: bridge.close(), range(4)))
    bridge.close()
    assert owner.closed == 1
    assert bridge.closed


def test_an_interrupted_close_still_ends_the_thread(interrupt: Callable[[], None]) -> None:
    bridge = Bridge("test", for_ever)
    bridge.call(echo, 1)
    with interrupted_when(lambda: under_way(bridge), interrupt), pytest.raises(KeyboardInterrupt):
        bridge.close()
    thread = bridge._thread
    assert thread is not None
    assert not thread.is_alive()


def test_a_forgotten_client_is_closed_automatically(owner: Client) -> None:
    bridge = Bridge("test", owner.close)
    bridge.call(echo, 1)
    thread = bridge._thread
    assert thread is not None
    with pytest.warns(ResourceWarning, match="not closed: test"):
        del bridge
    thread.join(60)
    assert owner.closed == 1
