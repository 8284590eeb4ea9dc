"""Run a worker in several processes: start them, replace those that end, and serve their health and counts together."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sbredis.exceptions import WorkerSetupError
from sbredis.workers.observing._counts import merged
from sbredis.workers.observing._http import Health, address_of, serving_http
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._reports import Report
from sbredis.workers.supervising._commands import Command
from sbredis.workers.supervising._programs import Screen
from sbredis.workers.supervising._reports import EVERY
from sbredis.workers.supervising._restarts import Restarts

__all__ = ["SETUP_FAILED", "Supervisor"]

_log = logging.getLogger("sbredis.worker")
SETUP_FAILED = 2
"""The exit code of a process that cannot run, however often it is started."""
_PATIENCE = 10.0
"""The seconds that a process gets after its ``shutdown_timeout`` to end, before it is killed."""


class _Process:
    """The place of one worker process."""

    def __init__(self, number: int, command: Sequence[str], *, reloads: bool) -> None:
        self.number = number
        self._reloads = reloads
        """Whether a process that cannot run is tried again when a file has changed."""
        self._again = asyncio.Event()
        """Set when the process is to start again, or to stop, without waiting."""
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._restarts = Restarts()
        self._stopping = False
        self.report = Report()
        self.heard = 0.0
        self._ending = False
        """Whether the process has sent its last report."""
        self.ran = asyncio.Event()
        """Set when the process has run once."""

    async def keep_running(self) -> int:
        """Start the process again and again. Return its exit code when it was stopped, or cannot run."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._again.clear()
            code = await self._run_once()
            if self.stopping():
                if code == -signal.SIGTERM:
                    return 0  # it was stopped before it knew what to do about it
                return code if code >= 0 else 128 - code  # as a shell says it
            if code == SETUP_FAILED and not self.report.running:
                if not self._reloads:
                    return code
                _log.info("process %d starts again when a file changes", self.number)
                await self._again.wait()
                continue
            pause = self._restarts.pause_after(loop.time() - began, failed=code != 0)
            if code:
                _log.warning("process %d ended with %s; it starts again in %g s", self.number, _described(code), pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()
            if self.stopping():
                return 0

    async def _run_once(self) -> int:
        reads, writes = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, "--reports-to", str(writes), pass_fds=(writes,)
            )
        finally:
            os.close(writes)
        loop = asyncio.get_running_loop()
        self.report, self.heard = Report(), loop.time()
        self._ending = False
        async with _lines(reads) as reader:
            while line := await reader.readline():
                self.report, self.heard = Report.from_line(line), loop.time()
                if self.report.running:
                    self.ran.set()
            self._ending = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self._process.wait()
            self.send(signal.SIGKILL)
            return await self._process.wait()

    def stopping(self) -> bool:
        """Return whether the process is to end for good."""
        return self._stopping

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and do not start the process again."""
        self._stopping = True
        self._again.set()
        self.send(number)

    def start_again(self) -> None:
        """Replace the process, or start it now if it waits to be started."""
        self._again.set()
        self.send(signal.SIGTERM)

    def state(self, now: float) -> str | dict[str, str]:
        """Return whether the process handles messages, or why not."""
        if self.stuck(now):
            return "stuck"
        return self.report.paused or "running"

    @property
    def patience(self) -> float:
        """The seconds that the process gets to end."""
        return self.report.shutdown_timeout + _PATIENCE

    def stuck(self, now: float) -> bool:
        """Return whether the event loop of the process has stopped turning."""
        return self.report.running and not self._ending and now - self.heard > self.report.stuck_after

    def send(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


@asynccontextmanager
async def _lines(descriptor: int) -> AsyncGenerator[asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=1 << 24)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        yield reader
    finally:
        transport.close()


class Supervisor:
    """Runs a worker in several processes."""

    def __init__(self, command: Command, arguments: Sequence[str]) -> None:
        self._command = command
        line = [sys.executable, "-m", "sbredis.workers", *arguments]
        reloads = command.reload
        self._watchfiles = _import_watchfiles() if reloads else None
        self._processes = [_Process(number + 1, line, reloads=reloads) for number in range(command.processes)]
        self._signals = 0
        self._reloading = False

    async def run(self) -> int:
        """Run until a signal stops the processes, or until they cannot run. Return the exit code."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop, each)
        async with AsyncExitStack() as stack:
            if self._command.http is not None:
                host, port = address_of(self._command.http)
                await stack.enter_async_context(
                    serving_http(host, port, live=self._live, ready=self._ready, metrics=self._metrics)
                )
            watching = asyncio.create_task(self._watch())
            stack.callback(watching.cancel)
            if self._watchfiles is not None:
                reloading = asyncio.create_task(self._reload(self._watchfiles))
                stack.callback(reloading.cancel)
            first, *others = self._processes
            running = [asyncio.create_task(first.keep_running())]
            ran = asyncio.create_task(first.ran.wait())
            stack.callback(ran.cancel)
            await asyncio.wait((running[0], ran), return_when=asyncio.FIRST_COMPLETED)
            if first.ran.is_set():  # else the first one has ended, and so would the others
                running += [asyncio.create_task(process.keep_running()) for process in others]
            codes = await asyncio.gather(*running)
        return max(codes)

    def _stop(self, number: int) -> None:
        self._signals += 1
        for process in self._processes:
            process.stop(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)
        del number
        if self._signals == 1:
            patience = max(process.patience for process in self._processes)
            asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for process in self._processes:
            process.stop(signal.SIGKILL)

    async def _watch(self) -> None:
        """Show the processes on the terminal, and kill those whose event loops have stopped turning."""
        loop = asyncio.get_running_loop()
        screen = Screen(len(self._processes))
        try:
            while True:
                await asyncio.sleep(EVERY)
                for process in self._processes:
                    if process.stuck(loop.time()):
                        _log.error("process %d does not turn its event loop: it is replaced", process.number)
                        process.send(signal.SIGKILL)
                first = self._processes[0].report
                together = merged(process.report.counts for process in self._processes)
                depths = {path: depth for process in self._processes for path, depth in process.report.depths.items()}
                screen.show(replace(first, counts=together, depths=depths))
        finally:
            screen.end()

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

    def _live(self) -> Health:
        return Health(well=True, details={"processes": len(self._processes)})

    def _ready(self) -> Health:
        now = asyncio.get_running_loop().time()
        states = {
            f"process {process.number}": process.state(now) for process in self._processes if process.report.running
        }
        well = bool(states) and all(state == "running" for state in states.values())
        return Health(well, {"processes": states})

    def _metrics(self) -> str:
        namespace = next((process.report.namespace for process in self._processes if process.report.namespace), "")
        return prometheus(namespace, merged(process.report.counts for process in self._processes))


def _import_watchfiles() -> Any:
    try:
        return importlib.import_module("watchfiles")
    except ImportError:
        raise WorkerSetupError(
            "--reload needs the library watchfiles: run pip install '.[reload]' in the checkout of sbredis."
        ) from None


def _described(code: int) -> str:
    return f"the signal {signal.Signals(-code).name}" if code < 0 else f"the exit code {code}"
