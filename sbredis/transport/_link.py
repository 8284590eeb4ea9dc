"""A connection until a wire takes it over: the socket, TLS, the handshake, and the first questions.

Importing the connections of redis-py would take twice as long as everything else that a first connection needs. Their
parsers also read replies of any size.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, cast

from sbredis._version import __version__
from sbredis.transport._address import Endpoint
from sbredis.transport._resp import ProtocolError, PythonParser, ReplyError, ReplyLimits
from sbredis.transport._script import Argument, pack

__all__ = ["OPENING_BYTES", "HandshakeError", "Link", "LinkError", "NetworkLink"]

OPENING_BYTES: Final = 1024 * 1024
"""The largest number of bytes that a server may send until the connection is open. Servers send about 10 kB.

Before the handshake has ended, nobody knows who the server is.
"""
_LIMITS: Final = ReplyLimits(bytes=OPENING_BYTES, items=10_000, depth=8)
_ABOUT_US: Final = [
    pack((b"CLIENT", b"SETINFO", b"LIB-NAME", b"sbredis")),
    pack((b"CLIENT", b"SETINFO", b"LIB-VER", __version__)),
]
"""Tell the name and the version of the client, for CLIENT LIST. Servers before 7.2 refuse this."""


class LinkError(Exception):
    """The other side has closed the connection, or does not follow the protocol."""


class HandshakeError(Exception):
    """The server has refused the handshake."""

    def __init__(self, reply: ReplyError) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Link(Protocol):
    """A connection to one server."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The asyncio transport under an open connection; ``None`` for fakeredis, which has none."""
        ...

    @property
    def run_id(self) -> bytes | None:
        """The run id of the server, if it is known without a question."""
        ...

    async def connect(self) -> None:
        """Connect and do the handshake. Raises :class:`HandshakeError`, :class:`LinkError` or ``OSError``."""
        ...

    async def ask(self, packed: Sequence[bytes]) -> list[Any]:
        """Write commands together, while no other code uses the connection. Return the replies, errors as values."""
        ...

    async def hang_up(self) -> None:
        """Close the connection at once. Drop buffered bytes, so that a server that wakes up later does not get them."""
        ...


class NetworkLink(asyncio.Protocol):
    """A connection over the network or over a Unix socket. It is asyncio's protocol until a stream takes its place."""

    run_id = None

    def __init__(
        self,
        endpoint: Endpoint,
        timeout: float,
        *,
        protocol: int,
        credentials: Callable[[], Awaitable[Sequence[str]]],
        database: int = 0,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """``credentials`` returns a user and a password, a password alone, or nothing."""
        self.transport: asyncio.Transport | None = None
        self._endpoint = endpoint
        self._timeout = timeout
        self._protocol = protocol
        self._credentials = credentials
        self._database = database
        self._tls = tls
        self._parser = PythonParser(_LIMITS)
        self._replies: list[Any] = []
        self._left = OPENING_BYTES
        self._lost: Exception | None = None
        self._news = asyncio.Event()

    async def connect(self) -> None:
        """Connect and do the handshake."""
        loop, host, port = asyncio.get_running_loop(), self._endpoint.host, self._endpoint.port
        async with asyncio.timeout(self._timeout):
            if port:
                await loop.create_connection(lambda: self, host, port, ssl=self._tls())
            else:
                await loop.create_unix_connection(lambda: self, host)
            await self._shake_hands()

    async def _shake_hands(self) -> None:
        given = await self._credentials()
        needed: list[tuple[Argument, ...]] = []
        if self._protocol == 3:
            user = () if len(given) != 1 else ("default",)
            needed.append(("HELLO", 3, *(("AUTH", *user, *given) if given else ())))
        elif given:
            needed.append(("AUTH", *given))
        if self._database:
            needed.append(("SELECT", self._database))
        replies = await self.ask([*map(pack, needed), *_ABOUT_US])
        for (command, *_), reply in zip(needed, replies, strict=False):
            if isinstance(reply, ReplyError):
                if reply.detail.startswith("unknown command"):  # the reply repeats the password
                    reply = ReplyError(f"ERR the server does not know the command {command!s}")
                raise _refusal(reply)

    async def ask(self, packed: Sequence[bytes]) -> list[Any]:
        """Write commands together, while no other code uses the connection. Return the replies, errors as values."""
        assert self.transport is not None  # it is connected
        if self._lost is None:
            self.transport.write(b"".join(packed))
        while len(self._replies) < len(packed):
            if self._lost is not None:
                # A server that takes no connection says why, and hangs up.
                errors = [each for each in self._replies if isinstance(each, ReplyError)]
                raise next((_refusal(each) for each in errors if _takes_nobody(each)), self._lost)
            self._news.clear()
            await self._news.wait()
        replies, self._replies = self._replies[: len(packed)], self._replies[len(packed) :]
        return replies

    async def hang_up(self) -> None:
        """Close the connection at once, without writing what is buffered."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport; asyncio calls this when the socket is connected."""
        self.transport = cast("asyncio.Transport", transport)
        if self._endpoint.port:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Read replies; asyncio calls this."""
        self._left -= len(data)
        if self._left < 0:
            self._refuse(f"it sent more than {OPENING_BYTES} bytes before the connection was open")
            return
        try:
            self._replies += self._parser.feed(data)
            self._news.set()
        except ProtocolError as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> None:
        """Hang up because of what the server has sent."""
        self._lose(LinkError(why))
        assert self.transport is not None  # it has brought the bytes
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection; asyncio calls this."""
        self._lose(exc or LinkError("Connection closed by server."))

    def _lose(self, why: Exception) -> None:
        self._lost = self._lost or why
        self._news.set()


def _takes_nobody(reply: ReplyError) -> bool:
    """Whether a server has sent this because it takes no connection, and not as the reply to a command."""
    return reply.code == "DENIED" or reply.detail.startswith("max number of clients")


def _refusal(reply: ReplyError) -> Exception:
    """Return the error for an error reply to the handshake.

    A server at its limit of connections says so to everybody, and hangs up.
    """
    return LinkError(reply.detail) if reply.detail.startswith("max number of clients") else HandshakeError(reply)
