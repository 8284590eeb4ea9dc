"""The byte stream under a wire.

After the handshake the socket gets an asyncio protocol of ours. Replies then reach their callers in the callback that
reads them. A reader task, a stream buffer or a coroutine for each reply would cost more than all the rest of a call.
fakeredis has no socket and is read as redis-py reads it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sbredis._tasks import to_the_end
from sbredis.transport._link import Link, LinkError
from sbredis.transport._resp import ProtocolError, reply_parser

if TYPE_CHECKING:
    from sbredis.transport._memory_server import MemoryLink

__all__ = ["Stream", "stream_over"]

OnReplies = Callable[[list[Any]], None]
OnLost = Callable[[str], None]


class Stream(ABC):
    """The part of a connection that a wire uses."""

    paused = False
    """Whether the peer takes no more bytes at the moment. Writing now would fill the memory."""

    @abstractmethod
    def write(self, data: bytes) -> int:
        """Send bytes without waiting. Return the number of bytes that wait for the network."""

    @property
    def unsent(self) -> int:
        """The number of bytes that wait for the network. While it falls, the peer is alive."""
        return 0

    @abstractmethod
    def listen(self, on_replies: OnReplies, on_lost: OnLost, on_resumed: Callable[[], None]) -> None:
        """Deliver replies to ``on_replies`` from now on. If the connection is lost, ``on_lost`` gets the reason.

        This comes before everything else, because the reply to the first call must not be read by anyone else.
        """

    @abstractmethod
    async def run(self) -> None:
        """Keep the connection until cancelled, and then close it."""


def stream_over(link: Link) -> Stream:
    """Return the fastest stream for an open connection."""
    transport = link.transport
    return _PumpedStream(cast("MemoryLink", link)) if transport is None else _SocketStream(link, transport)


class _SocketStream(Stream, asyncio.Protocol):
    def __init__(self, link: Link, transport: asyncio.Transport) -> None:
        self._link = link
        self._transport = transport
        self._parse = reply_parser()
        self._on_replies: OnReplies
        self._on_lost: OnLost
        self._on_resumed: Callable[[], None]

    def write(self, data: bytes) -> int:
        # Writes to a closing connection are lost, and asyncio warns of the sixth lost write.
        if not self._transport.is_closing():
            self._transport.write(data)
        return self._transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def listen(self, on_replies: OnReplies, on_lost: OnLost, on_resumed: Callable[[], None]) -> None:
        self._on_replies, self._on_lost, self._on_resumed = on_replies, on_lost, on_resumed
        self._transport.set_protocol(self)

    async def run(self) -> None:
        try:
            if self._transport.is_closing():
                self._on_lost("the server closed the connection")
            if not self._transport.is_reading():
                self._transport.resume_reading()
            await asyncio.get_running_loop().create_future()
        finally:
            await to_the_end(self._link.hang_up())

    def data_received(self, data: bytes) -> None:
        try:
            self._on_replies(self._parse(data))
        except ProtocolError as error:
            self._on_lost(f"{error}")
            self._transport.abort()  # what follows is not read

    def eof_received(self) -> None:
        self._on_lost("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(f"the connection broke: {exc}" if exc else "the connection was closed")

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._on_resumed()


class _PumpedStream(Stream):
    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self._outbox: list[bytes] = []
        self._wake = asyncio.Event()
        self._on_replies: OnReplies
        self._on_lost: OnLost

    def write(self, data: bytes) -> int:
        self._outbox.append(data)
        self._wake.set()
        return 0

    def listen(self, on_replies: OnReplies, on_lost: OnLost, on_resumed: Callable[[], None]) -> None:  # noqa: ARG002  # this stream never pauses
        self._on_replies, self._on_lost = on_replies, on_lost

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send())
                while True:
                    try:
                        self._on_replies([await self._link.read()])
                    except LinkError as error:
                        self._on_lost(str(error))
                        await asyncio.get_running_loop().create_future()
        finally:
            await to_the_end(self._link.hang_up())

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            outbox, self._outbox = self._outbox, []
            await self._link.write(outbox)
