"""Run a worker in this process, as a program."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

from sbredis._loop_thread import fast_loop
from sbredis.exceptions import ServiceBusError
from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.observing._reports import Report
from sbredis.workers.observing._terminal import CLEAR, terminal
from sbredis.workers.running._collecting import collecting_less
from sbredis.workers.running._consuming import CANCELLING
from sbredis.workers.running._limit import MessageLimit
from sbredis.workers.running._runtime import Parts, Runtime
from sbredis.workers.running._suspects import Killer
from sbredis.workers.supervising._commands import WorkerCommand
from sbredis.workers.supervising._reports import EVERY, ReportPipe
from sbredis.workers.supervising._screen import banner, rates, summary
from sbredis.workers.supervising._signals import forget_requests, stopping_by_signals

__all__ = ["Screen", "run_in_loop", "run_program"]

_log = logging.getLogger("sbredis.worker")


def run_in_loop(work: Coroutine[Any, Any, Any], *, leaves_tasks: bool = True) -> Any:
    """Run a coroutine in a new event loop: that of uvloop if it is installed.

    ``leaves_tasks``: whether the coroutine has ended all other tasks, so that those that still run are not waited for.
    """
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
    runner = asyncio.Runner(loop_factory=fast_loop)
    try:
        return runner.run(work)
    finally:
        loop = runner.get_loop()
        if leaves_tasks and asyncio.all_tasks(loop):  # the runner would wait for them for ever
            loop.set_exception_handler(lambda *_: None)  # else Python would log that pending tasks were destroyed
            loop.close()
            asyncio.set_event_loop(None)
        else:
            runner.close()
        forget_requests()


async def _end_tasks(left: Collection[asyncio.Task[Any]]) -> None:
    """Cancel all other tasks, and wait until they end, but not for ever. Those that were left already get no time."""
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if not (waited := others.difference(left)):
        return
    ended, still = await asyncio.wait(waited, timeout=CANCELLING)
    for task in ended:
        if not task.cancelled() and (error := task.exception()) is not None:
            said = "an error of a task that was cancelled at the end of the program"
            loop.call_exception_handler({"message": said, "exception": error, "task": task})
    for task in still:
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        _log.warning("the task %s still runs although it was cancelled: the program ends without it", name)


class Screen:
    """The banner and the line of rates on a terminal."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._terminal = terminal()
        self._greeted = False
        self._before: dict[str, EntityCounts] = {}

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
        self._before = {entity: EntityCounts.from_json(counts.to_json()) for entity, counts in report.counts.items()}

    def end(self) -> None:
        """Leave the line of rates."""
        if self._terminal is not None and self._greeted:
            self._terminal.write(CLEAR)
            self._terminal.flush()


async def run_program(
    begun: Callable[[Parts], AbstractAsyncContextManager[Runtime]], command: WorkerCommand, first: Report
) -> None:
    """Run a worker until a signal stops it, and report to the supervisor or show it on the terminal.

    ``first`` is what a supervisor is told before the worker has begun. Raises :class:`ServiceBusError` if the task of
    the worker is cancelled although nobody asked the worker to end.
    """
    run = _ProgramRun(command, first)
    with stopping_by_signals(run.stop, supervised=command.reports_to is not None):
        try:
            async with run.telling(), begun(run.parts) as runtime:
                run.runtime = runtime
                run.tell()
                async with run.watching_depths(), runtime.watching_server():
                    with collecting_less():
                        await runtime.stopped.wait()
                run.tell()
        except asyncio.CancelledError:
            if not run.is_ending:
                raise ServiceBusError(
                    "The worker has ended because code of the application has cancelled its tasks, although nobody "
                    "asked it to end. Cancel only tasks that the application has created, and start the worker again.",
                    is_transient=False,
                ) from None
        finally:
            await _end_tasks(() if run.runtime is None else run.runtime.left)


def _end_at_once() -> None:
    """End the process although its event loop does not let it end. Called in a thread."""
    os._exit(1)


class _ProgramRun:
    """A run of a worker as a program, and what it tells of itself: to its supervisor, or on the terminal."""

    def __init__(self, command: WorkerCommand, first: Report) -> None:
        self._first = first
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.parts = Parts(
            limit=MessageLimit(command.max_messages, self.stop),
            lifespan_begins=self._lifespan_begins,
            suspect_begins=self.tell,
            killer=None if command.killer is None else Killer(*json.loads(command.killer)),
            lifespan_stuck=_end_at_once,
        )
        self._stopping = False
        self._screen = Screen(1)
        self._pipe = None if command.reports_to is None else ReportPipe(command.reports_to)
        self.runtime: Runtime | None = None
        """The worker, as soon as it has begun."""

    def stop(self) -> None:
        """Let the worker finish; if it has not begun yet, end at once."""
        if self._stopping:
            return
        self._stopping = True
        if self.runtime is None:
            self._task.cancel()
        else:
            self.runtime.end()

    @property
    def is_ending(self) -> bool:
        """Whether the worker was asked to end."""
        return self._stopping or (self.runtime is not None and self.runtime.stopped_itself)

    def _lifespan_begins(self) -> None:
        """Tell that the lifespan begins, because it may block the event loop."""
        self._first = replace(self._first, in_lifespan=True)
        self.tell()

    @asynccontextmanager
    async def telling(self) -> AsyncGenerator[None]:
        """Tell of the worker every second while the block runs, and once more at its end."""
        self.tell()
        telling = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait((telling,))
            self._screen.end()
            if self._pipe is not None:
                await self._pipe.finish(replace(self._report(), running=False, ending=True, in_lifespan=False))

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.tell()

    def tell(self) -> None:
        """Tell of the worker now."""
        report = self._report()
        if self._pipe is None:
            self._screen.show(report)
            return
        try:
            self._pipe.send(report)
        except OSError:  # the supervisor is gone
            self.stop()

    def _report(self) -> Report:
        if self.runtime is None:
            return self._first
        ending = self.runtime.stopped.is_set()
        stopped = self.runtime.stopped_itself and not self.runtime.lost_client
        return replace(self.runtime.report(), ending=ending, stopped=stopped, http=self._first.http)

    @asynccontextmanager
    async def watching_depths(self) -> AsyncGenerator[None]:
        """Count the messages that are left in the entities while the block runs, if there is a terminal."""
        watching = None
        if terminal() is not None and self.runtime is not None:
            watching = asyncio.create_task(self.runtime.watch_depths())
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait((watching,))
