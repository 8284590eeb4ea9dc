"""A small HTTP server for programs that watch: an orchestrator, Prometheus, KEDA.

It answers GET and HEAD of a few paths, one request a connection, and nothing else. It needs no library, because those
programs ask every few seconds, and nobody else asks.

It is safe beside strangers on the same machine. Few connections are open at a time, so that nobody takes all of the
process's descriptors: a new one ends the one that is open longest. A port on the loopback interface answers only
requests for it by a loopback name or address, so that no page in a browser reads it under a name of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from sbredis._quoting import quoted
from sbredis.exceptions import WorkerSetupError

__all__ = ["HttpAnswer", "address_of", "serving_answers"]

_LONGEST: Final = 16 * 1024
"""The largest number of bytes of a request."""
_TIME: Final = 10.0
"""The most seconds that a connection is open."""
_MOST: Final = 32
"""The largest number of connections that are open at a time."""

_ADDRESS: Final = re.compile(r"(?:(?:(?P<name>[^\s/:@\[\]]*)|\[(?P<number>[^\s/@\[\]]+)\]):)?(?P<port>[0-9]{1,5})")

HttpAnswer = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Returns the status, the content type and the body for the path of a request."""


def address_of(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which means 127.0.0.1."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"the address of the HTTP port must be HOST:PORT or PORT, not {quoted(text)}")
    return found["name"] or found["number"] or "127.0.0.1", int(found["port"])


@asynccontextmanager
async def serving_answers(host: str, port: int, answer: HttpAnswer) -> AsyncGenerator[int]:
    """Answer GET and HEAD while the block runs. Gives the port."""
    connections: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= _MOST:
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.transport.abort()
        connections[writer] = None
        try:
            # A program that ends cancels this task, and Python 3.11 would log that as an error.
            with suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError
            ):
                async with asyncio.timeout(_TIME):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_response(head, answer, host, writer.get_extra_info("sockname")[0]))
                    await writer.drain()
        finally:
            connections.pop(writer, None)
            writer.close()

    try:
        server = await asyncio.start_server(handle, host, port, limit=_LONGEST, backlog=_MOST)
    except OSError as error:
        raise WorkerSetupError(f"The HTTP port {host}:{port} cannot be used: {error.strerror or error}.") from error
    try:
        bound: int = server.sockets[0].getsockname()[1]
        yield bound
    finally:
        server.close()


def _response(head: bytes, answer: HttpAnswer, host: str, address: str) -> bytes:
    """Return the response to a request that has come to an address of this machine, under the name ``host``."""
    line, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = line.partition(" ")
    named = [value.strip() for name, _, value in (each.partition(":") for each in fields) if name.lower() == "host"]
    if not all(_may_name(each, host, address) for each in named):
        status, content_type, body = HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"ask for localhost or 127.0.0.1\n"
    elif method in {"GET", "HEAD"}:
        status, content_type, body = answer(rest.partition(" ")[0].partition("?")[0])
    else:
        status, content_type, body = HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"GET or HEAD\n"
    made = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return made if method == "HEAD" else made + body


def _may_name(named: str, host: str, address: str) -> bool:
    """Return whether a request may name this machine so.

    Behind a loopback address only names of the loopback interface count. A page in a browser may have any other name
    point to that address, and would then read the answer.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return True
    name = re.sub(r":[0-9]*$", "", named).strip("[]").lower().rstrip(".")
    if name == host.lower() or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
