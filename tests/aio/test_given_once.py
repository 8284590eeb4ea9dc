"""A message that is sent to waiting receivers is given to one of them, even if calls of the receivers come late.

The tests count how often handlers begin a message. Effects would not show the fault: of two handlers of a message, only
one can complete it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sbredis.aio import ServiceBusReceiver
from sbredis.exceptions import MessageLockLostError
from sbredis.servers import LocalServer
from tests.aio.gates import Gate
from tests.aio.queues import HandClock, Queue, queue_at
from tests.waiting import eventually

LOCK = 300_000
LONGER_THAN_NEWS_WAITS = 1.3
"""A partition waits for one second until a receiver uses its news."""


@contextmanager
def stopped(server: LocalServer) -> Iterator[None]:
    """Stop the process of a server, and continue it at the end of the block."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


class Handlers:
    """Handlers of messages. They begin each message that a receiver gets, and complete it when they may."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        """How often each message was begun."""
        self.may_complete = asyncio.Event()

    @asynccontextmanager
    async def waiting(self, queue: Queue, *receivers: ServiceBusReceiver) -> AsyncIterator[None]:
        """Handle the messages of receivers, which wait in this order."""
        tasks: list[asyncio.Task[None]] = []
        for receiver in receivers:
            tasks.append(asyncio.create_task(self._handle(receiver)))
            await queue.wait_for_waiters(len(tasks))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _handle(self, receiver: ServiceBusReceiver) -> None:
        while True:
            for message in await receiver.receive_messages(1, 600):
                self.begun[str(message)] += 1
                await self.may_complete.wait()
                try:
                    await receiver.complete_message(message)
                except MessageLockLostError:
                    continue  # another handler has the message

    async def complete_all(self, queue: Queue) -> None:
        """Let the handlers complete what they have begun, until the queue is empty."""
        self.may_complete.set()
        await eventually(lambda: queue.counts_are(0, 0))


async def test_a_server_that_pauses_after_a_send_gives_the_message_to_one_receiver(server: LocalServer) -> None:
    """The partition has pushed the message, and the server pauses before the receiver is told or can make a call."""
    handlers = Handlers()
    async with (
        queue_at(server.url, lock_duration=LOCK) as queue,
        queue.other_client() as other,
        handlers.waiting(queue, queue.receiver(), other.get_queue_receiver("q")),
    ):
        await queue.send("a")
        with stopped(server):
            await asyncio.sleep(LONGER_THAN_NEWS_WAITS)
        await handlers.complete_all(queue)
    assert handlers.begun == {"a": 1}


async def test_calls_that_reach_the_partition_late_are_given_no_message_twice(url: str) -> None:
    """The receivers of one client are woken together, and their calls take longer than the partition waits for them."""
    handlers, clock, count = Handlers(), HandClock(), 40
    async with (
        queue_at(url, clock=clock, lock_duration=LOCK) as queue,
        handlers.waiting(queue, *(queue.receiver() for _ in range(count))),
    ):
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            await queue.fill(count)
            await gate.reached()
            clock.passed += LONGER_THAN_NEWS_WAITS
            await queue.process_due()
        await handlers.complete_all(queue)
    assert handlers.begun == {str(number): 1 for number in range(count)}
