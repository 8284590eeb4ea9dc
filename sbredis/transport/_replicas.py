"""Calls that only read, on the replicas of the masters. A replica may not have the last writes of its master yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sbredis._quoting import quoted
from sbredis.exceptions import ServerUnsuitableError
from sbredis.transport._address import Endpoint
from sbredis.transport._backoff import Backoff
from sbredis.transport._nodes import Node
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._script import Call, Command

if TYPE_CHECKING:
    from sbredis.transport._multiplexed import Transport
    from sbredis.transport._opening import Opener
    from sbredis.transport._server_facts import ServerFacts
    from sbredis.transport._wire import Wire

__all__ = ["Replicas", "replicas_in"]


class Replicas:
    """The replicas of the masters of a transport, as their masters know them."""

    def __init__(self, transport: Transport, opener: Opener, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._opener = replace(opener, accepts=_accepted, on_trouble=_ignored, on_open=_ignored)
        self._clock = clock
        self._backoff = Backoff()
        self._known: dict[Endpoint | None, list[Endpoint]] = {}
        """The replicas of each master, the one to ask first."""
        self._nodes: dict[Endpoint, _ReplicaNode] = {}

    async def of(self, key: bytes, timeout: float, *, anew: bool = False) -> list[Endpoint]:
        """Return the replicas of the master of a key's slot; with ``anew``, those that it has now.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if there is none.
        """
        master = self._transport.endpoint_of(key)
        if anew or master not in self._known:
            found = replicas_in(await self._transport.command("ROLE", key=key, timeout=timeout))
            if not found:
                raise ServerUnsuitableError(f"{master} has no replica, so nothing can be read from one.")
            self._known[master] = found
        return self._known[master]

    async def call(self, call: Call, key: bytes, timeout: float) -> Any:
        """Run a call that only reads on a replica of the master of a key's slot, and return its reply.

        If a replica does not answer, the next one is asked, until the time-out.
        """
        started = self._clock()
        deadline = started + timeout
        attempts = 0
        while True:
            endpoints = await self.of(key, deadline - self._clock())
            endpoint = endpoints[0]
            node = self._nodes.get(endpoint)
            if node is None:
                node = self._nodes[endpoint] = _ReplicaNode(endpoint, self._opener, lambda _: None)
            reply = await node.execute(call, deadline, asking=False, replicated=False)
            if not isinstance(reply, Failure):
                return reply
            attempts += 1
            pause = self._backoff.within(self._backoff.delay(attempts, 0), deadline - self._clock())
            repeats = reply.redirects or reply.may_repeat(call)
            if reply.kind is FailureKind.REFUSED or not repeats or pause is None:
                raise reply.error(call, attempts=attempts, seconds=self._clock() - started)
            endpoints.append(endpoints.pop(0))
            if attempts % len(endpoints) == 0:  # all have failed, so there may be others now
                self._known.pop(self._transport.endpoint_of(key), None)
                await self._transport.pause(pause)


class _ReplicaNode(Node):
    """A replica. In a cluster, it answers reads only on a connection that permits old data."""

    _permits: Wire | None = None

    async def execute(self, call: Call, deadline: float, *, asking: bool, replicated: bool) -> Any:
        wire = await self.calls.get(deadline)
        if isinstance(wire, Failure):
            return wire
        if wire is not self._permits and wire.facts.mode == "cluster":
            permitted = await wire.submit(Command(b"READONLY"), deadline)
            if isinstance(permitted, Failure):
                return permitted
            self._permits = wire
        return await super().execute(call, deadline, asking=asking, replicated=replicated)


def _ignored(endpoint: Endpoint) -> None:
    del endpoint


def _accepted(facts: ServerFacts) -> Failure | None:
    """Refuse nothing: a replica that has become a master has all data."""
    del facts
    return None


def replicas_in(reply: Any) -> list[Endpoint]:
    """Return the replicas in a master's answer to ROLE. A replica that has no address yet is left out."""
    said: list[Any] = reply if isinstance(reply, list) else []  # pyright: ignore[reportUnknownVariableType]  # any type
    if len(said) < 3 or said[0] != b"master":
        return []
    try:
        found = [Endpoint(host.decode(), int(port)) for host, port, _ in said[2]]
    except (TypeError, ValueError, AttributeError):
        raise ServerUnsuitableError(f"The answer to ROLE cannot be read: {quoted(said)}.") from None
    return [endpoint for endpoint in found if endpoint.host and endpoint.port]
