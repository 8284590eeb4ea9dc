"""Finding out who serves what: the one thing in which a server, a Sentinel group and a cluster differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from redis.exceptions import RedisError

from sbredis._tasks import to_the_end
from sbredis.transport._address import Endpoint, Target
from sbredis.transport._dial import Dialer, Link, accepted, ask, dialling_failed, hang_up
from sbredis.transport._replies import Failure, FailureKind, classify
from sbredis.transport._resp import ReplyError, as_mapping
from sbredis.transport._script import Argument, pack
from sbredis.transport._slots import SlotMap, is_steady, parse_cluster_slots, replica_counts
from sbredis.transport._tls_probe import connect, with_tls_hint

__all__ = ["Layout", "Topology", "topology_of"]

_ANSWER_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Who serves which slot, and how many replicas each master has, dead ones included, where that is known."""

    slots: SlotMap
    replicas: dict[Endpoint, int] = field(default_factory=dict[Endpoint, int])
    steady: bool = True
    """Whether whoever was asked knows of nothing that is down, and of no failover that is under way."""


class Prober(Protocol):
    """How a topology asks data servers: over the connections that calls use."""

    async def probe(
        self, endpoint: Endpoint, commands: Sequence[Sequence[Argument]], seconds: float
    ) -> list[Any] | Failure:
        """The replies to some commands, error replies as failures among them."""
        ...

    def known(self) -> list[Endpoint]:
        """The servers known at the moment, those that answer first."""
        ...


class Topology(Protocol):
    """A way of finding out."""

    async def discover(self, prober: Prober) -> Layout | Failure:
        """The layout as somebody who answers sees it now."""
        ...


def topology_of(target: Target, dialer: Dialer) -> Topology:
    """The topology that a target's kind calls for."""
    if target.kind == "cluster":
        return ClusterTopology(target.endpoints)
    if target.kind == "sentinel":
        return SentinelTopology(target.endpoints, target.master_name, dialer)
    return SingleTopology(target.endpoints[0])


class SingleTopology:
    """One server has all slots."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._layout = Layout(SlotMap.whole(endpoint))

    async def discover(self, prober: Prober) -> Layout | Failure:  # noqa: ARG002  # there is nothing to ask
        """It never changes."""
        return self._layout


class ClusterTopology:
    """Any node of a cluster tells about all of them."""

    def __init__(self, seeds: Sequence[Endpoint]) -> None:
        self._seeds = seeds

    async def discover(self, prober: Prober) -> Layout | Failure:
        """Ask one node after the other, those that answer first, until one does."""
        candidates = prober.known()
        candidates += [seed for seed in random.sample(self._seeds, len(self._seeds)) if seed not in candidates]
        failure = Failure(FailureKind.UNREACHABLE, "no node of the cluster is known")
        for candidate in candidates:
            replies = await prober.probe(candidate, ((b"CLUSTER", b"SLOTS"), (b"CLUSTER", b"NODES")), _ANSWER_WITHIN)
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
            text = nodes.decode() if isinstance(nodes, bytes) else nodes if isinstance(nodes, str) else ""
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
    """Sentinels tell who the master is."""

    def __init__(self, sentinels: Sequence[Endpoint], name: str, dialer: Dialer) -> None:
        self._sentinels = list(sentinels)
        self._name = name
        self._dialer = dialer

    async def discover(self, prober: Prober) -> Layout | Failure:  # noqa: ARG002  # Sentinels are asked instead
        """Ask one Sentinel after the other; the one that answered is asked first the next time."""
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
        return Failure(kind, f"no Sentinel told who the master {self._name!r} is: {said}")

    async def _ask(self, sentinel: Endpoint) -> Layout | Failure:
        link: Link = self._dialer.sentinel(sentinel)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                unfit = await connect(link, sentinel, secure=self._dialer.secure)
                if unfit is not None:
                    return unfit
                address, state = await ask(
                    link,
                    (
                        pack((b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._name)),
                        pack((b"SENTINEL", b"MASTER", self._name)),
                    ),
                )
        except TimeoutError:
            return Failure(
                FailureKind.UNREACHABLE, f"{sentinel} did not answer within {_ANSWER_WITHIN:.1f} s", endpoint=sentinel
            )
        except (RedisError, OSError) as error:
            failure = dialling_failed(error, sentinel)
            if accepted(error):
                failure = await with_tls_hint(failure, sentinel, secure=self._dialer.secure)
            return (
                replace(failure, detail=f"{sentinel} answered {failure.code} {failure.detail}")
                if failure.code
                else failure
            )
        finally:
            await to_the_end(hang_up(link))
        if isinstance(address, ReplyError):
            if address.detail.startswith("unknown command"):
                return Failure(FailureKind.UNSUITABLE, f"{sentinel} is not a Sentinel", endpoint=sentinel)
            kind = classify(address.code, address.detail)
            kind = kind if kind in (FailureKind.UNAUTHENTICATED, FailureKind.DENIED) else FailureKind.UNSUITABLE
            return Failure(kind, f"{sentinel} answered {address.code} {address.detail}", endpoint=sentinel)
        if not isinstance(address, list):
            return Failure(FailureKind.UNSUITABLE, f"{sentinel} knows no such master", endpoint=sentinel)
        parts: list[bytes] = address  # pyright: ignore[reportUnknownVariableType]  # host and port
        master = Endpoint(parts[0].decode() or sentinel.host, int(parts[1]))
        replicas = _known_replicas(state)
        steady = as_mapping(state).get(b"flags", b"master") == b"master"
        return Layout(SlotMap.whole(master), {} if replicas is None else {master: replicas}, steady)


def _known_replicas(state: Any) -> int | None:
    """``num-slaves`` out of SENTINEL MASTER: how many replicas the Sentinel knows, those that are down included."""
    found = as_mapping(state).get(b"num-slaves")
    return int(found) if found is not None else None


def _worse(known: Failure, found: Failure) -> Failure:
    """The failure that tells more: one that no waiting will mend over one that may pass."""
    lasting = (FailureKind.UNSUITABLE, FailureKind.UNAUTHENTICATED, FailureKind.DENIED)
    return known if known.kind in lasting else found
