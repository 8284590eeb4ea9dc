"""The process that renews locks while code of this program keeps the GIL, as the program sees it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sbredis.exceptions import AutoLockRenewFailed
from sbredis.renewing._stand_in import CoveredLock, lines_of, news_in

if TYPE_CHECKING:
    from sbredis.model import MessageLease

__all__ = ["HeldLock", "StandInProcess"]

_log = logging.getLogger("sbredis.client")
_STARTING = 20.0
"""The most seconds until the process says its first word."""
_ENDING = 2.0
_AGAIN = 5.0
"""The seconds after a failed start before the next one."""
_FIRST_WORD = b"[]"
"""What the process says when it has begun: a line without news."""
_PROGRAM = "sbredis.renewing._stand_in_program"
_FOLDER = str(Path(__file__).parents[2])
"""The folder in which the process finds the package, even if this program has changed ``sys.path``."""


class HeldLock(NamedTuple):
    """A lock to cover, and the facts that the process needs."""

    lease: MessageLease
    entity: str
    number: int
    """The number of the partition."""
    duration: float
    last: float
    """The last time at which the lock may be renewed."""


@dataclass(slots=True)
class _ToldLock:
    """A lock that the process knows."""

    number: int
    """Its number for the process. No two locks ever have the same."""
    held: HeldLock
    until: float
    """The end that the process was told."""
    missed: bool = False
    """Whether the last look at what the program holds has missed it."""


class StandInProcess:
    """A process that renews locks as long as nobody else does (:mod:`sbredis.renewing._stand_in`).

    Its methods may be called in any thread, and never wait for the process, but :meth:`start`.
    """

    def __init__(self, first_line: bytes, what: str, patience: float) -> None:
        self._first_line = first_line
        """The line that says where to connect."""
        self._what = what
        """The servers, for the log."""
        self._patience = patience
        """The seconds for which the process goes on when it hears nothing."""
        self._busy = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._told: dict[int, _ToldLock] = {}
        """The locks that the process knows, by the identity of the lease."""
        self._numbers = itertools.count(1)
        self._unsent = b""
        """What the pipe had no room for yet."""
        self._sent_at = 0.0
        """When something was written last, or nothing was left to write."""
        self._unread = b""
        self._next_start = 0.0
        self._closed = False

    async def start(self) -> None:
        """Start the process, and wait for its first word. Raise if it cannot be started."""
        await asyncio.get_running_loop().run_in_executor(None, self._start)

    def _start(self) -> None:
        if not sys.executable:
            raise _refused("Python does not know the path of its interpreter (sys.executable is empty).", None)
        if getattr(sys, "frozen", False):
            raise _refused("The program is frozen, so its executable is no Python interpreter.", None)
        path = os.pathsep.join(filter(None, (_FOLDER, os.environ.get("PYTHONPATH"))))
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            raise _refused(f"{sys.executable}: {error.strerror or error}.", error) from error
        assert process.stdin is not None
        assert process.stdout is not None
        if not self._begins(process):
            try:
                did = f"has ended at once, with {process.wait(_ENDING)}"
            except subprocess.TimeoutExpired:
                did = f"has said nothing for {_STARTING:g} s"
            _end(process)
            raise _refused(f"{sys.executable} -m {_PROGRAM} {did}.", None)
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        with self._busy:
            over = process if self._closed else self._process
            if not self._closed:
                self._process, self._told, self._unread, self._unsent = process, {}, b"", b""
                self._sent_at = time.monotonic()
        if over is not None:
            _end(over)

    def _begins(self, process: subprocess.Popen[bytes]) -> bool:
        """Send the first line. Return whether the process says its first word, which tells nothing else."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            os.write(process.stdin.fileno(), self._first_line)
        except BrokenPipeError:
            return False
        until, said = time.monotonic() + _STARTING, b""
        while _FIRST_WORD not in said.splitlines() and (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([process.stdout], [], [], left)
            part = os.read(process.stdout.fileno(), 4096) if ready else b""
            if not part:
                return False
            said += part  # what other modules of the process print is not its first word
        return _FIRST_WORD in said.splitlines()

    def hold(self, locks: Iterable[HeldLock], now: float) -> None:
        """Tell the process of all locks that the program holds, and that the program is alive.

        A lock is held no longer when two looks in a row have missed it: one look may begin before the lock is added,
        and end after that.
        """
        with self._busy:
            held = {id(each.lease): each for each in locks}
            gone = [identity for identity, told in self._told.items() if told.missed and identity not in held]
            over = [self._told.pop(identity) for identity in gone]
            for told in over:
                told.held.lease.refresh = None
            for identity, told in self._told.items():
                told.missed = identity not in held
            self._send(held, [told.number for told in over], now)

    def add(self, locks: Iterable[HeldLock], now: float) -> None:
        """Tell the process of more locks, and that the program is alive."""
        with self._busy:
            self._send({id(each.lease): each for each in locks}, [], now)

    def read(self) -> None:
        """Take over the ends of locks that the process has reported."""
        with self._busy:
            process = self._process
            if process is None or process.stdout is None:
                return
            with suppress(BlockingIOError, ValueError):
                while read := os.read(process.stdout.fileno(), 65536):
                    self._unread += read
            whole, _, self._unread = self._unread.rpartition(b"\n")
            try:
                said = news_in(whole.splitlines())
            except (ValueError, TypeError):  # not a word of the process: whatever it is, another one is started
                _log.warning("the process that renews locks for %s said something else, and is replaced", self._what)
                process.kill()
                return
            known = {told.number: told.held.lease for told in self._told.values()} if said else {}
            for news in said:
                lease = known.get(news.id)
                if lease is not None and news.until > lease.until:
                    lease.until_utc += news.until - lease.until
                    lease.until = news.until
            self._flush(process)

    @property
    def gone(self) -> bool:
        """Whether the process has ended by itself, and may be started again."""
        process = self._process
        over = process is None or process.poll() is not None
        return over and not self._closed and time.monotonic() >= self._next_start

    async def start_again(self) -> None:
        """Start the process again after it has ended. If that fails, it is tried again later."""
        self._next_start = time.monotonic() + _AGAIN
        code = None if self._process is None else self._process.returncode
        _log.warning("the process that renews locks for %s has ended (%s) and is started again", self._what, code)
        try:
            await self.start()
        except AutoLockRenewFailed as error:
            _log.warning("%s", error)

    def close(self) -> None:
        """End the process. The locks last until their current ends."""
        with self._busy:
            self._closed = True
            process, self._process = self._process, None
            for told in self._told.values():
                told.held.lease.refresh = None
            self._told.clear()
        if process is not None:
            _end(process)

    def _send(self, held: Mapping[int, HeldLock], gone: list[int], now: float) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        fresh: list[CoveredLock] = []
        for identity, lock in held.items():
            lease, told = lock.lease, self._told.get(identity)
            if told is not None and told.until >= lease.until:
                continue
            if told is None:
                told = self._told[identity] = _ToldLock(next(self._numbers), lock, 0.0)
                lease.refresh = self.read
            told.until = lease.until
            last = min(lock.last, told.held.last)
            fresh.append(
                CoveredLock(told.number, lock.entity, lock.number, lease.key, lock.duration, lease.until, last)
            )
        self._unsent += b"".join(lines_of(fresh, gone, now + self._patience))
        self._flush(process)

    def _flush(self, process: subprocess.Popen[bytes]) -> None:
        """Write what the pipe has room for. If it has had none for long, the thread starts another process."""
        assert process.stdin is not None
        now = time.monotonic()
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(process.stdin.fileno(), self._unsent) :]
                self._sent_at = now
        except BlockingIOError:
            if now - self._sent_at > _AGAIN:
                process.kill()
        except (OSError, ValueError):  # it has ended
            process.kill()
        else:
            self._sent_at = now


def _refused(why: str, cause: BaseException | None) -> AutoLockRenewFailed:
    error = AutoLockRenewFailed(f"No process can be started that renews locks. {why}")
    error.__cause__ = cause
    return error


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process: it ends when its input does."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
