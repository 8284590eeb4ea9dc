"""Run a worker in several processes: start them, replace those that end, and serve their health and counts together."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import sys
from collections.abc import AsyncIterable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from sbredis._http_server import address_of
from sbredis.exceptions import WorkerSetupError
from sbredis.workers.observing._counts import EntityCounts, merged
from sbredis.workers.observing._http import Health, serving_http
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._reports import Report
from sbredis.workers.supervising._commands import WorkerCommand
from sbredis.workers.supervising._process import SETUP_FAILED, WorkerProcess
from sbredis.workers.supervising._programs import Screen
from sbredis.workers.supervising._reports import EVERY
from sbredis.workers.supervising._signals import StopRequests

__all__ = ["SETUP_FAILED", "Supervisor"]

_log = logging.getLogger("sbredis.worker")


class Supervisor:
    """Runs a worker in several processes."""

    def __init__(self, command: WorkerCommand, arguments: Sequence[str]) -> None:
        self._command = command
        line = [sys.executable, "-m", "sbredis.workers", *arguments]
        reloads = command.reload
        self._watchfiles = _import_watchfiles() if reloads else None
        self._processes = [
            WorkerProcess(number + 1, line, reloads=reloads, when_heard=self._heard)
            for number in range(command.processes or 1)
        ]
        self._requests = StopRequests()
        self._looked_at = 0.0
        """The time at which the processes were last looked at."""
        self._address = asyncio.Event()
        self._http = command.http
        """The HTTP address: that of the command, or that which the worker itself has."""

    async def run(self) -> int:
        """Run until a signal stops the processes, or until they cannot run. Return the exit code."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._signalled)
        async with AsyncExitStack() as stack:
            stack.callback(self._ignore_signals)
            if self._http is not None:
                await stack.enter_async_context(self._serving(self._http))
            works: list[Coroutine[Any, Any, None]] = [self._watch()]
            if self._watchfiles is not None:
                works.append(self._reload(self._watchfiles))
            for work in works:
                stack.callback(asyncio.create_task(work).cancel)
            running = asyncio.create_task(self._run_all())
            if self._http is None:
                serving = asyncio.create_task(self._serve_when_known())
                stack.callback(serving.cancel)
                await asyncio.wait((running, serving), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    self._stop()
                    await running
                    await serving  # this raises: the port cannot be used
            return await running

    async def _run_all(self) -> int:
        """Run all processes, and return the highest exit code.

        The others start when the first one has run, so that a worker that cannot run says so once. But they do not wait
        for a lifespan that takes long to begin.
        """
        first, *others = self._processes
        running = [asyncio.create_task(self._run_one(first))]
        events = [asyncio.create_task(event.wait()) for event in (first.ran, first.slow)]
        await asyncio.wait((*running, *events), return_when=asyncio.FIRST_COMPLETED)
        if any(event.done() for event in events):  # else the first one has ended, and so would the others
            running += [asyncio.create_task(self._run_one(process)) for process in others]
        for event in events:
            event.cancel()
        return max(await asyncio.gather(*running))

    async def _run_one(self, process: WorkerProcess) -> int:
        code = await process.keep_running()
        if process.stopped_itself:  # the worker is all its processes together
            self._stop()
        return code

    def _signalled(self) -> None:
        request = self._requests.signalled(asyncio.get_running_loop().time())
        if request == "first":
            self._stop()
        elif request == "second":
            self._stop(signal.SIGKILL)

    def _ignore_signals(self) -> None:
        """Ignore further signals, because nothing is left to stop."""
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, signal.SIG_IGN)

    def _stop(self, number: int = signal.SIGTERM) -> None:
        for process in self._processes:
            process.stop(number)

    async def _watch(self) -> None:
        """Show the processes on the terminal, and kill those whose event loops have stopped turning."""
        loop = asyncio.get_running_loop()
        screen = Screen(len(self._processes))
        self._looked_at = loop.time()
        try:
            while True:
                await asyncio.sleep(EVERY)
                self._kill_stuck(loop.time())
                shown = next((each.report for each in self._processes if each.report.title), Report())
                depths = {path: depth for process in self._processes for path, depth in process.report.depths.items()}
                screen.show(replace(shown, counts=self._counts(), depths=depths))
        finally:
            screen.end()

    def _kill_stuck(self, now: float) -> None:
        """Kill the processes that are stuck, unless this process was stopped itself and could read no reports."""
        was_stopped, self._looked_at = now - self._looked_at > 2 * EVERY, now
        if was_stopped:
            return
        for process in self._processes:
            if process.stuck(now):
                _log.error("process %d does not turn its event loop: it is replaced", process.number)
                process.kill()

    async def _reload(self, watchfiles: Any) -> None:
        """Let the processes start again whenever a Python file in this folder changes."""
        changed: AsyncIterable[set[tuple[int, str]]] = watchfiles.awatch(
            Path.cwd(), watch_filter=watchfiles.PythonFilter()
        )
        async for changes in changed:
            names = sorted({Path(path).name for _, path in changes})
            _log.info("%s changed: starting again", ", ".join(names))
            for process in self._processes:
                process.start_again()

    # -- health --------------------------------------------------------------------------------------------------------

    def _heard(self, report: Report) -> None:
        if self._http is None and report.http is not None:
            self._http = report.http
            self._address.set()

    async def _serve_when_known(self) -> NoReturn:
        """Serve the HTTP address of the worker for as long as the processes run, which do not serve it themselves."""
        await self._address.wait()
        assert self._http is not None
        async with self._serving(self._http):
            while True:
                await asyncio.Event().wait()

    def _serving(self, address: str) -> AbstractAsyncContextManager[int]:
        host, port = address_of(address)
        return serving_http(host, port, live=self._live, ready=self._ready, metrics=self._metrics)

    def _live(self) -> Health:
        """Return that the supervisor works, which replaces the processes that do not."""
        return Health(True, {"processes": self._states(asyncio.get_running_loop().time())})

    def _ready(self) -> Health:
        now = asyncio.get_running_loop().time()
        states = self._states(now)
        missing = [process for process in self._processes if states[process.name] != "running"]
        some = len(missing) < len(self._processes)
        return Health(some and all(process.being_replaced(now) for process in missing), {"processes": states})

    def _states(self, now: float) -> dict[str, Any]:
        """Return the state of each process, for a person who looks."""
        return {process.name: process.state(now) for process in self._processes}

    def _metrics(self) -> str:
        namespace = next((process.namespace for process in self._processes if process.namespace), "")
        return prometheus(namespace, self._counts())

    def _counts(self) -> dict[str, EntityCounts]:
        return merged(process.counts for process in self._processes)


def _import_watchfiles() -> Any:
    try:
        return importlib.import_module("watchfiles")
    except ImportError:
        raise WorkerSetupError(
            "--reload needs the library watchfiles: run pip install '.[reload]' in the checkout of sbredis."
        ) from None
