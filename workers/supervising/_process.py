"""The place of one worker process under a supervisor: the process is started again when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sbredis.workers.observing._counts import EntityCounts, merged
from sbredis.workers.observing._exits import ending_of
from sbredis.workers.observing._reports import Report, ReportReader
from sbredis.workers.supervising._reports import EVERY
from sbredis.workers.supervising._restarts import Restarts

__all__ = ["SETUP_FAILED", "WorkerProcess"]

_log = logging.getLogger("sbredis.worker")
SETUP_FAILED: Final = 2
"""The exit code of a process that cannot run, however often it is started."""
_NOT_STARTED: Final = 1
"""Stands for the exit code of a process that the system could not start."""
_HEAD_START: Final = 5.0
"""The seconds that the lifespan of the first process has to begin, before the others start."""
_PATIENCE: Final = 10.0
"""The seconds that a process gets after its ``shutdown_timeout`` to end, before it is killed."""
_STARTING: Final = 30.0
"""The seconds that the next process gets to run, before its place counts as not ready."""


class WorkerProcess:
    """The place of one worker process."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        *,
        reloads: bool,
        when_heard: Callable[[Report], None] | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self.number = number
        self._command = command
        self._reloads = reloads
        """Whether a process that cannot run is tried again when a file has changed."""
        self._when_heard = when_heard
        self._patience = patience
        self._restarts = Restarts()
        self._process: asyncio.subprocess.Process | None = None
        """The process while it runs."""
        self._again = asyncio.Event()
        """Set when the process is to start again, or to stop, without waiting."""
        self._asked: int | None = None
        """The signal that asks the process to end. A process that is just being started gets it then."""
        self._stopping = False
        self._has_run = self._has_stopped = False
        """Whether this process has run, and whether it has said that the application has called ``worker.stop()``."""
        self._replaced_until = 0.0
        """Until when the place counts as one whose process is being replaced, after that has ended as planned."""
        self._killing: asyncio.TimerHandle | None = None
        self._waiting: asyncio.TimerHandle | None = None
        """Waits for the lifespan of the process to begin."""
        self._past: dict[str, EntityCounts] = {}
        """The counts of the processes that have ended."""
        self._heard = 0.0
        """The time of the last report."""
        self._suspect: tuple[str, str, int] | None = None
        """The suspect that the last process handled alone when it ended."""
        self._killer: tuple[str, ...] = ()
        """The arguments with which the next process learns of the suspect that has ended this one."""
        self.report = Report()
        """The last report of the process; an empty one while no process runs."""
        self.namespace = ""
        self.stopped_itself = False
        """Whether the process has ended well because the application has called ``worker.stop()``."""
        self.ran = asyncio.Event()
        """Set when the process has run once."""
        self.slow = asyncio.Event()
        """Set when the lifespan of the process takes so long to begin that others need not wait for it."""

    # -- running -------------------------------------------------------------------------------------------------------

    async def keep_running(self) -> int:
        """Start the process again and again. Return its exit code when it has stopped for good, or cannot run."""
        loop = asyncio.get_running_loop()
        while not self._is_stopping():
            began = loop.time()
            self._again.clear()
            self._asked = None
            self._has_run = self._has_stopped = False
            code = await self._run_once()
            if self._is_stopping():
                if code == -signal.SIGTERM:
                    return 0  # it was stopped before it knew what to do about it
                return code if code >= 0 else 128 - code  # as a shell says it
            if code == 0 and self._has_stopped:
                self.stopped_itself = True
                return 0
            if code == SETUP_FAILED and not self._has_run:
                self._replaced_until = 0.0
                if not self._reloads:
                    return code
                _log.info("process %d starts again when a file changes", self.number)
                await self._again.wait()
                continue
            failed = code != 0 and not (code == -signal.SIGTERM and self._asked is not None)
            lived, by_suspect = loop.time() - began, self._suspect is not None
            pause = self._restarts.pause_after(lived, failed=failed, by_suspect=by_suspect)
            if failed and self._suspect is not None:
                self._killer = ("--killer", json.dumps([*self._suspect, ending_of(code)]))
            if failed:
                self._replaced_until = 0.0
                _log.warning("process %d ended with %s; it starts again in %g s", self.number, ending_of(code), pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()
        return 0

    async def _run_once(self) -> int:
        """Run the process until it ends. Return its exit code."""
        reads, writes = os.pipe()
        killer, self._killer = self._killer, ()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, "--reports-to", str(writes), *killer, pass_fds=(writes,)
            )
        except OSError as error:
            os.close(reads)
            self._suspect, self._killer = None, killer
            _log.warning("process %d cannot be started: %s", self.number, error)
            return _NOT_STARTED
        finally:
            os.close(writes)
        self._process, self._heard = process, asyncio.get_running_loop().time()
        if self._asked is not None:  # while it was being started
            self._ask_to_end(self._asked)
        try:
            return await self._ended(process, reads)
        finally:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
            os.close(reads)
            self._process = None
            self._suspect = self.report.suspect
            self._past, self.report = self.counts, Report()
            for counts in self._past.values():
                counts.end()
            if self._killing is not None:
                self._killing.cancel()
                self._killing = None

    async def _ended(self, process: asyncio.subprocess.Process, reads: int) -> int:
        """Read reports until the process ends, and return its exit code.

        The end of the pipe may come before the end of the process, or after it: a process that it has forked also keeps
        the pipe open.
        """
        loop, reader = asyncio.get_running_loop(), ReportReader()
        os.set_blocking(reads, False)

        def read() -> None:
            with suppress(BlockingIOError):
                while part := os.read(reads, 1 << 16):
                    unreadable = reader.unreadable
                    for report in reader.read(part):
                        self._note(report)
                    if reader.unreadable and not unreadable:
                        _log.warning("process %d has sent something that is no report: it is skipped", self.number)
                loop.remove_reader(reads)
                self._kill_if_it_does_not_end()

        loop.add_reader(reads, read)
        try:
            code = await process.wait()
            read()
        finally:
            loop.remove_reader(reads)
        return code

    def _note(self, report: Report) -> None:
        self.report, self._heard = report, asyncio.get_running_loop().time()
        self.namespace = report.namespace or self.namespace
        if report.ending and not self._replaced_until:
            self._replaced_until = self._heard + self.patience + _STARTING
        elif report.running and not report.ending:
            self._replaced_until = 0.0
        if report.running:
            self._has_run = True
            self.ran.set()
        if report.in_lifespan and self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(_HEAD_START, self.slow.set)
        self._has_stopped = report.stopped
        if report.ending:
            self._kill_if_it_does_not_end()
        if self._when_heard is not None:
            self._when_heard(report)

    # -- ending --------------------------------------------------------------------------------------------------------

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask the process to end by a signal, and do not start it again."""
        self._stopping = True
        self._ask_to_end(number)

    def _is_stopping(self) -> bool:
        return self._stopping

    def start_again(self) -> None:
        """Replace the process, or start it now if it waits to be started."""
        self._ask_to_end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, if it runs."""
        self._send(signal.SIGKILL)

    def _ask_to_end(self, number: int) -> None:
        self._asked = number
        self._again.set()
        self._send(number)
        self._kill_if_it_does_not_end()

    def _kill_if_it_does_not_end(self) -> None:
        if self._process is not None and self._killing is None:
            self._killing = asyncio.get_running_loop().call_later(self.patience, self.kill)

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    # -- what it tells -------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, EntityCounts]:
        """The counts of the process and of those that were here before it. They never fall."""
        return merged((self._past, self.report.counts))

    @property
    def patience(self) -> float:
        """The seconds that the process gets to end."""
        return self.report.shutdown_timeout + self._patience

    @property
    def name(self) -> str:
        """The name of the process in answers about health."""
        return f"process {self.number}"

    def state(self, now: float) -> str | dict[str, str]:
        """Return whether the process handles messages, or why not."""
        if self._process is None:
            return "not running"
        if self.stuck(now):
            return "stuck"
        if self.report.ending:
            return "stopping"
        if not self.report.running:
            return "in its lifespan" if self.report.in_lifespan else "starting"
        return self.report.paused or "running"

    def being_replaced(self, now: float) -> bool:
        """Return whether the process is being replaced because it has begun its number of messages, or was asked to
        end. No process has failed, and the next one has not taken too long.
        """
        return not self._stopping and now < self._replaced_until

    def stuck(self, now: float) -> bool:
        """Return whether the event loop of the process has stopped turning.

        A report may be late by the time between two of them.
        """
        return self.report.running and now - self._heard > self.report.stuck_after + 2 * EVERY
