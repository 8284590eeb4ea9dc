"""The standard streams: reading and writing them does not block the event loop, and some of them may be closed."""

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
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import BinaryIO

import click

from sbredis.cli._stopping import Stop

__all__ = ["Sink", "everything", "first_line", "is_terminal", "lines", "replace_closed_streams"]

_CHUNK = 1 << 16
_AHEAD = 4
"""The number of chunks that are read ahead of the consumer."""
_PIPE_BUFFER = 4096
"""A pipe that is writable takes this number of bytes without blocking."""
_SHORTEST, _LONGEST = 0.0002, 0.01
"""The pauses between two looks whether the reader has taken everything, in seconds."""


def replace_closed_streams() -> bool:
    """Open the null device in place of a closed stdin or stderr. Return whether stdout is open.

    Python has no object for a stream that is closed, and a file or a socket could get its descriptor.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 -- it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    return sys.stdout is not None


# -- the input ---------------------------------------------------------------------------------------------------------


def is_terminal() -> bool:
    """Return whether a person types the input."""
    return sys.stdin.isatty()


def first_line() -> str:
    """Read the first line, and nothing behind it: the rest may be the body of a message.

    Raises :class:`click.UsageError` if it has no text.
    """
    found = bytearray()
    while (byte := _read(1)) not in (b"", b"\n"):
        found += byte
    if not (text := found.decode(errors="replace").strip()):
        raise click.UsageError("stdin has no line with a connection string, which --url - reads.")
    return text


def everything() -> bytes:
    """Read the input to its end."""
    return b"".join(iter(lambda: _read(_CHUNK), b""))


async def lines(stop: Stop) -> AsyncIterator[bytes]:
    """Yield the lines as they come, without their ends, until the input ends or the command is interrupted.

    A thread reads them, which ends with the process. A thread of the event loop would keep an interrupted command alive
    until somebody closes the input.
    """
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)
    stop.call(lambda: chunks.put_nowait(b""))
    arguments = (asyncio.get_running_loop(), chunks, room)
    threading.Thread(target=_read_all, args=arguments, name="sbredis-stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        if stop:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        room.release()
    if rest and not stop:
        yield rest


def _read_all(
    loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes | OSError], room: threading.Semaphore
) -> None:
    chunk: bytes | OSError = b"?"
    with suppress(RuntimeError):  # the loop has ended
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = _read(_CHUNK)
            except OSError as error:
                chunk = error
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)


def _read(size: int) -> bytes:
    """Read up to ``size`` bytes from the descriptor.

    A buffered stream would read ahead, and its lock would disturb the end of the process.
    """
    try:
        handle = sys.stdin.fileno()
    except (io.UnsupportedOperation, AttributeError):  # a test has put a text in its place
        source: BinaryIO = sys.stdin.buffer
        return source.read(size)
    return os.read(handle, size)


# -- the output of long commands ---------------------------------------------------------------------------------------


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
            left = left[os.write(self._handle, left[:_PIPE_BUFFER]) :]
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
