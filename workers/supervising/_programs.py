"""Run a worker in this process, as a program."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import shutil
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from sbredis.workers.observing._counts import Counts
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._runtime import Runtime
from sbredis.workers.supervising._commands import Command
from sbredis.workers.supervising._reports import EVERY, reporting
from sbredis.workers.supervising._screen import banner, rates, summary
from sbredis.workers.supervising._signals import stopping_by_signals
from sbredis.workers.supervising._terminal import CLEAR, terminal

__all__ = ["Screen", "run_in_loop", "run_program"]

_log = logging.getLogger("sbredis.worker")


def run_in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop: that of uvloop if it is installed."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise RuntimeError(
            "A worker that runs as a program needs an event loop of its own, but one runs already: use "
            "`await worker.run()` there."
        )
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


class Screen:
    """The banner and the line of rates on a terminal."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._terminal = terminal()
        self._greeted = False
        self._before: dict[str, Counts] = {}

    def show(self, report: Report) -> None:
        """Show the banner once, and then the rates since the last call. Without a terminal, log one line at first."""
        if not report.title:
            return
        if self._terminal is None:
            if not self._greeted:
                _log.info("%s", summary(report, self._processes))
            self._greeted = True
            return
        width = shutil.get_terminal_size().columns
        if not self._greeted:
            self._greeted = True
            self._terminal.write(f"{CLEAR}{banner(report, self._processes, width)}\n")
        line = rates(self._before, report.counts, report.depths, EVERY, width - 1)
        self._terminal.write(CLEAR + line)
        self._terminal.flush()
        self._before = {entity: Counts.from_json(counts.to_json()) for entity, counts in report.counts.items()}

    def end(self) -> None:
        """Leave the line of rates."""
        if self._terminal is not None and self._greeted:
            self._terminal.write(CLEAR)
            self._terminal.flush()


async def run_program(begun: Callable[[], AbstractAsyncContextManager[Runtime]], command: Command) -> None:
    """Run a worker until a signal stops it, and report to the supervisor or show it on the terminal."""
    running: list[Runtime] = []
    starting = asyncio.current_task()
    assert starting is not None

    def stop() -> None:
        if running:
            running[0].stop()
        else:
            starting.cancel()

    with stopping_by_signals(stop, supervised=command.reports_to is not None), suppress(asyncio.CancelledError):
        async with begun() as runtime:
            running.append(runtime)
            async with _telling(runtime, command):
                await runtime.stopped.wait()


@asynccontextmanager
async def _telling(runtime: Runtime, command: Command) -> AsyncGenerator[None]:
    """Report to the supervisor, or show the worker on the terminal, while the block runs."""
    screen, told = Screen(1), command.reports_to

    def report() -> Report:
        made = runtime.report()
        received = sum(each.received for each in made.counts.values())
        if command.max_messages is not None and received >= command.max_messages:
            runtime.stop()
        return made

    async def show() -> None:
        while True:
            screen.show(report())
            await asyncio.sleep(EVERY)

    works = [show() if told is None else reporting(told, report, runtime.stop)]
    if terminal() is not None:
        works.append(runtime.watch_depths())
    tasks = [asyncio.create_task(work) for work in works]
    try:
        async with runtime.watching_server():
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        screen.end()
