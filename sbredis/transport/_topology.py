"""Discovering the slot map: the one thing in which a server, a Sentinel group and a cluster differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from sbredis._tasks import to_the_end
from sbredis.transport._address import Endpoint, Target
from sbredis.transport._dial import Dialer, accepted, dialling_failed
from sbredis.transport._link import HandshakeError, Link, LinkError
from sbredis.transport._replies import Failure, FailureKind, classify
from sbredis.transport._resp import ReplyError, as_mapping
from sbredis.transport._script import pack
from sbredis.transport._slots import SlotMap, is_steady, parse_cluster_slots, replica_counts
from sbredis.transport._tls_probe import connect, with_tls_hint

if TYPE_CHECKING:
    from sbredis.transport._multiplexed import Transport

__all__ = ["Layout", "Topology", "topology_of"]

_ANSWER_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The slot map, and the number of replicas of each master, dead ones included, where it is known."""

    slots: SlotMap
    replicas: dict[Endpoint, int] = field(default_factory=dict[Endpoint, int])
    steady: bool = True
    """Whether the node that was asked knows of no node that is down, and of no failover that is under way."""


class Topology(Protocol):
    """A way to discover the slot map. It asks data servers over the connections of the transport, which calls use."""

    async def discover(self, transport: Transport) -> Layout | Failure:
        """Return the layout as a server that answers sees it now."""
        ...


def topology_of(target: Target, dialer: Dialer) -> Topology:
    """Return the topology for the kind of a target."""
    if target.kind == "cluster":
        return ClusterTopology(target.endpoints)
    if target.kind == "sentinel":
        return SentinelTopology(target.endpoints, target.master_name, dialer)
    return SingleTopology(target.endpoints[0])


class SingleTopology:
    """A topology of one server that has all slots."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._layout = Layout(SlotMap.whole(endpoint))

    async def discover(self, transport: Transport) -> Layout | Failure:  # noqa: ARG002  # there is nothing to ask
        """Return the layout, which never changes."""
        return self._layout


class ClusterTopology:
    """A topology of a cluster, where any node knows all nodes."""

    def __init__(self, seeds: Sequence[Endpoint]) -> None:
        self._seeds = seeds

    async def discover(self, transport: Transport) -> Layout | Failure:
        """Ask one node after the other until one answers. Nodes that answered before are asked first."""
        candidates = transport.known()
        candidates += [seed for seed in random.sample(self._seeds, len(self._seeds)) if seed not in candidates]
        failure = Failure(FailureKind.UNREACHABLE, "no node of the cluster is known")
        for candidate in candidates:
            replies = await transport.probe(candidate, ((b"CLUSTER", b"SLOTS"), (b"CLUSTER", b"NODES")), _ANSWER_WITHIN)
            if isinstance(replies, Failure):
                failure = _worse(failure, replies)
                continue
            slots, nodes = replies
            if isinstance(slots, Failure):
                failure = _worse(failure, self._explained(slots, candidate))
                continue
            try:
                layout = parse_cluster_slots(slots, candidate)
            except ValueError as error:
                failure = Failure(FailureKind.UNSUITABLE, str(error), endpoint=candidate)
                continue
            if not layout.masters:
                failure = Failure(
                    FailureKind.NOT_READY, f"{candidate} knows of no master that serves slots", endpoint=candidate
                )
                continue
            text = (
                nodes.decode(errors="replace") if isinstance(nodes, bytes) else nodes if isinstance(nodes, str) else ""
            )
            return Layout(layout, replica_counts(text, candidate), is_steady(text))
        return failure

    @staticmethod
    def _explained(failure: Failure, endpoint: Endpoint) -> Failure:
        if "cluster support disabled" in failure.detail:
            return Failure(
                FailureKind.UNSUITABLE,
                f"{endpoint} is not part of a cluster: use redis://{endpoint}.",
                endpoint=endpoint,
            )
        return failure


class SentinelTopology:
    """A topology of one master, which Sentinels name."""

    def __init__(self, sentinels: Sequence[Endpoint], name: str, dialer: Dialer) -> None:
        self._sentinels = list(sentinels)
        self._name = name
        self._dialer = dialer

    async def discover(self, transport: Transport) -> Layout | Failure:  # noqa: ARG002  # Sentinels are asked instead
        """Ask one Sentinel after the other until one answers. That Sentinel is asked first the next time."""
        failures: list[Failure] = []
        for sentinel in list(self._sentinels):
            answer = await self._ask(sentinel)
            if isinstance(answer, Failure):
                failures.append(answer)
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return answer
        said = "; ".join(failure.detail for failure in failures)
        kind = failures[0].kind if len({failure.kind for failure in failures}) == 1 else FailureKind.UNREACHABLE
        return Failure(kind, f"no Sentinel named the master {self._name!r}: {said}")

    async def _ask(self, sentinel: Endpoint) -> Layout | Failure:
        link: Link = self._dialer.sentinel(sentinel)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                unfit = await connect(link, sentinel, secure=self._dialer.secure)
                if unfit is not None:
                    return unfit
                address, state = await link.ask(
                    (
                        pack((b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._name)),
                        pack((b"SENTINEL", b"MASTER", self._name)),
                    )
                )
        except TimeoutError:
            return Failure(
                FailureKind.UNREACHABLE, f"{sentinel} did not answer within {_ANSWER_WITHIN:.1f} s", endpoint=sentinel
            )
        except (HandshakeError, LinkError, OSError) as error:
            failure = dialling_failed(error, sentinel)
            if accepted(error):
                failure = await with_tls_hint(failure, sentinel, secure=self._dialer.secure)
            return (
                failure._replace(detail=f"{sentinel} answered {failure.code} {failure.detail}")
                if failure.code
                else failure
            )
        finally:
            await to_the_end(link.hang_up())
        if isinstance(address, ReplyError):
            if address.detail.startswith("unknown command"):
                return Failure(FailureKind.UNSUITABLE, f"{sentinel} is not a Sentinel", endpoint=sentinel)
            kind = classify(address.code, address.detail)
            kind = kind if kind in (FailureKind.UNAUTHENTICATED, FailureKind.DENIED) else FailureKind.UNSUITABLE
            return Failure(kind, f"{sentinel} answered {address.code} {address.detail}", endpoint=sentinel)
        if not isinstance(address, list):
            return Failure(FailureKind.UNSUITABLE, f"{sentinel} knows no such master", endpoint=sentinel)
        try:
            return _layout(cast("list[bytes]", address), state, sentinel)
        except (TypeError, ValueError, LookupError, AttributeError):
            return Failure(FailureKind.UNSUITABLE, f"the answer of {sentinel} is malformed", endpoint=sentinel)


def _layout(address: list[bytes], state: Any, sentinel: Endpoint) -> Layout:
    """Return the layout from host and port, and from SENTINEL MASTER."""
    master = Endpoint(address[0].decode() or sentinel.host, int(address[1]))
    replicas = _known_replicas(state)
    steady = as_mapping(state).get(b"flags", b"master") == b"master"
    return Layout(SlotMap.whole(master), {} if replicas is None else {master: replicas}, steady)


def _known_replicas(state: Any) -> int | None:
    """Return ``num-slaves`` from SENTINEL MASTER: the replicas that the Sentinel knows, including those down."""
    found = as_mapping(state).get(b"num-slaves")
    return int(found) if found is not None else None


def _worse(known: Failure, found: Failure) -> Failure:
    """Return the failure that says more: a lasting failure rather than a failure that may pass."""
    lasting = (FailureKind.UNSUITABLE, FailureKind.UNAUTHENTICATED, FailureKind.DENIED)
    return known if known.kind in lasting else found
