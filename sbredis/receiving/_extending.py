"""Extend leases of a partition by their keys, whatever they cover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sbredis.client import CallJob
from sbredis.engine import CallId, Partition, Renewed, Request

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["ExtendedLeases", "extended"]


class ExtendedLeases(NamedTuple):
    """What a partition has answered."""

    until: float
    """The new end of the leases by the clock of this process, with a margin."""
    until_utc: float
    ended: frozenset[str]
    """The keys of the leases that had ended."""


async def extended(
    connection: Connection, name: str, number: int, keys: Sequence[str], deadline: float
) -> ExtendedLeases:
    """Extend leases of one partition of an entity by one call."""

    def make(partition: Partition, call_id: CallId) -> Request[Renewed]:
        return partition.renew(call_id, (), keys)

    job = CallJob(make, deadline)
    client = (await connection.entity(name, deadline)).partition_client(number)
    renewed = await client.carry_out("k", job)
    fresh = client.lease("", renewed.lock, job.since)
    return ExtendedLeases(fresh.until, fresh.until_utc, frozenset(renewed.ended))
