"""The standard input: its first line, all of it, or its lines as they come, without blocking the event loop."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

import click

from sbredis.cli._stopping import Stop

__all__ = ["everything", "first_line", "is_terminal", "lines"]

_CHUNK = 1 << 16
_AHEAD = 4
"""The number of chunks that are read ahead of the consumer."""


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
