"""One server as calls see it: a connection for calls, and one for flushes that end in WAIT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sbredis.exceptions import Outcome
from sbredis.transport._address import Endpoint
from sbredis.transport._facts import ServerFacts
from sbredis.transport._opening import Opener, WireHolder
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._script import Call, Command
from sbredis.transport._wire import Wire

__all__ = ["Node"]

_WAIT_MILLISECONDS = 250


class Node:
    """A server that serves slots, or did."""

    def __init__(self, endpoint: Endpoint, opener: Opener, replicas: Callable[[ServerFacts], int | None]) -> None:
        self.endpoint = endpoint
        self.calls = WireHolder(endpoint, opener)
        self.durable = DurableLane(endpoint, opener, replicas)

    @property
    def suspected(self) -> bool:
        """It owes an answer, or could not be reached: others are asked first."""
        return self.calls.failing or any(wire.silent for wire in self.wires)

    @property
    def wires(self) -> list[Wire]:
        """The connections that are open."""
        return [wire for holder in (self.calls, self.durable.holder) if (wire := holder.wire) and holder.open]

    async def execute(self, call: Call, deadline: float, *, asking: bool, replicated: bool) -> Any:
        """One attempt: the reply, or a :class:`Failure`."""
        if replicated:
            return await self.durable.execute(call, deadline, asking=asking)
        wire = await self.calls.get(deadline)
        if isinstance(wire, Failure):
            return wire
        if not await wire.room(deadline):
            return wire.failure or Failure(
                FailureKind.FULL, f"the queue of calls to {self.endpoint} is full", endpoint=self.endpoint
            )
        return await wire.submit(call, deadline, asking=asking)

    def retire(self) -> bool:
        """Another server has taken over: close what is not in use, and do not wait for the rest as long as usual.

        Returns whether anything is left.
        """
        for wire in self.wires:
            if wire.owes:
                wire.depose()
            else:
                wire.fail("the server is no longer part of the cluster's map")
        return bool(self.wires) or self.calls.opening or self.durable.holder.opening

    def reinstate(self) -> None:
        """It is a master, perhaps again."""
        for wire in self.wires:
            wire.deposed = False


class _Waiting:
    """A call on its way through a durable flush."""

    __slots__ = ("asking", "call", "deadline", "future", "sent")

    def __init__(self, call: Call, deadline: float, asking: bool, future: asyncio.Future[Any]) -> None:
        self.call = call
        self.deadline = deadline
        self.asking = asking
        self.future = future
        self.sent = False


class DurableLane:
    """Calls that are answered when every replica of the shard has them.

    Whatever has gathered while one flush waited goes into the next: one WAIT serves them all, on a connection of
    their own, since everything behind a stalled WAIT stalls too. The script and its WAIT share the connection, as
    WAIT counts what *it* wrote.
    """

    def __init__(self, endpoint: Endpoint, opener: Opener, replicas: Callable[[ServerFacts], int | None]) -> None:
        self.endpoint = endpoint
        self.holder = WireHolder(endpoint, opener)
        self._opener = opener
        self._replicas = replicas
        self._queue: list[_Waiting] = []
        self._flushing = False
        self._progress = ""
        """What the last WAIT said, for those who cannot wait any longer."""

    async def execute(self, call: Call, deadline: float, *, asking: bool) -> Any:
        """One attempt: the reply once all replicas have confirmed it, or a :class:`Failure`."""
        limits = self._opener.limits
        if len(self._queue) >= limits.calls:
            return Failure(FailureKind.FULL, f"the queue of durable calls to {self.endpoint} is full")
        waiting = _Waiting(call, deadline, asking, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if not self._flushing:
            self._flushing = True
            self._opener.tasks.start_soon(self._flush_all)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiting.future
        except TimeoutError:
            outcome = Outcome.UNKNOWN if waiting.sent else Outcome.NEVER_SENT
            said = self._progress if waiting.sent else "it waited for the replicas to confirm what was sent before it"
            return Failure(FailureKind.TIMED_OUT, said, outcome=outcome, endpoint=self.endpoint)

    async def _flush_all(self) -> None:
        batch: list[_Waiting] = []
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                batch = [waiting for waiting in batch if not waiting.future.done()]
                await self._flush(batch)
        finally:
            self._flushing = False
            # Whoever has not been answered by now never will be: the transport was closed.
            for waiting in (*batch, *self._queue):
                outcome = Outcome.UNKNOWN if waiting.sent else Outcome.NEVER_SENT
                self._settle(waiting, Failure(FailureKind.CLOSED, "the transport was closed", outcome=outcome))
            self._queue.clear()

    async def _flush(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        last = max(waiting.deadline for waiting in batch)
        wire = await self.holder.get(last)
        if isinstance(wire, Failure):
            for waiting in batch:
                self._settle(waiting, wire)
            return
        replicas = self._replicas(wire.facts)
        if not replicas:
            # Perhaps only for a moment: a replica that has just become the master has none yet.
            self._opener.on_trouble(self.endpoint)
            known = "has no replica that could confirm it" if replicas == 0 else "does not say how many replicas it has"
            unserved = Failure(FailureKind.UNSERVED, f"durability=replicated, and it {known}", endpoint=self.endpoint)
            for waiting in batch:
                self._settle(waiting, unserved)
            return
        self._progress = f"{replicas} replicas have not confirmed it yet"
        replies: list[tuple[_Waiting, asyncio.Future[Any]]] = []
        for waiting in batch:
            waiting.sent = True
            replies.append((waiting, wire.submit(waiting.call, waiting.deadline, asking=waiting.asking)))
        confirmed = await self._confirm(wire, replicas, last)
        for waiting, future in replies:
            reply = await future
            if isinstance(reply, Failure) or confirmed == replicas:
                self._settle(waiting, reply)
            elif isinstance(confirmed, Failure):
                self._settle(waiting, _unconfirmed(confirmed))
            else:
                unconfirmed = Failure(FailureKind.UNCONFIRMED, self._progress, "", Outcome.UNKNOWN, self.endpoint)
                self._settle(waiting, unconfirmed)

    async def _confirm(self, wire: Wire, replicas: int, last: float) -> int | Failure:
        """WAIT, in short turns, so that the connection is never silent for long, until all have confirmed or nobody
        waits.
        """
        loop = asyncio.get_running_loop()
        while True:
            left = last - loop.time()
            milliseconds = max(1, min(_WAIT_MILLISECONDS, int(left * 1000)))
            said = await wire.submit(Command("WAIT", replicas, milliseconds), last + 1.0)
            if isinstance(said, Failure):
                return said
            confirmed = min(int(said), replicas)
            self._progress = f"{confirmed} of {replicas} replicas confirmed it"
            if confirmed == replicas or left <= 0:
                return confirmed

    @staticmethod
    def _settle(waiting: _Waiting, reply: Any) -> None:
        if not waiting.future.done():
            waiting.future.set_result(reply)


def _unconfirmed(failure: Failure) -> Failure:
    """A failed WAIT, for a call that the master has done."""
    if failure.kind is FailureKind.LOST:
        return replace(failure, outcome=Outcome.UNKNOWN)
    said = f"WAIT was answered with {failure.code} {failure.detail}" if failure.code else failure.detail
    return replace(failure, kind=FailureKind.UNCONFIRMED, detail=said, outcome=Outcome.UNKNOWN)
