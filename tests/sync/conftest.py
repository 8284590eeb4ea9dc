"""The fixtures that the tests of the synchronous API share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from sbredis import ServiceBusClient
from sbredis.sync import _bridge
from tests.loops import OneThreadLoop
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def loop_of_asyncio(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the bridge of an in-memory test on a loop that refuses other threads; run all others on uvloop if it is
    installed.
    """
    if "target" in request.fixturenames and request.getfixturevalue("target") != "memory":
        return
    monkeypatch.setattr(_bridge, "fast_loop", OneThreadLoop)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that a test ends all threads that it has started."""
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.fixture
def client(url: str) -> Iterator[ServiceBusClient]:
    """A client of an empty namespace."""
    with ServiceBusClient(url) as client:
        yield client


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Return a function that interrupts the main thread, as Ctrl-C does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ident = threading.main_thread().ident
    assert ident is not None
    yield lambda: signal.pthread_kill(ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)
