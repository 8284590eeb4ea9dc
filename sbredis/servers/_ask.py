"""One question to one server: just enough of RESP2 to start servers and to watch them.

The transport needs an event loop, and a supervisor has none. This module sends only a few commands with short answers,
one at a time.
"""

from __future__ import annotations

import re
import socket
import time
from typing import TypeAlias

from sbredis.exceptions import ScriptRefusedError

__all__ = ["Address", "Reply", "ask"]

Address: TypeAlias = tuple[str, int] | str
"""The address of a server: host and port, or the path of its unix socket."""

Reply: TypeAlias = "int | str | ScriptRefusedError | list[Reply] | None"
"""An answer. An error inside an array is returned as a value. An answer that is itself an error is raised."""


_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_BYTES = 64 * 1024 * 1024
"""The largest size of an answer."""
_LINE = 64 * 1024
"""The largest size of a line: of a number, or of a text that is no string of known length."""
_DEPTH = 16
"""The largest depth of nested lists in an answer."""


def ask(address: Address, *arguments: str | int, timeout: float = 5.0, password: str | None = None) -> Reply:
    """Connect, authenticate if there is a password, send one command, and return its answer.

    Texts are UTF-8. Bytes that are not UTF-8 are returned as surrogate escapes. ``timeout`` bounds the whole exchange.

    Raises :class:`~sbredis.exceptions.ScriptRefusedError` when the server answers with an error, and :class:`OSError`
    when it cannot be reached, hangs up, does not answer in time, or is no such server.
    """
    deadline = time.monotonic() + timeout
    with _connected(address, timeout) as connection:
        exchange = _Exchange(connection, deadline)
        if password is not None:
            exchange.send(("AUTH", password))
            _raised(exchange.reply())
        exchange.send(arguments)
        return _raised(exchange.reply())


def _connected(address: Address, timeout: float) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, timeout=timeout)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _raised(reply: Reply) -> Reply:
    if isinstance(reply, ScriptRefusedError):
        raise reply
    return reply


def _foreign(line: bytes) -> ConnectionError:
    return ConnectionError(f"the answer is not from a Redis server: {line[:40]!r}")


class _Exchange:
    """An exchange over a connection: commands are sent and replies are read, with one deadline for all of it."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._buffer = bytearray()
        self._left = _BYTES

    def send(self, arguments: tuple[str | int, ...]) -> None:
        encoded = [str(argument).encode("utf-8", "surrogateescape") for argument in arguments]
        frame = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in encoded)
        self._arm()
        self._connection.sendall(frame)

    def reply(self, depth: int = 0) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:].decode("utf-8", "surrogateescape")
        if kind == b"+":
            return rest
        if kind == b"-":
            code, _, detail = rest.partition(" ")
            return ScriptRefusedError(code, detail)
        if kind == b":":
            return self._number(line, -(2**63))
        if kind == b"$":
            return None if rest == "-1" else self._bulk(self._number(line, 0))
        if kind == b"*" and depth < _DEPTH:
            return None if rest == "-1" else [self.reply(depth + 1) for _ in range(self._number(line, 0))]
        raise _foreign(line)

    def _number(self, line: bytes, least: int) -> int:
        found = _NUMBER.fullmatch(line, 1)
        number = int(found[0]) if found else least - 1
        if number < least:
            raise _foreign(line)
        return number

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", 0, _LINE)) < 0:
            if len(self._buffer) >= _LINE:
                raise _foreign(bytes(self._buffer[:40]))
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _bulk(self, length: int) -> str:
        while len(self._buffer) < length + 2:
            self._more()
        text = self._buffer[:length].decode("utf-8", "surrogateescape")
        del self._buffer[: length + 2]
        return text

    def _more(self) -> None:
        self._arm()
        received = self._connection.recv(65536)
        if not received:
            raise ConnectionError("the server closed the connection")
        self._left -= len(received)
        if self._left < 0:
            raise ConnectionError(f"the answer has more than {_BYTES} bytes")
        self._buffer += received

    def _arm(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the server did not answer in time")
        self._connection.settimeout(remaining)
