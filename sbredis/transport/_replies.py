"""What a failed attempt means: the replies and losses of a connection, sorted. Pure.

One table says, for each kind of failure, whether the call is known not to have run, whether trying again can help, and
which error a caller sees in the end.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ScriptRefusedError,
    ServerUnsuitableError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.transport._address import Endpoint
from sbredis.transport._script import Call

__all__ = ["Failure", "FailureKind", "classify", "failure_of_reply"]


class FailureKind(enum.Enum):
    """Why an attempt did not bring a reply."""

    MOVED = enum.auto()
    ASK = enum.auto()
    TRY_AGAIN = enum.auto()
    NO_SCRIPT = enum.auto()
    NOT_READY = enum.auto()
    READ_ONLY = enum.auto()
    DENIED = enum.auto()
    UNAUTHENTICATED = enum.auto()
    OUT_OF_MEMORY = enum.auto()
    REFUSED = enum.auto()
    BROKE = enum.auto()
    UNREACHABLE = enum.auto()
    UNSUITABLE = enum.auto()
    UNSERVED = enum.auto()
    LOST = enum.auto()
    TIMED_OUT = enum.auto()
    UNCONFIRMED = enum.auto()
    FULL = enum.auto()
    CLOSED = enum.auto()


_CODES = {
    "MOVED": FailureKind.MOVED,
    "ASK": FailureKind.ASK,
    "TRYAGAIN": FailureKind.TRY_AGAIN,
    "NOSCRIPT": FailureKind.NO_SCRIPT,
    "LOADING": FailureKind.NOT_READY,
    "CLUSTERDOWN": FailureKind.NOT_READY,
    "MASTERDOWN": FailureKind.NOT_READY,
    "BUSY": FailureKind.NOT_READY,
    "NOREPLICAS": FailureKind.NOT_READY,
    "MISCONF": FailureKind.NOT_READY,
    "READONLY": FailureKind.READ_ONLY,
    "NOPERM": FailureKind.DENIED,
    "NOAUTH": FailureKind.UNAUTHENTICATED,
    "WRONGPASS": FailureKind.UNAUTHENTICATED,
    "OOM": FailureKind.OUT_OF_MEMORY,
}
"""First words of a server's error replies. Every one of them is given before a script starts: the call has not run."""

_AGAIN = frozenset(
    {
        FailureKind.MOVED,
        FailureKind.ASK,
        FailureKind.TRY_AGAIN,
        FailureKind.NOT_READY,
        FailureKind.READ_ONLY,
        FailureKind.UNREACHABLE,
        FailureKind.UNSERVED,
    }
)
"""Failures of calls that have not run, for which another attempt may find the cluster in a better state."""

_INSIDE_A_SCRIPT = "user_script"
_BEFORE_ITS_FIRST_WRITE = (FailureKind.NOT_READY, FailureKind.READ_ONLY, FailureKind.OUT_OF_MEMORY)
"""What a server says to a script's first write only: once a script has written, it is let through to its end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that brought no reply. It travels as a value; only its end at the caller is an exception."""

    kind: FailureKind
    detail: str = ""
    code: str = ""
    outcome: Outcome = Outcome.NEVER_SENT
    endpoint: Endpoint | None = None

    def may_repeat(self, call: Call) -> bool:
        """Whether another attempt at the same call is safe, and may end better."""
        if self.kind in _AGAIN:
            return True
        if self.kind in (FailureKind.LOST, FailureKind.UNCONFIRMED):
            return self.outcome is Outcome.NEVER_SENT or call.repeatable
        return False

    @property
    def redirects(self) -> bool:
        """The server said where to go instead; there is nothing to wait for."""
        return self.kind in (FailureKind.MOVED, FailureKind.ASK)

    def error(
        self, call: Call | None = None, *, maybe_ran: bool = False, attempts: int = 1, seconds: float = 0.0
    ) -> ServiceBusError:
        """The exception for a caller who gets nothing better than this failure; without a call, for who wanted a
        connection.

        ``maybe_ran``: an earlier attempt at the same call ended with an unknown outcome, which this one does not undo.
        """
        where = f" at {self.endpoint}" if self.endpoint else ""
        tried = f", {attempts} attempts in {seconds:.1f} s" if attempts > 1 else ""
        said = f"{self.code} {self.detail}".strip()
        outcome = Outcome.UNKNOWN if maybe_ran else self.outcome
        subject = f"{call}" if call is not None else "the connection"
        match self.kind:
            case FailureKind.REFUSED:
                return ScriptRefusedError(self.code, self.detail)
            case FailureKind.BROKE:
                return ServiceBusError(
                    f"{subject} broke off inside the server{where}; what it had written stays: {said}",
                    outcome=Outcome.UNKNOWN,
                )
            case FailureKind.UNAUTHENTICATED:
                return ServiceBusAuthenticationError(
                    f"The server{where} does not accept the credentials: {said}", outcome=outcome
                )
            case FailureKind.DENIED:
                return ServiceBusAuthorizationError(
                    f"The user is not permitted to use {subject}{where}: {said}", outcome=outcome
                )
            case FailureKind.NO_SCRIPT:
                return ServiceBusAuthorizationError(
                    f"The server{where} does not hold {subject}, and the user may not load it. Permit SCRIPT LOAD, or have "
                    "the scripts loaded on every node, replicas included, by a user who may.",
                    outcome=outcome,
                )
            case FailureKind.UNSUITABLE:
                return ServerUnsuitableError(self.detail, outcome=outcome)
            case FailureKind.OUT_OF_MEMORY:
                return ServiceBusServerBusyError(
                    f"The server{where} is at its memory limit and takes nothing more until something is consumed: {said}",
                    outcome=outcome,
                )
            case FailureKind.FULL:
                return ServiceBusServerBusyError(f"{subject} was not sent: {self.detail}", outcome=outcome)
            case FailureKind.NOT_READY | FailureKind.TRY_AGAIN | FailureKind.READ_ONLY | FailureKind.UNSERVED:
                return ServiceBusServerBusyError(
                    f"The server{where} could not take {subject}{tried}: {said}", outcome=outcome
                )
            case FailureKind.MOVED | FailureKind.ASK:
                return ServiceBusServerBusyError(
                    f"The cluster sent {subject} from node to node{tried}; last: {said}", outcome=outcome
                )
            case FailureKind.UNREACHABLE | FailureKind.CLOSED:
                lacking = "answered" if outcome is Outcome.UNKNOWN else "sent"
                return ServiceBusConnectionError(
                    f"{self.detail}{tried}" if call is None else f"{call} was not {lacking}{tried}: {self.detail}",
                    outcome=outcome,
                    is_transient=self.kind is FailureKind.UNREACHABLE,
                )
            case FailureKind.LOST:
                return ServiceBusCommunicationError(
                    f"The connection{where} was lost under {subject}{tried}: {self.detail}", outcome=outcome
                )
            case FailureKind.TIMED_OUT | FailureKind.UNCONFIRMED:
                return OperationTimeoutError(
                    f"{subject} did not end in time{where}{tried}: {self.detail}", outcome=outcome
                )


def classify(code: str, detail: str) -> FailureKind:
    """The kind of an error reply, by its first word and what follows."""
    kind = _CODES.get(code)
    if _INSIDE_A_SCRIPT in detail and kind not in _BEFORE_ITS_FIRST_WRITE:
        return FailureKind.BROKE
    if kind is None and code == "ERR" and detail.startswith(("unknown command", "max number of clients")):
        return FailureKind.DENIED if detail.startswith("unknown") else FailureKind.NOT_READY
    return kind or FailureKind.REFUSED


def failure_of_reply(code: str, detail: str, endpoint: Endpoint | None) -> Failure:
    """An error reply as a failure. Whatever the server refuses before it starts a script counts as never sent."""
    kind = classify(code, detail)
    outcome = {FailureKind.REFUSED: Outcome.REFUSED, FailureKind.BROKE: Outcome.UNKNOWN}.get(kind, Outcome.NEVER_SENT)
    if kind in (FailureKind.OUT_OF_MEMORY, FailureKind.DENIED):
        outcome = Outcome.REFUSED
    return Failure(kind, detail, code, outcome, endpoint)
