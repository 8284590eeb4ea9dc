"""How long an opening goes on trying: what will pass by itself, and what somebody has to change first. Pure.

Three things are told apart::

    lasting            the server must be set up differently, or the credentials are wrong    refused at once
    nobody answers     perhaps the address is wrong                                           until the connect time-out
    not ready yet      somebody answered: a failover, a start, or a promotion is under way    until the deadline

A server that is known from others who answer (a Sentinel, the nodes of a cluster) is waited for until the deadline as
well, unless there are other masters: then the client opens without it, and calls to it wait by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbredis.transport._address import Kind
from sbredis.transport._replies import FailureKind

__all__ = ["Patience", "passes"]

_SILENT = (FailureKind.UNREACHABLE, FailureKind.LOST, FailureKind.TIMED_OUT)
_NOT_YET = (FailureKind.NOT_READY, FailureKind.READ_ONLY, FailureKind.UNSERVED, FailureKind.TRY_AGAIN)


def passes(failure: FailureKind) -> bool:
    """Whether a failure to open a connection may be over in a while without anybody changing anything."""
    return failure in _SILENT or failure in _NOT_YET


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of one opening, by the clock of the event loop."""

    started: float
    connect_timeout: float
    until: float
    """The deadline of whoever opens."""
    kind: Kind

    def limit(self, failure: FailureKind, masters: int | None = None) -> float:
        """Until when to try again after this failure; when it started, if trying again is of no use.

        ``masters`` is how many there are, for a failure to reach one of them; ``None`` while none is known yet.
        """
        if not passes(failure):
            return self.started
        soon = min(self.started + self.connect_timeout, self.until)
        followed = self.kind in ("cluster", "sentinel")
        if failure in _SILENT:
            return self.until if followed and masters == 1 else soon
        if failure is FailureKind.READ_ONLY and not followed:
            return soon  # most likely it is the address of a replica, and not of a master to be
        return self.until
