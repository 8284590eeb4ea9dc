"""The servers of a transport.

A :class:`Node` is one server as calls see it: a connection for calls, and one for flushes that end in WAIT.
:class:`Nodes` has all servers that are known, and says which of them serves a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from sbredis.exceptions import Outcome
from sbredis.transport._address import Endpoint, Target
from sbredis.transport._forms import CallForm
from sbredis.transport._opening import Opener, WireHolder
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._script import Call, Command
from sbredis.transport._server_facts import ReplicaCount, ServerFacts
from sbredis.transport._slots import SlotMap, parse_redirection
from sbredis.transport._topology import Layout
from sbredis.transport._wire import Wire

__all__ = ["Node", "Nodes"]

_WAIT_MILLISECONDS = 250
_FLUSH_BYTES = 8 * 1024 * 1024


class Node:
    """A server that serves slots, or did so before."""

    def __init__(self, endpoint: Endpoint, opener: Opener, replicas: Callable[[ServerFacts], int | None]) -> None:
        self.endpoint = endpoint
        self.form = opener.form()
        """The form of the calls of both connections."""
        self.judged = False
        """Whether the server was found to be a master that can keep the durability."""
        self.calls = WireHolder(endpoint, opener, self.form)
        self.durable = DurableWire(endpoint, opener, replicas, self.form)

    @property
    def suspected(self) -> bool:
        """Whether the server is late with an answer, or could not be reached. Then other servers are asked first."""
        return self.calls.failing or any(wire.silent for wire in self.wires)

    @property
    def wires(self) -> list[Wire]:
        """The open connections."""
        return [wire for holder in (self.calls, self.durable.holder) if (wire := holder.wire) and holder.open]

    @property
    def facts(self) -> ServerFacts | None:
        """The facts of the server as an open connection has read them; None without one."""
        for holder in (self.calls, self.durable.holder):
            if (wire := holder.wire) is not None and holder.open:
                return wire.facts
        return None

    @property
    def in_reach(self) -> bool:
        """Whether a connection is open, or the first one is being opened and nothing has failed yet."""
        return any(
            holder.open or (holder.opening and not holder.failing) for holder in (self.calls, self.durable.holder)
        )

    async def execute(self, call: Call, deadline: float, *, asking: bool, replicated: bool) -> Any:
        """Make one attempt. Return the reply or a :class:`Failure`."""
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
        """Record that another server has taken over: close idle connections, and wait a shorter time for answers on the
        other connections.

        Returns whether a connection is left, or is being opened.
        """
        for wire in self.wires:
            if wire.owes:
                wire.depose()
            else:
                wire.fail("the server is no longer part of the cluster's map")
        return bool(self.wires) or self.calls.opening or self.durable.holder.opening

    def reinstate(self) -> None:
        """Record that the server is a master, perhaps after it was replaced."""
        for wire in self.wires:
            wire.deposed = False


class _DurableCall:
    """A call in a durable flush, or waiting for one."""

    __slots__ = ("asking", "call", "deadline", "future", "sent")

    def __init__(self, call: Call, deadline: float, asking: bool, future: asyncio.Future[Any]) -> None:
        self.call = call
        self.deadline = deadline
        self.asking = asking
        self.future = future
        self.sent = False


class DurableWire:
    """The connection for calls that are answered only when every replica of the shard has their writes.

    Calls that gather while one flush waits go into the next flush, and one WAIT serves them all. These calls have a
    connection of their own, because a stalled WAIT stalls all calls after it. The script and its WAIT share that
    connection, because WAIT counts the writes of its own connection.
    """

    def __init__(
        self, endpoint: Endpoint, opener: Opener, replicas: Callable[[ServerFacts], int | None], form: CallForm
    ) -> None:
        self.endpoint = endpoint
        self.holder = WireHolder(endpoint, opener, form)
        self._opener = opener
        self._replicas = replicas
        self._queue: list[_DurableCall] = []
        self._flushing = False
        self._progress = ""
        """The answer to the last WAIT in words, for the errors of callers whose time is up."""

    async def execute(self, call: Call, deadline: float, *, asking: bool) -> Any:
        """Make one attempt. Return the reply when all replicas have confirmed the write, or a :class:`Failure`."""
        waiting = _DurableCall(call, deadline, asking, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if not self._flushing:
            self._flushing = True
            if not self._opener.tasks.start(self._flush_all()):
                self._end([])
        try:
            async with asyncio.timeout_at(deadline):
                return await waiting.future
        except TimeoutError:
            outcome = Outcome.UNKNOWN if waiting.sent else Outcome.NEVER_SENT
            said = (
                self._progress
                if waiting.sent
                else "it waited for the replicas to confirm the calls that were sent before it"
            )
            return Failure(FailureKind.TIMED_OUT, said, outcome=outcome, endpoint=self.endpoint)

    async def _flush_all(self) -> None:
        group: list[_DurableCall] = []
        try:
            while self._queue:
                group = self._next_group()
                group = [waiting for waiting in group if not waiting.future.done()]
                await self._flush(group)
        finally:
            self._end(group)

    def _end(self, group: list[_DurableCall]) -> None:
        """Answer all waiting callers: the transport is being closed, so no later flush will answer them."""
        self._flushing = False
        for waiting in (*group, *self._queue):
            outcome = Outcome.UNKNOWN if waiting.sent else Outcome.NEVER_SENT
            self._settle(waiting, Failure(FailureKind.CLOSED, "the transport was closed", outcome=outcome))
        self._queue.clear()

    def _next_group(self) -> list[_DurableCall]:
        """Take the calls that have waited longest, as many as one flush may carry. The other calls keep their order."""
        limits = self._opener.limits
        size = taken = 0
        while taken < min(len(self._queue), limits.calls) and size < min(limits.bytes, _FLUSH_BYTES):
            size += self._queue[taken].call.size
            taken += 1
        group, self._queue = self._queue[:taken], self._queue[taken:]
        return group

    async def _flush(self, group: list[_DurableCall]) -> None:
        if not group:
            return
        last = max(waiting.deadline for waiting in group)
        wire = await self.holder.get(last)
        if isinstance(wire, Failure):
            for waiting in group:
                self._settle(waiting, wire)
            return
        replicas = self._replicas(wire.facts)
        if replicas == 0:
            # The number may be that of the time when the connection was opened, if the user may not read CLUSTER NODES.
            connected = _connected_replicas(await wire.submit(Command("ROLE"), last))
            wire.facts = wire.facts._replace(connected_replicas=connected)
            replicas = connected
        if not replicas:
            # This may last only a moment: a replica that has just become the master has no replica yet.
            self._opener.on_trouble(self.endpoint)
            known = "has no replica that could confirm it" if replicas == 0 else "does not say how many replicas it has"
            unserved = Failure(FailureKind.UNSERVED, f"durability=replicated, and it {known}", endpoint=self.endpoint)
            for waiting in group:
                self._settle(waiting, unserved)
            return
        self._progress = f"{replicas} replicas have not confirmed it yet"
        replies: list[tuple[_DurableCall, asyncio.Future[Any]]] = []
        for waiting in group:
            waiting.sent = True
            replies.append((waiting, wire.submit(waiting.call, waiting.deadline, asking=waiting.asking)))
        confirmed = await self._confirm(wire, last)
        settled = [(waiting, await future) for waiting, future in replies]
        if confirmed is None and any(waiting.call.heals for waiting in group):
            # A script had to be loaded again. Its call was written after the first WAIT, so the call needs a second
            # WAIT.
            confirmed = await self._confirm(wire, last)
        for waiting, reply in settled:
            self._settle(waiting, reply if isinstance(reply, Failure) or confirmed is None else confirmed)

    async def _confirm(self, wire: Wire, last: float) -> Failure | None:
        """Send WAIT until all replicas have confirmed the flush, or the last deadline ``last`` has passed.

        Each WAIT is short, so the connection is never silent for long. Each turn finds out the number of replicas
        again: it is the number that is known for the shard, or the number that the master reports if that is larger. If
        a turn gets too few confirmations, the layout is refreshed, because a replica may have been removed. Returns
        ``None``, or the failure.
        """
        loop = asyncio.get_running_loop()
        confirmed = 0
        while True:
            needed = self._replicas(wire.facts) or 1
            left = last - loop.time()
            milliseconds = max(1, min(_WAIT_MILLISECONDS, int(left * 1000)))
            waited = wire.submit(Command("WAIT", needed, milliseconds), last + 1.0)
            role = wire.submit(Command("ROLE"), last + 1.0)
            said = await waited
            if isinstance(said, Failure):
                return _unconfirmed(said)
            needed = max(needed, _connected_replicas(await role))
            confirmed = min(said, needed) if type(said) is int else 0
            self._progress = f"{confirmed} of {needed} replicas confirmed it"
            if confirmed == needed:
                return None
            self._opener.on_trouble(self.endpoint)
            if left <= 0:
                return Failure(FailureKind.UNCONFIRMED, self._progress, "", Outcome.UNKNOWN, self.endpoint)

    @staticmethod
    def _settle(waiting: _DurableCall, reply: Any) -> None:
        if not waiting.future.done():
            waiting.future.set_result(reply)


def _connected_replicas(role: Any) -> int:
    """Return the number of replicas in a master's answer to ROLE; 0 if ROLE is not permitted."""
    answer: list[Any] = role if isinstance(role, list) else []  # pyright: ignore[reportUnknownVariableType]
    replicas = answer[2] if len(answer) == 3 else None
    return len(replicas) if isinstance(replicas, list) else 0  # pyright: ignore[reportUnknownArgumentType]


def _unconfirmed(failure: Failure) -> Failure:
    """Return the failure of a WAIT, for a call that the master has executed."""
    if failure.kind is FailureKind.LOST:
        return failure._replace(outcome=Outcome.UNKNOWN)
    said = f"WAIT was answered with {failure.code} {failure.detail}" if failure.code else failure.detail
    return failure._replace(kind=FailureKind.UNCONFIRMED, detail=said, outcome=Outcome.UNKNOWN)


class Nodes:
    """The servers that serve slots or did so before, and the last slot map."""

    def __init__(self, target: Target, make: Callable[[Endpoint], Node]) -> None:
        self._target = target
        self._make = make
        self._nodes: dict[Endpoint, Node] = {}
        self.numbered: list[Node | None] = [None]
        """The servers that have slots. Only this class changes this list and ``by_slot``."""
        self.by_slot = SlotMap().numbers
        """For each slot, the place of its server in ``numbered``."""
        self._masters: list[Node] | None = []
        """The servers of the slots, if they have not changed since they were gathered."""
        self._listed: frozenset[Endpoint] = frozenset()
        """The masters of the last layout."""
        self._mended = False
        """Whether MOVED has changed the map since the last layout, and other parts of the transport must be told."""
        self._replicas: dict[Endpoint, int] = {}
        self._steady = True
        """Whether all nodes were up in the last layout."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    @property
    def masters(self) -> list[Node]:
        """The servers that serve slots."""
        if self._masters is None:
            found = map(self.numbered.__getitem__, dict.fromkeys(self.by_slot))
            self._masters = [node for node in found if node is not None]
        return self._masters

    def of_slot(self, slot: int) -> Node | None:
        """Return the server of a slot."""
        return self.numbered[self.by_slot[slot]]

    def lists(self, endpoint: Endpoint) -> bool:
        """Return whether the last layout says that this server is a master, so that its replicas are known."""
        return endpoint in self._listed

    @property
    def slots_of_masters(self) -> dict[Endpoint, int]:
        """For each server that serves slots, one of its slots."""
        slots = {number: slot for slot, number in enumerate(self.by_slot)}
        return {node.endpoint: slot for number, slot in slots.items() if (node := self.numbered[number]) is not None}

    @property
    def any(self) -> Node | None:
        """Any server that serves slots, if possible one that is not suspected."""
        masters = self.masters
        return next(
            (node for node in masters if node.calls.open and not node.suspected), masters[0] if masters else None
        )

    @property
    def in_order(self) -> list[Endpoint]:
        """The servers to ask about the cluster: connected servers first, suspected servers last."""
        nodes = sorted(self, key=lambda node: (node.suspected, not node.calls.open))
        return [node.endpoint for node in nodes]

    def at(self, endpoint: Endpoint) -> Node:
        """Return the server with this address."""
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = self._make(endpoint)
        return node

    def owner_of(self, slot: int) -> Endpoint | None:
        """Return the address of the server of a slot."""
        node = self.of_slot(slot)
        return node.endpoint if node else None

    def redirected(self, failure: Failure) -> Node:
        """Return the server that MOVED or ASK names. Raises ValueError if the reply names no server."""
        assert failure.endpoint is not None  # a redirection always comes from a server
        slot, endpoint = parse_redirection(failure.detail, failure.endpoint)
        node = self.at(endpoint)
        if failure.kind is FailureKind.MOVED:
            if node not in self.numbered:
                self.numbered.append(node)
            self.by_slot[slot] = self.numbered.index(node)
            self._masters = None
            self._mended = True
        return node

    def apply(self, layout: Layout) -> bool:
        """Use a new slot map; return whether it gives slots to other servers."""
        masters = {endpoint: self.at(endpoint) for endpoint in layout.slots.masters}
        self._replicas.update(layout.replicas)
        self._steady = layout.steady
        self._listed = frozenset(masters)
        for endpoint, node in list(self._nodes.items()):
            if endpoint in masters:
                node.reinstate()
            elif not node.retire():
                del self._nodes[endpoint]
        numbered = [None, *map(masters.get, layout.slots.number_of)]
        if layout.slots.numbers == self.by_slot and numbered == self.numbered and not self._mended:
            return False
        self.numbered, self.by_slot = numbered, layout.slots.numbers[:]
        self._masters = list(
            dict.fromkeys(masters[each] for _, _, each in sorted(layout.slots.ranges) if each in masters)
        )
        self._mended = False
        return True

    def replicas_of(self, facts: ServerFacts) -> int | None:
        """Return the number of replicas of a master.

        It is the number in the connection string. If the string has no such number, it is the number that the cluster
        or Sentinel reports, or else the number of connected replicas.
        """
        if self._target.replicas is not None:
            return self._target.replicas
        return self._replicas.get(facts.endpoint, facts.connected_replicas)

    def replica_count_of(self, facts: ServerFacts) -> ReplicaCount:
        """Return what is known about the number of a master's replicas."""
        return ReplicaCount(self.replicas_of(facts), facts.connected_replicas, self._steady)
