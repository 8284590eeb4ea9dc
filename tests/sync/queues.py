"""Helpers of the made tests, with the names that they have in tests/aio/queues.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from sbredis import ServiceBusReceivedMessage, ServiceBusReceiver
from tests.aio import queues
from tests.aio.queues import PATIENT, bodies

__all__ = ["PATIENT", "HandClock", "bodies", "receive_exactly"]


class HandClock(queues.HandClock):
    """A clock that the thread of a test moves, and that the loops of clients watch."""

    def when_moved(self, moved: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(moved)

        return super().when_moved(tell)


def receive_exactly(receiver: ServiceBusReceiver, count: int, seconds: float = 60.0) -> list[ServiceBusReceivedMessage]:
    """Receive this number of messages. One call may return fewer of them if the machine is busy."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        page = receiver.receive_messages(count - len(messages), seconds)
        assert page, f"{len(messages)} of {count} messages came, and no further one within {seconds} s"
        messages += page
    return messages
