"""A small HTTP server for the health and the counts of a worker.

It answers GET and HEAD of three paths, one request a connection, and nothing else. It needs no library: an orchestrator
and Prometheus ask it every few seconds, and nobody else.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sbredis.exceptions import WorkerSetupError
from sbredis.workers.observing._prometheus import CONTENT_TYPE

__all__ = ["Health", "address_of", "serving_http"]

_log = logging.getLogger("sbredis.worker")
_LONGEST: Final = 16 * 1024
_TIME: Final = 10.0


class Health(NamedTuple):
    """Whether something is well, with details for a person who looks."""

    well: bool
    details: dict[str, Any]


def address_of(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which means 127.0.0.1."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or not 0 <= int(port) <= 65535:
        raise ValueError(f"the address of the HTTP port must be HOST:PORT or PORT, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


@asynccontextmanager
async def serving_http(
    host: str, port: int, *, live: Callable[[], Health], ready: Callable[[], Health], metrics: Callable[[], str]
) -> AsyncGenerator[int]:
    """Serve ``/live``, ``/ready`` and ``/metrics`` while the block runs. Gives the port."""

    def answer(path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, metrics().encode()
        health = {"/live": live, "/ready": ready}.get(path)
        if health is None:
            return HTTPStatus.NOT_FOUND, "text/plain", b"/live, /ready and /metrics\n"
        found = health()
        status = HTTPStatus.OK if found.well else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps({"well": found.well, **found.details}).encode() + b"\n"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_TIME):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_response(head, answer))
                    await writer.drain()
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(handle, host, port, limit=_LONGEST)
    except OSError as error:
        raise WorkerSetupError(f"The HTTP port {host}:{port} cannot be used: {error.strerror or error}.") from error
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        _log.info("health and metrics at http://%s:%d/live, /ready and /metrics", host, bound)
        yield bound


def _response(head: bytes, answer: Callable[[str], tuple[HTTPStatus, str, bytes]]) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if method in {"GET", "HEAD"}:
        status, content_type, body = answer(rest.partition(" ")[0].partition("?")[0])
    else:
        status, content_type, body = HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"GET or HEAD\n"
    made = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return made if method == "HEAD" else made + body
