"""Dramatiq with Redis. Its senders and actors are plain functions.

A task for each send would only add threads that wait for the same interpreter lock, so the sends are plain calls, one
after the other, which is the fastest way. The worker has its 8 threads, which is the default, for the same reason.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.trial import Handled, Peer


class Dramatiq:
    """An actor and its worker."""

    def __init__(self, url: str) -> None:
        self._dramatiq: Any = importlib.import_module("dramatiq")
        self._broker: Any = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=url)
        self._dramatiq.set_broker(self._broker)
        self._actor: Any = None

    async def open(self, handled: Handled) -> None:
        """Declare the actor."""

        def handle(body: str) -> None:  # noqa: ARG001 -- the body is what is measured
            handled()

        self._actor = self._dramatiq.actor(handle, queue_name="bench")

    async def send(self, body: str) -> None:
        """Send one message."""
        self._actor.send(body)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Run a worker in this process."""
        worker = self._dramatiq.Worker(self._broker)
        worker.start()
        try:
            yield
        finally:
            worker.stop()

    async def left(self) -> int:
        """Return the number of messages that wait or are being handled."""
        return int(self._broker.client.hlen("dramatiq:bench.msgs"))

    async def close(self) -> None:
        """Close the connection."""
        self._broker.close()


def make(url: str) -> Peer:
    """Return the framework for a server."""
    return Dramatiq(url)
