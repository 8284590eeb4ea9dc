"""Turns at a server: the readers of one machine do not ask it for pages all at once.

A server works on one page at a time, and everybody else waits. Pages of many readers would come one after the other,
and others would wait for all of them. The tasks of Spark are processes, so they take turns by lock files that the
kernel unlocks if a process dies. Most of the work of a reader is not that of the server, so a turn costs it little.

Nobody depends on a turn: a reader that gets none for a moment reads without it, because the holder may wait for a
server that does not answer; and where there are no lock files, nobody waits.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path

__all__ = ["Turns", "turns_of_machine"]

_PAUSE = 0.0005
"""The seconds after which a reader tries again. A page takes about as long."""


class Turns:
    """The turns of the readers of one machine, at each server."""

    def __init__(self, folder: Path, *, places: int = 1, patience: float = 0.05) -> None:
        """``folder`` has the lock files. ``patience`` is the longest time in seconds that a reader waits."""
        self._folder = folder
        self._places = range(places)
        self._patience = patience
        self._named: dict[str, list[str]] = {}
        """The lock files of each server: a page would cost a tenth more with new names each time."""
        self._files: dict[str, int] = {}
        self._process = os.getpid()
        self._taken: set[str] = set()

    @asynccontextmanager
    async def at(self, server: str) -> AsyncGenerator[bool]:
        """Have a turn at a server during a block, and tell whether there is one."""
        held: str | None = None
        with suppress(OSError, ImportError):  # no lock files: no turns
            held = await self._wait(server)
        try:
            yield held is not None
        finally:
            if held is not None:
                self._drop(held)

    async def _wait(self, server: str) -> str | None:
        if server not in self._named:
            name = blake2b(server.encode(), digest_size=8).hexdigest()
            self._named[server] = [str(self._folder / f"{name}-{place}") for place in self._places]
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            for file in self._named[server]:
                if self._take(file):
                    return file
            if loop.time() >= until:
                return None
            await asyncio.sleep(_PAUSE)

    def _take(self, file: str) -> bool:
        import fcntl  # some systems have none

        if self._process != os.getpid():  # a child that was forked shares the locks of its parent
            self._files, self._taken, self._process = {}, set(), os.getpid()
        if file in self._taken:
            return False
        if file not in self._files:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._files[file] = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._files[file], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._taken.add(file)
        return True

    def _drop(self, file: str) -> None:
        import fcntl

        if file in self._taken:
            self._taken.remove(file)
            fcntl.flock(self._files[file], fcntl.LOCK_UN)


_current: list[Turns] = []


def turns_of_machine() -> Turns:
    """Return the turns that all processes of this user take on this machine."""
    if not _current:
        user = os.getuid() if hasattr(os, "getuid") else 0
        _current.append(Turns(Path(tempfile.gettempdir()) / f"sbredis-turns-{user}"))
    return _current[0]
