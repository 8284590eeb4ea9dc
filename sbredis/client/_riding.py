"""Grants that ride with a call: a call that settles messages also asks for the next ones.

A lane asks the receivers of the messages of a call, their *riders*, when it makes the call. Each of them may give a
*ride*: a grant of credit, which the call carries. The ride ends once: with the answer, or without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from sbredis.engine import MAXIMUM_GRANTS

if TYPE_CHECKING:
    from sbredis.engine import CreditReply, Delivery, SentGrant

__all__ = ["GrantRide", "GrantRider", "rides_of"]


class GrantRide(Protocol):
    """A grant that a call carries."""

    sent: SentGrant

    @property
    def beside(self) -> GrantRider | None:
        """Another receiver that asks with the same call, for what this grant makes room for."""
        ...

    def answered(self, reply: CreditReply[Delivery], since: float) -> None:
        """Handle the answer. The call was last written to a connection at the time ``since`` of the client's clock."""
        ...

    def failed(self) -> None:
        """Note that no answer comes: the call was refused, or has failed. It may have run."""
        ...


class GrantRider(Protocol):
    """A receiver that gets its messages by grants."""

    in_company: bool
    """Whether other receivers settle messages in this turn of the event loop. Then the call waits for them."""

    def ride(self, settled: int) -> GrantRide | None:
        """Return a grant for a call that is made now, if the receiver wants more messages, or soon will.

        The call settles this number of its messages, or carries this number of grants that make room for more.
        """
        ...


def rides_of(riders: Mapping[GrantRider, int]) -> list[GrantRide]:
    """Return the rides for a call that settles these numbers of messages of receivers. Each ride must be ended."""
    rides: list[GrantRide] = []
    _add(rides, riders)
    others: dict[GrantRider, int] = {}
    for ride in rides:
        if (other := ride.beside) is not None:
            others[other] = others.get(other, 0) + 1
    _add(rides, others)
    return rides


def _add(rides: list[GrantRide], riders: Mapping[GrantRider, int]) -> None:
    for rider, count in riders.items():
        if len(rides) == MAXIMUM_GRANTS:
            return
        ride = rider.ride(count)
        if ride is not None:
            rides.append(ride)
