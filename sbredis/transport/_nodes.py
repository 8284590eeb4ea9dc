"""The servers of a target, and which of them serves each slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sbredis.transport._address import Endpoint, Target
from sbredis.transport._node import Node
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._server_facts import ReplicaCount, ServerFacts
from sbredis.transport._slots import SLOTS, parse_redirection
from sbredis.transport._topology import Layout

__all__ = ["Nodes"]


class Nodes:
    """The servers that serve slots or did so before, and the last slot map."""

    def __init__(self, target: Target, make: Callable[[Endpoint], Node]) -> None:
        self._target = target
        self._make = make
        self._nodes: dict[Endpoint, Node] = {}
        self.by_slot: list[Node | None] = [None] * SLOTS
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
        return [node for node in dict.fromkeys(self.by_slot) if node is not None]

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
        node = self.by_slot[slot]
        return node.endpoint if node else None

    def redirected(self, failure: Failure) -> Node:
        """Return the server that MOVED or ASK names. Raises ValueError if the reply names no server."""
        assert failure.endpoint is not None  # a redirection always comes from a server
        slot, endpoint = parse_redirection(failure.detail, failure.endpoint)
        node = self.at(endpoint)
        if failure.kind is FailureKind.MOVED:
            self.by_slot[slot] = node
            self._mended = True
        return node

    def apply(self, layout: Layout) -> bool:
        """Use a new slot map; return whether it gives slots to other servers."""
        masters = {endpoint: self.at(endpoint) for endpoint in layout.slots.masters}
        by_slot = [masters[owner] if owner is not None else None for owner in layout.slots.owners]
        self._replicas.update(layout.replicas)
        self._steady = layout.steady
        for endpoint, node in list(self._nodes.items()):
            if endpoint in masters:
                node.reinstate()
            elif not node.retire():
                del self._nodes[endpoint]
        if by_slot == self.by_slot and not self._mended:
            return False
        self.by_slot = by_slot
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
