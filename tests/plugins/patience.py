"""A pytest plugin that fails a test that takes too long, and shows where all threads are.

Setup, test and teardown may each take the seconds of ``test_timeout`` in pyproject.toml. The plugin interrupts the main
thread with a signal, so the run goes on with the next test. pytest's ``faulthandler_timeout`` is longer. It ends the
whole process, and is for tests that even a signal cannot interrupt.

``addopts`` in pyproject.toml loads the plugin.
"""

from __future__ import annotations

import faulthandler
import signal
import tempfile
import threading
from collections.abc import Generator
from types import FrameType
from typing import NoReturn

import pytest


def stacks() -> str:
    """Return the stacks of all threads, the latest call first."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


class Patience:
    """Limits the time of each setup, test and teardown."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def _stop(self, _number: int, _frame: FrameType | None) -> NoReturn:
        pytest.fail(f"took longer than {self._seconds:g} s. The threads are at:\n{stacks()}", pytrace=False)

    def _limited(self) -> Generator[None, object, object]:
        before = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._limited())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._limited())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._limited())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of this plugin; pytest calls this before it reads the command line."""
    parser.addini("test_timeout", "the seconds that a setup, a test or a teardown may take", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Start to limit tests, if there is a limit; pytest calls this when it starts."""
    seconds = float(config.getini("test_timeout"))
    if seconds and hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread():
        config.pluginmanager.register(Patience(seconds), "sbredis-patience")
