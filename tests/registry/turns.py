"""Transports for tests of events between calls: one is interrupted, one records, one makes calls wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sbredis.engine import ScriptCaller
from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.transport import Argument, Script

__all__ = ["Cut", "RecordingTransport", "Turns", "Waiting"]

Durability = Literal["master", "replicated"]


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

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument] = (),
        *,
        timeout: float = 60.0,
        repeatable: bool = False,
        durability: Durability | None = None,
        written: Callable[[], None] | None = None,
    ) -> Any:
        self.calls += 1
        number = self.calls
        if number < self._at or (number == self._at and not self._before):
            reply = await self._transport.call(
                script,
                keys,
                arguments,
                timeout=timeout,
                repeatable=repeatable,
                durability=durability,
                written=written,
            )
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

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument] = (),
        *,
        timeout: float = 60.0,
        repeatable: bool = False,
        durability: Durability | None = None,
        written: Callable[[], None] | None = None,
    ) -> Any:
        self.calls.append((script.name, timeout))
        if script.name == "destroy" and self.again:
            self.again -= 1
            return [1, b"", b""]
        return await self.transport.call(
            script, keys, arguments, timeout=timeout, repeatable=repeatable, durability=durability, written=written
        )


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

    async def quiet(self) -> None:
        """Let all tasks run until they wait. Only calls take time, so a few turns of the loop are enough."""
        for _ in range(12):
            await asyncio.sleep(0)


@dataclass
class _Client:
    turns: Turns
    number: int

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument] = (),
        *,
        timeout: float = 60.0,  # noqa: ARG002 - the test decides how long a call takes
        repeatable: bool = False,  # noqa: ARG002 - no call is cut off here
        durability: Durability | None = None,  # noqa: ARG002 - as there is one server
        written: Callable[[], None] | None = None,  # noqa: ARG002 - no caller here measures the time of a call
    ) -> Any:
        call = Waiting(self.number, script, keys, arguments)
        self.turns.waiting.append(call)
        return await call.answer
