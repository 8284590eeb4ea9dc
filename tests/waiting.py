"""Functions that wait for a condition, never for a length of time."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable

import anyio

__all__ = ["eventually", "eventually_in_steps", "given_time", "wait_until"]


def wait_until(condition: Callable[[], object], timeout: float = 60.0, what: str = "") -> None:
    """Return as soon as ``condition()`` is true; fail if it is not true within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout} s: {what or _source_of(condition)}")
        time.sleep(0.01)


async def eventually(
    condition: Callable[[], object] | Callable[[], Awaitable[object]], timeout: float = 60.0, what: str = ""
) -> None:
    """Do the same as ``wait_until`` in an event loop."""
    deadline = time.monotonic() + timeout
    while not await _value_of(condition):
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout} s: {what or _source_of(condition)}")
        await anyio.sleep(0.01)


async def eventually_in_steps(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
    progress: Callable[[], object] | Callable[[], Awaitable[object]],
    timeout: float = 120.0,
) -> None:
    """Return as soon as ``condition()`` is true; fail if ``progress()`` has been the same for ``timeout`` seconds.

    So the wait is as long as the work needs, on a busy machine too.
    """
    before, since = await _value_of(progress), time.monotonic()
    while not await _value_of(condition):
        if (now := await _value_of(progress)) != before:
            before, since = now, time.monotonic()
        elif time.monotonic() > since + timeout:
            raise AssertionError(f"nothing has happened for {timeout} s, and this is not true: {_source_of(condition)}")
        await anyio.sleep(0.05)


async def _value_of(function: Callable[[], object] | Callable[[], Awaitable[object]]) -> object:
    value = function()
    return await value if inspect.isawaitable(value) else value


async def given_time(attempt: Callable[[float], Awaitable[object]], match: str, seconds: float = 0.3) -> Exception:
    """Call an attempt with a number of seconds. Return its error if the text of the error matches.

    On a busy machine the time may be over before the attempt has reached the point that the test needs. Then the
    function repeats the attempt with more time.
    """
    while True:
        try:
            await attempt(seconds)
        except Exception as error:
            if re.search(match, str(error)):
                return error
            if seconds > 60:
                raise
        else:
            raise AssertionError(f"it did not fail within {seconds} s")
        seconds *= 3


def _source_of(condition: object) -> str:
    try:
        return inspect.getsource(condition).strip()  # type: ignore[arg-type]
    except TypeError:  # a functools.partial has no source
        return repr(condition)
