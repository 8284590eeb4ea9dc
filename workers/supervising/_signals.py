"""Stop a worker by a signal: the first lets it finish, the second ends it at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

__all__ = ["stopping_by_signals"]

_log = logging.getLogger("sbredis.worker")


@contextmanager
def stopping_by_signals(stop: Callable[[], None], *, supervised: bool) -> Generator[None]:
    """Call ``stop`` at the first SIGTERM or SIGINT while the block runs. A second one ends the process at once.

    Ctrl-C on a terminal reaches all processes. One that has a supervisor ignores it, because the supervisor sends it a
    SIGTERM. The system ignores it for the process: a handler that does nothing is not enough, because uvloop calls the
    handler of one signal twice if two different signals come at almost the same time.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("A program handles signals in its main thread: elsewhere, use `await worker.run()`.")
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def handle(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)  # the locks of its messages end by themselves
        _log.info("%s: finishing the running handlers; a second signal ends them", signal.Signals(number).name)
        stop()

    handled = (signal.SIGTERM,) if supervised else (signal.SIGTERM, signal.SIGINT)
    for each in handled:
        loop.add_signal_handler(each, handle, each)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if supervised else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
        for each in handled:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(each)
