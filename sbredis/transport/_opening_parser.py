"""The parser of replies while a connection is being opened: redis-py asks it for the answers to the handshake.

Before the handshake has ended, nobody knows who the server is. redis-py's own parsers take replies of any size, so this
one takes their place. It reads a limited number of bytes in all.
"""

from __future__ import annotations

from asyncio import StreamReader
from collections import deque
from typing import Any, cast

from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from sbredis.transport._resp import ProtocolError, PythonParser, ReplyError, ReplyLimits

__all__ = ["OPENING_BYTES", "OpeningParser"]

OPENING_BYTES = 1024 * 1024
"""The largest number of bytes that a server may send until the connection is open. Servers send about 10 kB."""
_LIMITS = ReplyLimits(bytes=OPENING_BYTES, items=10_000, depth=8)
_PIECE = 64 * 1024


class OpeningParser(BaseParser):
    """A parser of redis-py, with limits."""

    def __init__(self, socket_read_size: int) -> None:  # noqa: ARG002 -- redis-py gives it
        self._parser = PythonParser(_LIMITS)
        self._replies = deque[Any]()
        self._left = OPENING_BYTES
        self._stream: StreamReader | None = None

    def on_connect(self, connection: Any) -> None:
        """Begin to read from a new connection."""
        self._stream = connection._reader  # as the parsers of redis-py do
        self._parser, self._left = PythonParser(_LIMITS), OPENING_BYTES
        self._replies.clear()

    def on_disconnect(self) -> None:
        """Stop reading."""
        self._stream = None

    async def can_read(self) -> bool:
        """Return whether a reply is there."""
        return bool(self._replies)

    async def can_read_destructive(self) -> bool:
        """Return whether a reply is there."""
        return bool(self._replies)

    async def read_response(self, disable_decoding: bool = False, push_request: bool = False) -> Any:  # noqa: ARG002 -- strings stay bytes
        """Return the next reply. An error reply is returned or raised as redis-py's own parsers do."""
        while not self._replies:
            data = b"" if self._stream is None else await self._stream.read(_PIECE)
            if not data:
                raise RedisConnectionError("Connection closed by server.")
            self._left -= len(data)
            if self._left < 0:
                raise InvalidResponse(f"it sent more than {OPENING_BYTES} bytes before the connection was open")
            try:
                self._replies += self._parser.feed(data)
            except ProtocolError as error:
                raise InvalidResponse(str(error)) from None
        reply = self._replies.popleft()
        if not isinstance(reply, ReplyError):
            return reply
        meaning = cast("Exception", self.parse_error(str(reply)))  # type: ignore[no-untyped-call]
        if isinstance(meaning, RedisConnectionError):
            raise meaning
        return meaning
