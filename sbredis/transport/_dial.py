"""Making connections: the only module that knows redis-py's connection classes, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from asyncio import StreamReader
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from redis._parsers.base import BaseParser
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.driver_info import DriverInfo
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from sbredis._version import __version__
from sbredis.exceptions import ServerUnsuitableError
from sbredis.transport._address import Endpoint, Target, TlsOptions
from sbredis.transport._memory import memory_server
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._resp import ProtocolError, PythonParser, ReplyError, ReplyLimits

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

__all__ = ["Dialer", "Link", "accepted", "ask", "dialling_failed", "hang_up", "reply_error", "socket_of"]


_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""The reasons that the TLS library gives for an answer that is not TLS."""


class Link(Protocol):
    """The methods of redis-py's ``Connection`` that the transport uses."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...
    async def read_response(self, *, disable_decoding: bool = False, disconnect_on_error: bool = True) -> Any: ...


def reply_error(error: BaseException) -> ReplyError | None:
    """Return the error reply that redis-py raised as ``error``; ``None`` if ``error`` is about the connection.

    redis-py gives some replies the class of a connection error (LOADING, NOAUTH). A reply is recognised by the status
    code that it was parsed from.
    """
    if not isinstance(error, (ResponseError, BusyLoadingError, AuthenticationError, AuthorizationError)):
        return None
    return ReplyError(f"{error.status_code} {error}" if error.status_code else str(error))


class Dialer:
    """A maker of unopened connections to the servers of one target, with its credentials and its TLS."""

    def __init__(self, target: Target, credential_provider: CredentialProvider | None, connect_timeout: float) -> None:
        self._target = target
        self._driver = _driver()
        self._connect_timeout = connect_timeout
        self._credentials: dict[str, Any] = (
            {"credential_provider": credential_provider}
            if credential_provider
            else {"username": target.username, "password": target.password}
        )
        self._tls = _tls_arguments(target.tls) if target.tls else None
        self._memory = {"server": memory_server(target.path)} if target.kind == "memory" else None

    @property
    def secure(self) -> bool:
        """Whether connections over the network use TLS."""
        return self._tls is not None

    @property
    def strips_shebang(self) -> bool:
        """Whether scripts are sent without their first line ``#!lua``: fakeredis does not accept this line."""
        return self._memory is not None

    def server(self, endpoint: Endpoint, *, protocol: int = 3) -> Link:
        """Return a connection to a data server."""
        common = self._common(protocol) | self._credentials | {"db": self._target.database}
        if self._memory is not None:
            connect: Callable[..., Link] = import_module("fakeredis.aioredis").FakeAsyncRedisConnection
            return connect(**(common | self._memory))
        if not endpoint.port:
            return UnixDomainSocketConnection(path=endpoint.host, parser_class=OpeningParser, **common)
        return self._network(endpoint, common)

    def sentinel(self, endpoint: Endpoint) -> Link:
        """Return a connection to a Sentinel."""
        credentials = {"username": self._target.sentinel_username, "password": self._target.sentinel_password}
        return self._network(endpoint, self._common(3) | credentials)

    def _common(self, protocol: int) -> dict[str, Any]:
        # Set no socket time-out: each call has its own deadline, and one late reply must not end the connection for
        # other calls.
        return {
            "protocol": protocol,
            "driver_info": self._driver,
            "socket_timeout": None,
            "socket_connect_timeout": self._connect_timeout,
        }

    def _network(self, endpoint: Endpoint, arguments: dict[str, Any]) -> Link:
        arguments = arguments | {"host": endpoint.host, "port": endpoint.port, "socket_keepalive": True}
        arguments["parser_class"] = OpeningParser
        return SSLConnection(**(arguments | self._tls)) if self._tls is not None else Connection(**arguments)


@cache
def _driver() -> DriverInfo:
    """Return the name that connections tell the server. redis-py reads its own version from its files each time."""
    return DriverInfo().add_upstream_driver("sbredis", __version__)


async def ask(link: Link, packed: Sequence[bytes]) -> list[Any]:
    """Write commands together on a connection that no other code uses yet. Return the replies, errors as values."""
    transport = socket_of(link)
    try:
        # Write in pieces, because fakeredis copies the rest of a piece for each argument that it reads.
        await link.send_packed_command(packed, check_health=False)
    except BaseException:
        # redis-py forgets the socket now, and lets it write its buffer first. So nobody else can abort it.
        if transport is not None:
            transport.abort()
        raise
    replies: list[Any] = []
    for _ in packed:
        try:
            replies.append(await link.read_response(disable_decoding=True, disconnect_on_error=False))
        except RedisError as error:
            reply = reply_error(error)
            if reply is None:
                raise
            replies.append(reply)
    return replies


def socket_of(link: Link) -> asyncio.Transport | None:
    """Return the asyncio transport under an open connection; ``None`` for fakeredis, which has none."""
    transport = getattr(getattr(link, "_writer", None), "transport", None)
    return transport if isinstance(transport, asyncio.Transport) or hasattr(transport, "set_protocol") else None


def dialling_failed(error: BaseException, endpoint: Endpoint) -> Failure:
    """Return the failure that says why a connection could not be opened."""
    reply = reply_error(error)
    if reply is not None:
        failure = failure_of_reply(reply.code, reply.detail, endpoint)
        if failure.kind is FailureKind.REFUSED:
            return Failure(
                FailureKind.UNSUITABLE,
                f"{endpoint} refused the handshake: {reply.code} {reply.detail}",
                endpoint=endpoint,
            )
        return failure
    reason = str(error)
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLError):
            hint = " (does the server use TLS? redis:// connects without TLS)" if cause.reason in _NOT_TLS else ""
            return Failure(FailureKind.UNSUITABLE, f"TLS with {endpoint} failed: {cause}{hint}", endpoint=endpoint)
        if isinstance(cause, socket.gaierror):
            reason = f"its name cannot be resolved ({cause.strerror})"
        elif isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno).lower()
    return Failure(FailureKind.UNREACHABLE, f"{endpoint} cannot be reached: {reason}", endpoint=endpoint)


def accepted(error: BaseException) -> bool:
    """Whether the other side accepted the connection and broke it afterwards."""
    return reply_error(error) is None and not any(
        isinstance(cause, (ConnectionRefusedError, socket.gaierror, TimeoutError, FileNotFoundError))
        for cause in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from: redis-py wraps the original error."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def hang_up(link: Link) -> None:
    """Close a connection at once. Drop buffered bytes, so that a server that wakes up later does not get them."""
    transport = socket_of(link)
    if transport is not None:
        transport.abort()
    try:
        await link.disconnect(nowait=True)
    except (RedisError, OSError, TimeoutError):
        return  # the connection is closed even if disconnecting fails


def _tls_arguments(options: TlsOptions) -> dict[str, Any]:
    files = {"tls_ca": options.ca_file, "tls_cert": options.certificate_file, "tls_key": options.key_file}
    for name, path in files.items():
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise ServerUnsuitableError(f"{name}: the file {path} cannot be read: {error.strerror}.") from None
    return {
        "ssl_cert_reqs": "none" if options.verify == "none" else "required",
        "ssl_check_hostname": options.verify == "full",
        "ssl_ca_certs": options.ca_file,
        "ssl_certfile": options.certificate_file,
        "ssl_keyfile": options.key_file,
    }


# -- the handshake -----------------------------------------------------------------------------------------------------

OPENING_BYTES = 1024 * 1024
"""The largest number of bytes that a server may send until the connection is open. Servers send about 10 kB."""
_LIMITS = ReplyLimits(bytes=OPENING_BYTES, items=10_000, depth=8)
_PIECE = 64 * 1024


class OpeningParser(BaseParser):
    """The parser of replies while a connection is being opened: redis-py asks it for the answers to the handshake.

    Before the handshake has ended, nobody knows who the server is. redis-py's own parsers take replies of any size, so
    this one takes their place. It reads a limited number of bytes in all.
    """

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
