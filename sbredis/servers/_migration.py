"""Moving a slot from one master of a local cluster to another, in both possible ways."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from sbredis.exceptions import ServerUnsuitableError

if TYPE_CHECKING:
    from sbredis.servers._cluster import ClusterNode

__all__ = ["MigrationStep", "migrate_atomically", "migrate_stepwise"]

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
