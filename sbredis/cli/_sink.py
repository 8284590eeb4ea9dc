"""The standard output of long commands: writing to it does not block them, and they know what its reader has taken."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import select
import stat
import struct
import sys
import termios
from collections.abc import Callable

from sbredis.cli._stopping import Stop

__all__ = ["Sink"]

_AT_ONCE = 4096
"""A pipe that is writable takes this number of bytes without blocking."""
_SHORTEST, _LONGEST = 0.0002, 0.01
"""The pauses between two looks whether the reader has taken everything, in seconds."""


class Sink:
    """Writes to stdout without blocking the event loop.

    In a pipe, what was written may be lost when the reader ends. So a message is settled only after the reader has
    taken it out of the pipe.
    """

    def __init__(self) -> None:
        try:
            self._handle: int | None = sys.stdout.fileno()
        except (io.UnsupportedOperation, AttributeError):  # a test has put a buffer in its place
            self._handle = None
        mode = 0 if self._handle is None else os.fstat(self._handle).st_mode
        self._is_pipe = stat.S_ISFIFO(mode)
        self._may_block = self._is_pipe or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)
        sys.stdout.flush()

    async def put(self, data: bytes, stop: Stop) -> bool:
        """Write data and return whether the reader has taken it: not if the command is interrupted meanwhile.

        Raises :class:`BrokenPipeError` if the reader has gone.
        """
        if not await self.write(data, stop):
            return False
        return self._handle is None or not self._is_pipe or await self._until(_is_taken, self._handle, stop)

    async def write(self, data: bytes, stop: Stop) -> bool:
        """Write data and return whether all is written: not if the command is interrupted while the reader is slow.

        Raises :class:`BrokenPipeError` if the reader has gone.
        """
        if self._handle is None:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
            return True
        left = memoryview(data)
        while left:
            if self._may_block and not await self._until(_is_writable, self._handle, stop):
                return False
            left = left[os.write(self._handle, left[:_AT_ONCE]) :]
        return True

    async def _until(self, condition: Callable[[int], bool], handle: int, stop: Stop) -> bool:
        """Wait until a condition of the descriptor holds. Return False if the command is interrupted before."""
        pause = 0.0
        while not condition(handle):
            if stop:
                return False
            await asyncio.sleep(pause)
            pause = min(max(_SHORTEST, 2 * pause), _LONGEST)
        return True


def _is_writable(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLOUT)
    return bool(poll.poll(0))


def _is_taken(handle: int) -> bool:
    """Return whether a pipe is empty. Raises :class:`BrokenPipeError` if nobody can read it any more."""
    (left,) = struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, b"\0" * 4))
    if not left:
        return True
    poll = select.poll()
    poll.register(handle, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError
    return False
