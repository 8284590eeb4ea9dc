"""Stop a worker by a signal: the first lets it finish, the second ends it at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, Literal

__all__ = ["StopRequests", "forget_requests", "stopping_by_signals"]

_log = logging.getLogger("sbredis.worker")
_TOGETHER: Final = 0.5
"""The seconds in which signals belong to one request."""


class StopRequests:
    """Tells the first request to stop from the second, by the times of their signals.

    One request may come as several signals: ``timeout`` signals a program and then its group, and Ctrl-C may reach a
    program both from the terminal and from a process manager. uvloop also calls the handler of one signal twice if two
    different signals come at almost the same time. So signals that come together are one request.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    def signalled(self, now: float) -> Literal["first", "same", "second"]:
        """Return which request a signal belongs to that comes now: to the first, as its first or a later signal, or to
        the second.
        """
        if self._first is None:
            self._first = now
            return "first"
        return "same" if now - self._first < _TOGETHER else "second"


class _Ending:
    """Handles the signals after the worker has ended, until the program goes on: a second request ends it at once."""

    def __init__(self, requests: StopRequests) -> None:
        self._requests = requests

    def __call__(self, number: int, _: object) -> None:
        if self._requests.signalled(time.monotonic()) == "second":
            os._exit(128 + number)


def forget_requests() -> None:
    """Let signals have their usual effects again, after the event loop of a worker was closed."""
    if threading.current_thread() is threading.main_thread():
        if isinstance(signal.getsignal(signal.SIGTERM), _Ending):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if isinstance(signal.getsignal(signal.SIGINT), _Ending):
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stopping_by_signals(stop: Callable[[], None], *, supervised: bool) -> Generator[None]:
    """Call ``stop`` at the first SIGTERM or SIGINT while the block runs. A second one ends the process at once, also
    after the block until :func:`forget_requests` is called.

    A process that has a supervisor may get several signals for one request, at any distance: from its supervisor, and
    from a program that signals the whole group. So only its supervisor counts requests, and kills it at the second one.
    The process calls ``stop`` at the first SIGTERM, and ignores all other signals until it has ended. The system
    ignores SIGINT for it, because Ctrl-C on a terminal reaches all processes and the supervisor sends a SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("A program handles signals in its main thread: elsewhere, use `await worker.run()`.")
    loop = asyncio.get_running_loop()
    requests = StopRequests()

    def handle(number: int) -> None:
        request = requests.signalled(time.monotonic())
        if request == "first":
            _log.info("%s: finishing the running handlers; a second signal ends them", signal.Signals(number).name)
            stop()
        elif request == "second" and not supervised:
            os._exit(128 + number)  # the locks of its messages end by themselves

    handled = (signal.SIGTERM,) if supervised else (signal.SIGTERM, signal.SIGINT)
    for each in handled:
        loop.add_signal_handler(each, handle, each)
    if supervised:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for each in handled:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_IGN if supervised else _Ending(requests))
