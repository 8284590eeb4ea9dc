"""How long to try to open a transport: some failures pass by themselves, and some do not. Pure.

There are three kinds of failure::

    lasting            the server must be set up differently, or the credentials are wrong    refused at once
    no answer          perhaps the address is wrong                                           until the connect time-out
    not ready yet      a server answered: a failover, a start, or a promotion is under way    until the deadline

A server may give no answer although a Sentinel or the nodes of a cluster have named it. The client then waits for this
server until the deadline. If there are several masters, any of them will do, and the client tries all of them until the
connect time-out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbredis.transport._address import Kind
from sbredis.transport._replies import FailureKind

__all__ = ["Patience", "passes"]

_SILENT = (FailureKind.UNREACHABLE, FailureKind.LOST, FailureKind.TIMED_OUT)
_NOT_YET = (FailureKind.NOT_READY, FailureKind.READ_ONLY, FailureKind.UNSERVED, FailureKind.TRY_AGAIN)


def passes(failure: FailureKind) -> bool:
    """Whether a failure to open a connection may pass by itself."""
    return failure in _SILENT or failure in _NOT_YET


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits of one opening, by the clock of the event loop."""

    started: float
    connect_timeout: float
    until: float
    """The deadline of the caller that opens the transport."""
    kind: Kind

    def limit(self, failure: FailureKind, masters: int | None = None) -> float:
        """Return the time until which to try again after this failure; the start time if trying again cannot help.

        ``masters`` is the number of masters; ``None`` while none is known.
        """
        if not passes(failure):
            return self.started
        soon = min(self.started + self.connect_timeout, self.until)
        followed = self.kind in ("cluster", "sentinel")
        if failure in _SILENT:
            return self.until if followed and masters == 1 else soon
        if failure is FailureKind.READ_ONLY and not followed:
            # the server at this address is most likely a permanent replica, not one that is becoming the master
            return soon
        return self.until
