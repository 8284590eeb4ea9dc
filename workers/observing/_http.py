"""Serve the health and the counts of a worker over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sbredis._http_server import serving_answers
from sbredis._loop_thread import LoopThread
from sbredis._prometheus_text import CONTENT_TYPE

__all__ = ["Health", "serving_http", "serving_http_in_thread"]

_log = logging.getLogger("sbredis.worker")
_ENDING: Final = 2.0
"""The most seconds that the end of the thread is waited for."""


class Health(NamedTuple):
    """Whether something is well, with details for a person who looks."""

    well: bool
    details: dict[str, Any]


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
