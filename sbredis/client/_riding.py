"""Grants in calls: in calls of their own, and in calls that settle messages, which also ask for the next ones.

A lane of settlements asks the receivers of the messages of a call, their *riders*, when it makes the call. Each of them
may give a *ride*: a grant of credit, which the call carries. A grant in a call of its own is a ride, too. The ride ends
once: with the answer, or without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from sbredis.engine import CreditReply, Delivery, SentGrant

__all__ = ["GrantRide", "GrantRider"]


class GrantRide(NamedTuple):
    """A grant that a call carries."""

    rider: GrantRider
    sent: SentGrant


class GrantRider(Protocol):
    """A receiver that gets its messages by grants."""

    in_company: bool
    """Whether other receivers settle messages in this turn of the event loop. Then the call waits for them."""

    @property
    def beside(self) -> GrantRider | None:
        """Another receiver that asks with the same call, for what a grant that leaves its session makes room for."""
        ...

    def ride(self, settled: int) -> GrantRide | None:
        """Return a grant for a call that is made now, if the receiver wants more messages, or soon will.

        The call settles this number of its messages, or carries this number of grants that make room for more.
        """
        ...

    def answered(self, ride: GrantRide, reply: CreditReply[Delivery], since: float) -> None:
        """Handle the answer. The call was last written to a connection at the time ``since`` of the client's clock."""
        ...

    def failed(self, ride: GrantRide) -> None:
        """Note that another call brings no answer: it was refused, or has failed. It may have run."""
        ...
