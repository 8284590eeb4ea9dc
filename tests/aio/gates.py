"""Support for tests of sending: the messages in a queue, and a gate that holds or breaks the calls of a client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Literal, Self

from sbredis.aio import ServiceBusClient
from sbredis.engine import NO_CALL_ID, Partition, decode, perform, read_record
from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusConnectionError
from sbredis.transport import Script, Transport
from tests.aio.diverting import divert
from tests.aio.queues import Queue

__all__ = ["Gate", "bodies_at", "stored_bodies"]

Fate = Literal["passes", "never arrives", "is not answered", "is lost"]


async def bodies_at(transport: Transport, partition: Partition) -> list[str]:
    """Return the bodies of a partition's messages in all states, ordered by sequence number."""
    found: list[str] = []
    start = 0
    while True:
        shown = await perform(transport, partition.peek(start, 1000, call_id=NO_CALL_ID))
        if not shown.messages:
            return found
        for each in shown.messages:
            body = decode(read_record(each.record).payload).body
            assert isinstance(body, bytes)
            found.append(body.decode())
        start = int(shown.messages[-1].name) + 1


async def stored_bodies(queue: Queue) -> list[list[str]]:
    """Return, for each partition of a queue, the bodies of its messages."""
    return [await bodies_at(queue.transport, partition) for partition in queue.partitions]


class HeldCall:
    """A call that has reached the gate."""

    def __init__(self, key: bytes, arguments: Any, timeout: float) -> None:
        self.key = key
        """The first key of the call, which belongs to the partition."""
        self.arguments = arguments
        self.timeout = timeout
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Gate:
    """A gate for the calls of one script. While the gate is shut, the test lets the calls through one by one.

    ``fates`` decides what happens to the next calls: a call passes, fails before it is sent, is lost on the way, or is
    executed without an answer.
    """

    def __init__(self, client: ServiceBusClient, script: str = "send") -> None:
        self._transport = client._connection.transport
        self._through = self._transport.call
        self._script = script
        self.shut = False
        self.fates: deque[Fate] = deque()
        self.arrived: list[HeldCall] = []
        self._arrival = asyncio.Event()
        self.waiting: deque[HeldCall] = deque()

    def __enter__(self) -> Self:
        divert(self._transport, self._call)
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        divert(self._transport, self._through)

    def open(self) -> None:
        """Let all waiting and later calls through."""
        self.shut = False
        while self.waiting:
            self.let_one()

    def let_one(self) -> None:
        """Let the first waiting call through."""
        call = self.waiting.popleft()
        if not call.released.done():
            call.released.set_result(None)

    async def reached(self, count: int = 1) -> None:
        """Wait until this number of calls has reached the gate."""
        try:
            async with asyncio.timeout(60):
                while len(self.arrived) < count:
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            raise AssertionError(f"{len(self.arrived)} calls have arrived, not {count}") from None

    async def _call(self, script: Script, keys: Any, arguments: Any = (), **options: Any) -> Any:
        if script.name != self._script:
            return await self._through(script, keys, arguments, **options)
        call = HeldCall(keys[0], arguments, options["timeout"])
        self.arrived.append(call)
        self._arrival.set()
        fate = self.fates.popleft() if self.fates else "passes"
        if self.shut:
            self.waiting.append(call)
            await call.released
        if fate == "never arrives":
            raise ServiceBusConnectionError("Unreachable: simulated by the test.", outcome=Outcome.NEVER_SENT)
        if fate == "is lost":
            raise ServiceBusCommunicationError("Lost on the way: simulated by the test.", outcome=Outcome.UNKNOWN)
        if fate == "is not answered":
            # The server executes the call even if the caller has little time left.
            await self._through(script, keys, arguments, **{**options, "timeout": 60})
            raise ServiceBusCommunicationError("The answer was lost: simulated by the test.", outcome=Outcome.UNKNOWN)
        return await self._through(script, keys, arguments, **options)
