"""Reports of a worker process to its supervisor: a line of JSON every second."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Final

from sbredis.workers.observing._reports import Report

__all__ = ["EVERY", "ReportPipe"]

EVERY: Final = 1.0
_PATIENCE: Final = 2.0


class ReportPipe:
    """The end of a pipe to which a worker process writes its reports. Writing never waits.

    A pipe may take a part of a report. The rest is written first at the next time, so that the supervisor reads whole
    lines. A report that finds no room at all is dropped, because the next one has everything that it has.
    """

    def __init__(self, descriptor: int, patience: float = _PATIENCE) -> None:
        """``patience`` is the number of seconds that a supervisor gets to make room for the last report."""
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)  # programs that the worker starts would keep the pipe open
        self._descriptor = descriptor
        self._patience = patience
        self._rest = b""

    def send(self, report: Report) -> None:
        """Write a report. Raises :class:`OSError` if the supervisor is gone."""
        if self._flush():
            line = report.to_line()
            written = self._write(line)
            self._rest = line[written:] if written else b""

    async def finish(self, report: Report) -> None:
        """Write the last report, and close the pipe. A supervisor that does not read is not waited for any longer."""
        self._rest += report.to_line()
        loop, has_room = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._descriptor, has_room.set)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._patience):
                while not self._flush():
                    has_room.clear()
                    await has_room.wait()
        loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _flush(self) -> bool:
        """Write what is left of earlier reports. Return whether everything is written."""
        if self._rest:
            self._rest = self._rest[self._write(self._rest) :]
        return not self._rest

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
