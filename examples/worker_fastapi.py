"""A web application and a worker share one process: the application sends, and the worker handles.

python examples/worker_fastapi.py [CONNECTION STRING]

A server runs `make_app()` like any application, with `uvicorn --factory worker_fastapi:make_app`. It needs the package
fastapi.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

try:
    from fastapi import FastAPI
    from pydantic import BaseModel
except ModuleNotFoundError as error:
    sys.exit(f"This example needs FastAPI ({error}): run pip install fastapi")

from sbredis.workers import Router, Worker

handlers = Router()
placed: asyncio.Queue[str] = asyncio.Queue()


class Order(BaseModel):
    """An order, in the request of the web and in the message."""

    article: str
    count: int


@handlers.queue("orders", create_if_missing=True)
async def place(order: Order) -> None:
    """Handle an order in the background."""
    placed.put_nowait(f"{order.count} x {order.article}")


def make_app(url: str = "memory://example") -> FastAPI:
    """Return the application, with its worker in its lifespan."""
    worker = Worker(url)
    worker.include(handlers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with worker.running():  # installs no signal handlers: those are the server's
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def accept(order: Order) -> None:
        await worker.send("orders", order)

    return app


async def main(url: str = "memory://example") -> None:
    """Let the application answer one request, as a server would do it, and wait for its handler."""
    app = make_app(url)
    async with app.router.lifespan_context(app):
        print("answered with", await post(app, "/orders", b'{"article": "teapot", "count": 2}'))
        print("handled:", await placed.get())


async def post(app: FastAPI, path: str, body: bytes) -> int:
    """Send a request to an application without a network, and return the status of the answer."""
    status = 0
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "headers": headers,
        "query_string": b"",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        nonlocal status
        status = event.get("status", status)

    await app(scope, receive, send)
    return status


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
