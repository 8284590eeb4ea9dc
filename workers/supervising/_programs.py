"""Run a worker in this process, as a program."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from sbredis.workers.observing._counts import Counts
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._runtime import Runtime
from sbredis.workers.supervising._commands import Command
from sbredis.workers.supervising._reports import EVERY, reporting
from sbredis.workers.supervising._screen import Row, banner, rates
from sbredis.workers.supervising._signals import stopping_by_signals

__all__ = ["Screen", "run_in_loop", "run_program"]


def run_in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop: that of uvloop if it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


class Screen:
    """The banner and the line of rates on a terminal. Where there is no terminal, nothing is shown."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._terminal = sys.stderr.isatty()
        self._greeted = False
        self._before: dict[str, Counts] = {}

    def show(self, report: Report) -> None:
        """Show the banner once, and then the rates since the last call."""
        width = shutil.get_terminal_size().columns
        if not report.title:
            return
        if not self._greeted:
            self._greeted = True
            rows = [Row(entity, handler, concurrency) for entity, handler, concurrency in report.rows]
            print(banner(report.title, rows, self._processes, width), file=sys.stderr, flush=True)  # noqa: T201 -- it is a program
        if self._terminal:
            line = rates(self._before, report.counts, EVERY, width - 1)
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)  # noqa: T201 -- it is a program
        self._before = {entity: Counts.from_json(counts.to_json()) for entity, counts in report.counts.items()}

    def end(self) -> None:
        """Leave the line of rates."""
        if self._terminal and self._greeted:
            print(file=sys.stderr)  # noqa: T201 -- it is a program


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

    with stopping_by_signals(stop), suppress(asyncio.CancelledError):
        async with begun() as runtime:
            running.append(runtime)
            async with _telling(runtime, command):
                await runtime.stopped.wait()


@asynccontextmanager
async def _telling(runtime: Runtime, command: Command) -> AsyncGenerator[None]:
    """Report to the supervisor, or show the worker on the terminal, while the block runs."""
    screen = Screen(1)

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

    told = command.reports_to
    telling = asyncio.create_task(show() if told is None else reporting(told, report, runtime.stop))
    try:
        yield
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
        screen.end()
