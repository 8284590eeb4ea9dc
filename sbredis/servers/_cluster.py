"""A local cluster on the loopback address, for tests, benchmarks and demonstrations."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sbredis._public import public
from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError
from sbredis.servers._binary import ServerBinary
from sbredis.servers._group import LocalGroup
from sbredis.servers._local import LocalServer, Settings
from sbredis.servers._ports import free_port

__all__ = [
    "ClusterNode",
    "LocalCluster",
    "MigrationStep",
    "NodeView",
    "migrate_atomically",
    "migrate_stepwise",
    "parse_nodes",
    "roles_of",
]

SLOTS = 16_384


@dataclass(frozen=True)
class NodeView:
    """One line of CLUSTER NODES: a node as the answering node sees it."""

    id: str
    flags: frozenset[str]
    master_id: str | None
    config_epoch: int
    link_is_up: bool
    slots: tuple[range, ...]

    @property
    def is_myself(self) -> bool:
        """Whether this is the answering node itself."""
        return "myself" in self.flags

    @property
    def is_master(self) -> bool:
        """Whether it is a master, with slots or without."""
        return "master" in self.flags

    @property
    def is_failing(self) -> bool:
        """Whether the node is suspected of a failure, or known to have failed."""
        return bool(self.flags & {"fail", "fail?"})

    def owns(self, slot: int) -> bool:
        """Whether the node owns the slot."""
        return any(slot in slots for slots in self.slots)


def parse_nodes(text: str) -> list[NodeView]:
    """Parse the answer to CLUSTER NODES. A slot that is being moved still belongs to its present owner."""
    return [_parse_line(line) for line in text.splitlines() if line.strip()]


def _parse_line(line: str) -> NodeView:
    node_id, _address, flags, master, _ping, _pong, epoch, link, *slots = line.split()
    return NodeView(
        id=node_id,
        flags=frozenset(flags.split(",")),
        master_id=None if master == "-" else master,
        config_epoch=int(epoch),
        link_is_up=link == "connected",
        slots=tuple(_parse_slots(part) for part in slots if not part.startswith("[")),
    )


def _parse_slots(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def roles_of(views: list[NodeView], alive: Collection[str]) -> dict[str, tuple[str | None, frozenset[range]]]:
    """Return the master and the slots of each live node and of each owner of slots, in a form in which two nodes'
    answers can be compared.
    """
    return {view.id: (view.master_id, frozenset(view.slots)) for view in views if view.slots or view.id in alive}


MigrationStep: TypeAlias = Literal["importing", "migrating", "keys", "assigned"]
"""The step of a migration that was just done."""


def migrate_stepwise(
    slot: int, source: ClusterNode, target: ClusterNode, others: Sequence[ClusterNode], batch: int
) -> Iterator[MigrationStep]:
    """Move a slot key by key; see ``LocalCluster.migrate_slot_classic_steps``."""
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    yield "importing"
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    yield "migrating"
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, batch):
        assert isinstance(keys, list)
        source.ask("MIGRATE", target.host, target.port, "", 0, 10_000, "KEYS", *map(str, keys), timeout=15)
        yield "keys"
    # Tell the target first: if the move is interrupted here, the slot has an owner that has the keys.
    target.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
    source.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
    for node in others:
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
    yield "assigned"


def migrate_atomically(slot: int, source: ClusterNode, target: ClusterNode, timeout: float) -> None:
    """Move a slot as one change, which clients see as one MOVED; see ``LocalCluster.migrate_slot_atomic``."""
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
    deadline = time.monotonic() + timeout
    while (state := _state_of_migration(source, slot)) != "success":
        if state in ("failed", "canceled") or time.monotonic() > deadline:
            raise ServerUnsuitableError(
                f"The migration of slot {slot} did not succeed: it is {state}.\n{source.log_tail()}"
            )
        time.sleep(0.005)


def _state_of_migration(source: ClusterNode, slot: int) -> str:
    """Return the state of the newest migration of the slot, which is first in the list."""
    jobs = source.ask("CLUSTER", "GETSLOTMIGRATIONS")
    assert isinstance(jobs, list)
    for job in jobs:
        assert isinstance(job, list)
        fields = dict(zip(map(str, job[::2]), map(str, job[1::2]), strict=False))
        if fields.get("slot_ranges") == f"{slot}-{slot}":
            return fields.get("state", "unknown")
    return "unknown"


MANUAL_FAILOVER_SECONDS = 5.5
"""A little more than the 5 s for which a replica that was asked to become a master tries it."""


class ClusterNode(LocalServer):
    """A node of a :class:`LocalCluster`: a :class:`LocalServer` that keeps its id and both of its ports."""

    def __init__(self, *, binary: ServerBinary, config: Settings, directory: Path, node_timeout: int) -> None:
        super().__init__(binary=binary, config=config, directory=directory)
        self.id = secrets.token_hex(20)
        """The node's name in the cluster, 40 hexadecimal digits."""
        self.bus_port = 0
        """The port that the other nodes connect to."""
        self._node_timeout = node_timeout
        self._knows_shards = binary.version >= (7, 2, 0)

    def described_in_shard(self, shard: str) -> str:
        """Return the beginning of the node's line in ``nodes.conf``: its id and its addresses."""
        where = f"{self.id} {self.host}:{self.port}@{self.bus_port}"
        # Without the shard id, the server does not know its own shard. Then a sharded publish from a script makes it
        # exit with a failed assertion.
        return f"{where},,tls-port=0,shard-id={shard}" if self.knows_shards else where

    def write_topology(self, own: str, others: Sequence[str], epoch: int) -> None:
        """Write ``nodes.conf``: the node's own line, and the lines of the nodes that it knows."""
        own = own.replace(" master ", " myself,master ").replace(" slave ", " myself,slave ")
        text = "\n".join([own, *others, f"vars currentEpoch {epoch} lastVoteEpoch 0"])
        (self.directory / "nodes.conf").write_text(text + "\n")

    def view(self) -> list[NodeView]:
        """Return the cluster as this node sees it. Raises :class:`OSError` if the node does not answer."""
        return parse_nodes(str(self.ask("CLUSTER", "NODES", timeout=2)))

    def view_of_itself(self) -> NodeView | None:
        """Return what this node says about itself; ``None`` if the node does not answer."""
        try:
            return next(view for view in self.view() if view.is_myself)
        except (OSError, ScriptRefusedError):
            return None

    @property
    def knows_shards(self) -> bool:
        """Whether this server stores the shard of each node in its file (Redis and Valkey from 7.2 on)."""
        return self._knows_shards

    def _choose_ports(self) -> None:
        self._port = free_port()
        self.bus_port = free_port()

    def _settings(self) -> dict[str, str | Sequence[str]]:
        return super()._settings() | {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-port": str(self.bus_port),
            "cluster-node-timeout": str(self._node_timeout),
            "cluster-allow-replica-migration": "no",  # a replica stays with the master that it was given
        }


@public
class LocalCluster(LocalGroup):
    """A Redis or Valkey cluster on 127.0.0.1. It ends at the latest when this process ends, even if the process is
    killed.

    ``masters`` masters share the slots evenly and have ``replicas`` replicas each. A master that is silent for
    ``node_timeout`` milliseconds is considered failed. ``binary`` and ``config`` are as for :class:`LocalServer` and
    apply to all nodes.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. Nodes that were killed and restarted keep their
    ports, data folder and id.
    """

    def __init__(
        self,
        masters: int = 3,
        replicas: int = 0,
        *,
        node_timeout: int = 1000,
        binary: ServerBinary | str | None = None,
        config: Settings | None = None,
    ) -> None:
        self._masters = masters
        self._replicas = replicas
        self._node_timeout = node_timeout
        super().__init__(binary)
        self._config = config or {}
        self.nodes: list[ClusterNode] = []
        """All nodes in a fixed order: first those that began as masters, by slot, then those that began as replicas."""

    # -- the state of the cluster

    def wait_until_ok(self, timeout: float = 30.0) -> None:
        """Wait until the live nodes form a whole cluster.

        A cluster is whole if

        - every live node says ``cluster_state:ok``, knows all nodes, has links to the live ones, and considers no node
          failed;
        - all live nodes agree on the owner of each slot and on the master of each live replica, and all slots are owned
          by live nodes;
        - every live replica has its link to its master up.

        Paused nodes count as alive.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError`, which says what was still missing.
        """
        deadline = time.monotonic() + timeout
        while (missing := self._missing()) is not None:
            if time.monotonic() > deadline:
                raise ServerUnsuitableError(f"The local cluster is not complete after {timeout:g} s: {missing}")
            time.sleep(0.02)

    def flush(self) -> None:
        """Delete all data: FLUSHALL on every live master."""
        for node in self.masters:
            node.ask("FLUSHALL", timeout=30)

    # -- roles and owners, as the nodes report them now

    @property
    def url(self) -> str:
        """The connection string, with all nodes: ``redis+cluster://127.0.0.1:P1,127.0.0.1:P2,…``."""
        return "redis+cluster://" + ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    @property
    def masters(self) -> list[ClusterNode]:
        """The live nodes that say that they are masters with slots, in the order of :attr:`nodes`.

        Shortly after a failover both the old and the new master may say this. :meth:`wait_until_ok` waits until only
        the new master says it.
        """
        views = [(node, node.view_of_itself()) for node in self.nodes if node.is_alive()]
        return [node for node, view in views if view is not None and view.is_master and view.slots]

    def replicas_of(self, node: ClusterNode) -> list[ClusterNode]:
        """Return the live nodes that say that they are replicas of ``node``."""
        views = [(other, other.view_of_itself()) for other in self.nodes if other.is_alive()]
        return [other for other, view in views if view is not None and view.master_id == node.id]

    def master_of(self, slot: int) -> ClusterNode:
        """Return the live node that says that it owns the slot. If several nodes say so, return the node with the
        newest claim.

        Raises :class:`LookupError` if no live node says so now.
        """
        views = [(node, node.view_of_itself()) for node in self.nodes if node.is_alive()]
        claims = [(view.config_epoch, node) for node, view in views if view is not None and view.owns(slot)]
        if not claims:
            raise LookupError(f"no node that is alive owns slot {slot}")
        return max(claims, key=lambda claim: claim[0])[1]

    # -- changing the cluster

    def add_master(self, *, timeout: float = 30.0) -> ClusterNode:
        """Start one more master, and wait until all nodes know it. It has no slots: move some to it."""
        if not self.nodes or self._directory is None:
            raise RuntimeError("this cluster was not started")
        known = next((each for each in self.nodes if each.is_alive()), None)
        if known is None:
            raise RuntimeError("no node of this cluster is running")
        node = self._make_node(self._program, self._directory, len(self.nodes))
        node.prepare()
        node.write_topology(f"{node.described_in_shard(secrets.token_hex(20))} master - 0 0 0 connected", [], 0)
        try:
            node.start()
            known.ask("CLUSTER", "MEET", node.host, node.port, node.bus_port)
        except BaseException:
            node.kill()
            raise
        self.nodes.append(node)
        self.wait_until_ok(timeout)
        return node

    def failover(self, replica: ClusterNode, *, timeout: float = 15.0) -> None:
        """Make a replica the master of its shard, and wait until all nodes report it.

        CLUSTER FAILOVER loses no write. The replica gives up after 5 s if its master does not answer, for example
        because the master does not know yet that this node is its replica. Then it is asked again.
        """
        deadline = time.monotonic() + timeout
        ask_at = time.monotonic()
        while not ((view := replica.view_of_itself()) and view.is_master and view.slots):
            if time.monotonic() > deadline:
                raise ServerUnsuitableError(f"{replica.url} did not become a master.\n{replica.log_tail()}")
            if time.monotonic() >= ask_at:
                replica.ask("CLUSTER", "FAILOVER")
                ask_at = time.monotonic() + MANUAL_FAILOVER_SECONDS
            time.sleep(0.005)
        self.wait_until_ok(max(1.0, deadline - time.monotonic()))

    def migrate_slot_classic(self, slot: int, to: ClusterNode, *, batch: int = 10) -> None:
        """Move a slot to another master key by key: :meth:`migrate_slot_classic_steps` without pauses between the
        steps.
        """
        for _ in self.migrate_slot_classic_steps(slot, to, batch=batch):
            pass

    def migrate_slot_classic_steps(self, slot: int, to: ClusterNode, *, batch: int = 10) -> Iterator[MigrationStep]:
        """Move a slot to another master key by key, as ``redis-cli`` does, one step for each iteration.

        Nothing happens before the first iteration. Each iteration yields the step that was done: ``"importing"`` (the
        target expects keys), ``"migrating"`` (the source answers ASK for keys that it does not have), ``"keys"`` after
        each ``batch`` of keys was moved, and ``"assigned"`` once, when all nodes were told the new owner. Between the
        steps, a call for a key of the slot gets ASK or TRYAGAIN.
        """
        source = self.master_of(slot)
        if source is to:
            return iter(())
        others = [node for node in self.masters if node not in (source, to)]
        return migrate_stepwise(slot, source, to, others, batch)

    @property
    def supports_atomic_migration(self) -> bool:
        """Whether the server has ``CLUSTER MIGRATESLOTS`` (Valkey 9 and later)."""
        program = self._program
        return program.flavour == "valkey" and program.version >= (9, 0, 0)

    def migrate_slot_atomic(self, slot: int, to: ClusterNode, *, timeout: float = 30.0) -> None:
        """Move a slot to another master as one change (``CLUSTER MIGRATESLOTS``), and wait until it is done.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the move fails or the server does not support the
        command.
        """
        if not self.supports_atomic_migration:
            raise ServerUnsuitableError("CLUSTER MIGRATESLOTS needs Valkey 9 or later.")
        source = self.master_of(slot)
        if source is not to:
            migrate_atomically(slot, source, to, timeout)

    # -- forming the cluster

    def _members(self) -> list[LocalServer]:
        return list(self.nodes)

    def _drop_members(self) -> None:
        self.nodes = []

    def _make_members(self, binary: ServerBinary, directory: Path) -> None:
        self.nodes = [
            self._make_node(binary, directory, index) for index in range(self._masters * (1 + self._replicas))
        ]

    def _make_node(self, binary: ServerBinary, directory: Path, index: int) -> ClusterNode:
        return ClusterNode(
            binary=binary, config=self._config, directory=directory / str(index), node_timeout=self._node_timeout
        )

    def _launch(self) -> bool:
        for node in self.nodes:
            node.prepare()
        self._write_topology()
        for node in self.nodes:
            node.launch()
        # Wait for every node, even if one has failed: a later node may refuse its configuration, which raises an error.
        ready = [node.await_ready() for node in self.nodes]
        return all(ready)

    def _write_topology(self) -> None:
        """Write the ``nodes.conf`` of every node, as if commands had already formed the cluster.

        After its start, a server waits 2 s before it serves slots, however it learns that it owns them. With the file,
        the 2 s begin when the server starts.
        """
        lines: list[str] = []
        shards = [secrets.token_hex(20) for _ in range(self._masters)]
        for index, node in enumerate(self.nodes):
            where = node.described_in_shard(shards[index % self._masters])
            if index < self._masters:
                first = SLOTS * index // self._masters
                last = SLOTS * (index + 1) // self._masters - 1
                lines.append(f"{where} master - 0 0 {index + 1} connected {first}-{last}")
            else:
                master = self.nodes[(index - self._masters) % self._masters]
                lines.append(f"{where} slave {master.id} 0 0 0 connected")
        for index, node in enumerate(self.nodes):
            node.write_topology(lines[index], [*lines[:index], *lines[index + 1 :]], self._masters)

    def _missing(self) -> str | None:
        """Return a reason why the cluster is not whole; ``None`` if it is."""
        alive = [node for node in self.nodes if node.is_alive()]
        ids = {node.id for node in alive}
        agreed: object = None
        for node in alive:
            try:
                views = node.view()
                about = str(node.ask("CLUSTER", "INFO", timeout=2))
                replication = str(node.ask("INFO", "replication", timeout=2))
            except (OSError, ScriptRefusedError) as error:
                return f"{node.url} does not answer: {error}"
            complaint = self._complaint(views, ids, about, replication)
            if complaint:
                return f"{node.url}: {complaint}"
            roles = roles_of(views, ids)
            agreed = agreed or roles
            if roles != agreed:
                return f"{node.url} and {alive[0].url} disagree on who owns which slot, or on whose replica a node is"
        return None

    def _complaint(self, views: list[NodeView], alive: set[str], about: str, replication: str) -> str | None:
        if {view.id for view in views} != {node.id for node in self.nodes}:
            return f"knows {len(views)} nodes of {len(self.nodes)}"
        for view in views:
            if view.id in alive and not view.is_myself and (view.is_failing or not view.link_is_up):
                return f"is not connected to {view.id}"
            if view.slots and view.id not in alive:
                return f"takes {view.id}, which is dead, for a master"
        if "cluster_state:ok" not in about:
            return "cluster_state is not ok"
        if "role:slave" in replication and "master_link_status:up" not in replication:
            return "is not connected to its master"
        return None
