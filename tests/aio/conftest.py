"""The fixtures that tests of this folder share."""

from __future__ import annotations

from tests.aio.given import clock, partitioned, queue, receiver, sender

__all__ = ["clock", "partitioned", "queue", "receiver", "sender"]
