"""A queue with sessions for a test: send to sessions, count their locks, and find their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSession, ServiceBusSessionReceiver
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from tests.aio.queues import Queue, queue_at

__all__ = ["SessionQueue", "script_of", "session_of", "session_queue_at", "steps"]


class SessionQueue(Queue):
    """A queue that requires sessions."""

    def session(self, name: Any, **options: Any) -> ServiceBusSessionReceiver:
        """Return a receiver of a session."""
        made = self.receiver(session_id=name, **options)
        assert isinstance(made, ServiceBusSessionReceiver)
        return made

    async def send_to(self, session: str, *texts: str, client: ServiceBusClient | None = None, **options: Any) -> None:
        """Send messages with these bodies to a session, one after the other."""
        async with (client or self.client).get_queue_sender(self.entity.name) as sender:
            for text in texts:
                await sender.send_messages(ServiceBusMessage(text, session_id=session, **options))

    async def counts_are(self, active: int, locked: int) -> bool:
        """Return whether these are the message counts. Messages that a session receiver has count as locked."""
        counts = await self.counts()
        return (counts.active, counts.held + counts.locked) == (active, locked)

    async def locked_sessions(self) -> int:
        """Return the number of locked sessions."""
        return sum(len(held) for key, (_, held) in (await self.contents()).items() if key.endswith(":locks"))

    async def is_unused(self) -> bool:
        """Return whether no session is locked and no receiver waits."""
        return not await self.locked_sessions() and not await self.waiters()

    def partition_index(self, session: str) -> int:
        """Return the index of the partition of a session."""
        numbers = list(self.entity.numbers)
        return numbers.index(self.entity.pinned(session).number) if self.entity.partitioned else 0

    def sessions_in(self, place: int, count: int = 1) -> list[str]:
        """Return this number of session names that all belong to the same partition."""
        found: list[str] = []
        number = 0
        while len(found) < count:
            if self.partition_index(f"s{number}") == place:
                found.append(f"s{number}")
            number += 1
        return found

    async def wait_for_acceptors(self, acceptors: int = 1) -> None:
        """Wait until this number of receivers waits for a session in each partition."""
        await self.wait_for_waiters(acceptors)


@asynccontextmanager
async def session_queue_at(url: str, **options: Any) -> AsyncIterator[SessionQueue]:
    """Create a queue that requires sessions."""
    async with queue_at(url, sessions=True, **options) as queue:
        yield SessionQueue(queue.client, queue.entity, queue.url, queue.clock)


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    """Return the session that a receiver has accepted."""
    session = receiver.session
    assert session is not None
    return session


async def steps(count: int) -> None:
    """Let the event loop run for this number of turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def script_of(name: str | object) -> str:
    """Return the script that accepts the session of this name, or the next one."""
    return "grant" if name is NEXT_AVAILABLE_SESSION else "accept_session"
