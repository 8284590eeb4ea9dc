"""Complete many messages together, with one call for all messages of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbredis.client._lane_kinds import CallJob
from sbredis.engine import MAXIMUM_CALL_MESSAGES, CallId, Partition, Request, Settled
from sbredis.model import Hold, Reception

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.client._partition_client import PartitionClient

__all__ = ["complete"]


class _Completion(CallJob[Settled]):
    """Messages to complete in one call.

    The job itself records which messages were completed, because the caller may not wait for it any more.
    """

    __slots__ = ("holds",)

    def __init__(self, holds: Sequence[Hold], deadline: float) -> None:
        super().__init__(self._make, deadline)
        self.holds = holds

    def _make(self, partition: Partition, call_id: CallId) -> Request[Settled]:
        request = partition.complete(call_id, [hold.lock() for hold in self.holds if hold.lease is not None])

        def read(reply: Any) -> Settled:
            return self._note(request.result(reply))

        return request._replace(read=read)

    def _note(self, settled: Settled) -> Settled:
        self.done = True
        lost = set(settled.lost)
        for hold in self.holds:
            hold.settled = hold.name not in lost
            if hold.settled:
                hold.let_go()
        return settled

    def ended(self) -> None:
        """Mark the messages as not settled if the call did not run. So they can be settled later."""
        del self.make  # `make` is a method of this job, so it would keep the job in memory
        if not self.done:
            for hold in self.holds:
                hold.settled = False


async def complete(entity: Entity, holds: Sequence[Hold], deadline: float) -> list[Hold]:
    """Complete messages whose locks hold according to our clock.

    Return the messages whose locks the server reported as lost.
    """
    places: dict[PartitionClient, list[Hold]] = {}
    reception: Reception | None = None
    place: list[Hold] = []
    for hold in holds:
        hold.settled = True
        if hold.reception is not reception:  # all messages of one receiving call share their reception
            reception = hold.reception
            place = places.setdefault(entity.partition_client_of(hold), [])
        place.append(hold)
    jobs = [
        (partition_client, _Completion(part[at : at + MAXIMUM_CALL_MESSAGES], deadline))
        for partition_client, part in places.items()
        for at in range(0, len(part), MAXIMUM_CALL_MESSAGES)
    ]
    renewals = [
        future
        for partition_client, job in jobs
        if partition_client.renewing.renews
        for each in job.holds
        if (future := partition_client.renewing.last_renewal(each))
    ]
    if renewals:
        try:
            await asyncio.wait(renewals, timeout=deadline - asyncio.get_running_loop().time())
        except BaseException:
            for _, job in jobs:
                job.end()
            raise
    futures = [partition_client.calling("m").submit(job) for partition_client, job in jobs]
    for outcome in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
    return [hold for _, job in jobs for hold in job.holds if not hold.settled]
