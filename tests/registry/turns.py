"""Transports for tests of events between calls: one is interrupted, one records, one makes calls wait.

A crowd of clients makes its calls through the last one, in random order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sbredis.engine import ScriptCaller
from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.transport import Argument, Script

__all__ = ["Crowd", "Cut", "RecordingTransport", "Turns", "Waiting"]


class Cut:
    """Passes calls to another transport up to a certain call and then stops, as if the process had ended.

    That call is the last one that arrives, or with ``before`` the first one that does not. The caller does not learn
    whether this call arrived.
    """

    def __init__(self, transport: ScriptCaller, at: int, *, before: bool) -> None:
        self._transport = transport
        self._at = at
        self._before = before
        self.calls = 0

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **how: Any) -> Any:
        self.calls += 1
        number = self.calls
        if number < self._at or (number == self._at and not self._before):
            reply = await self._transport.call(script, keys, arguments, **how)
            if number < self._at:
                return reply
        raise ServiceBusCommunicationError("The connection was cut by the test.", outcome=Outcome.UNKNOWN)


@dataclass
class RecordingTransport:
    """Passes calls to another transport, and records each script and the time limit of its call."""

    transport: ScriptCaller
    calls: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    again: int = 0
    """How often a call that deletes a partition reports that a further step is needed."""

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **how: Any) -> Any:
        self.calls.append((script.name, how["timeout"]))
        if script.name == "destroy" and self.again:
            self.again -= 1
            return [1, b"", b""]
        return await self.transport.call(script, keys, arguments, **how)


@dataclass
class Waiting:
    """A call that waits for its turn."""

    client: int
    script: Script
    keys: Sequence[bytes]
    arguments: Sequence[Argument]
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass
class Turns:
    """Several clients of one transport. A test lets their calls through one by one, in any order."""

    transport: ScriptCaller
    waiting: list[Waiting] = field(default_factory=list[Waiting])

    def client(self, number: int) -> ScriptCaller:
        return _Client(self, number)

    async def let_through(self, call: Waiting) -> None:
        """Make this call, and return once all tasks wait again or have ended."""
        self.waiting.remove(call)
        reply, refused = None, None
        try:
            reply = await self.transport.call(call.script, call.keys, call.arguments)
        except ServiceBusError as error:
            refused = error
        if not call.answer.done():  # the caller still waits
            if refused is None:
                call.answer.set_result(reply)
            else:
                call.answer.set_exception(refused)
        await self.quiet()

    async def let_all_through(self) -> None:
        """Make all calls that wait, and those that follow."""
        while self.waiting:
            await self.let_through(self.waiting[0])

    async def quiet(self) -> None:
        """Let all tasks run until they wait. Only calls take time, so a few turns of the loop are enough."""
        for _ in range(12):
            await asyncio.sleep(0)


@dataclass
class _Client:
    turns: Turns
    number: int

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **_: Any) -> Any:
        call = Waiting(self.number, script, keys, arguments)
        self.turns.waiting.append(call)
        return await call.answer


class Crowd:
    """Several clients that each perform one operation on the same entity, with their calls in random order.

    Up to ``dying`` of the clients end before their operation is finished.
    """

    def __init__(self, transport: ScriptCaller, operations: list[str], chance: random.Random, dying: int = 0) -> None:
        self._turns = Turns(transport)
        self._operations = operations
        self._chance = chance
        self._dying = dying

    async def perform(self, what: str, client: ScriptCaller) -> None:
        """Perform an operation. Errors end the test."""
        raise NotImplementedError

    async def look(self) -> None:
        """Check the stored data. This is done before the first call, and after each call."""

    async def act(self) -> None:
        """Run the operations, one call at a time."""
        turns = self._turns
        await self.look()
        clients = [turns.client(number) for number in range(len(self._operations))]
        tasks = [asyncio.create_task(self.perform(*each)) for each in zip(self._operations, clients, strict=True)]
        await turns.quiet()
        while turns.waiting or not all(task.done() for task in tasks):
            if not turns.waiting:
                await turns.quiet()
                continue
            call = self._chance.choice(turns.waiting)
            if self._dying and self._chance.random() < 0.2 and not tasks[call.client].done():
                self._dying -= 1
                await self._die(call.client, tasks[call.client])
            else:
                await turns.let_through(call)
                await self.look()
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _die(self, client: int, task: asyncio.Task[None]) -> None:
        """End a client. The calls that it has sent may arrive at any later time, or never."""
        for sent in [call for call in self._turns.waiting if call.client == client]:
            if self._chance.random() < 0.5:
                self._turns.waiting.remove(sent)
        task.cancel()
        await self._turns.quiet()
