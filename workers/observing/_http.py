"""A small HTTP server for the health and the counts of a worker.

It answers GET and HEAD of a few paths, one request a connection, and nothing else. It needs no library: an orchestrator
and Prometheus ask it every few seconds, and nobody else.

It is safe beside strangers on the same machine. Few connections are open at a time, so that nobody takes all of the
process's descriptors: a new one ends the one that is open longest. A port on the loopback interface answers only
requests for it by a loopback name or address, so that no page in a browser reads it under a name of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sbredis._loop_thread import LoopThread
from sbredis.exceptions import WorkerSetupError
from sbredis.workers.observing._prometheus import CONTENT_TYPE

__all__ = ["Answer", "Health", "serving_answers", "serving_http", "serving_http_in_thread"]

_log = logging.getLogger("sbredis.worker")
_LONGEST: Final = 16 * 1024
_TIME: Final = 10.0
_MOST: Final = 32
"""The largest number of connections that are open at a time."""
_ENDING: Final = 2.0
"""The most seconds that the end of the thread is waited for."""


class Health(NamedTuple):
    """Whether something is well, with details for a person who looks."""

    well: bool
    details: dict[str, Any]


Answer = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Returns the status, the content type and the body for the path of a request."""


@asynccontextmanager
async def serving_answers(host: str, port: int, answer: Answer) -> AsyncGenerator[int]:
    """Answer GET and HEAD while the block runs. Gives the port."""
    connections: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= _MOST:
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.transport.abort()
        connections[writer] = None
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
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

    async with serving_answers(host, port, answer) as bound:
        _log.info("health and metrics at http://%s:%d/live, /ready and /metrics", host, bound)
        yield bound


@asynccontextmanager
async def serving_http_in_thread(
    host: str, port: int, *, live: Callable[[], Health], ready: Callable[[], Health], metrics: Callable[[], str]
) -> AsyncGenerator[int]:
    """Do the same from a thread with an event loop of its own, which answers while the caller's event loop is blocked.

    The functions are called in that thread.
    """
    bound: Future[int] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with serving_http(host, port, live=live, ready=ready, metrics=metrics) as number:
                bound.set_result(number)
                await stop.wait()
        except Exception as error:  # noqa: BLE001 -- it is raised where the port is awaited, or logged
            if bound.done():
                _log.exception("the HTTP server has ended because of a defect")
            else:
                bound.set_exception(error)

    thread = LoopThread("sbredis worker http")
    thread.stop_after(serve)
    thread.start()
    try:
        yield await asyncio.shield(asyncio.wrap_future(bound))
    finally:
        thread.post(stop.set)
        await asyncio.wait((asyncio.wrap_future(thread.ended),), timeout=_ENDING)


def _response(head: bytes, answer: Answer, host: str, address: str) -> bytes:
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
