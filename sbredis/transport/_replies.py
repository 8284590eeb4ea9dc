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
        if self.kind is FailureKind.REFUSED:
            return ScriptRefusedError(self.code, self.detail, after_unknown=maybe_ran)
        outcome = Outcome.UNKNOWN if maybe_ran else self.outcome
        error, text = _ERRORS[self.kind]
        if call is None and self.kind in (FailureKind.UNREACHABLE, FailureKind.CLOSED):
            text = "{detail}{tried}"
        return error(
            text.format(
                subject=call or "the connection",
                where=f" at {self.endpoint}" if self.endpoint else "",
                tried=f", {attempts} attempts in {seconds:.1f} s" if attempts > 1 else "",
                said=f"{self.code} {self.detail}".strip(),
                detail=self.detail,
                lacking="answered" if outcome is Outcome.UNKNOWN else "sent",
            ),
            outcome=outcome,
            is_transient=False if self.kind is FailureKind.CLOSED else None,
        )


_BUSY = (ServiceBusServerBusyError, "The server{where} could not take {subject}{tried}: {said}")
_LED_ON = (ServiceBusServerBusyError, "The cluster sent {subject} from node to node{tried}; last: {said}")
_NOT_SENT = (ServiceBusConnectionError, "{subject} was not {lacking}{tried}: {detail}")
_LATE = (OperationTimeoutError, "{subject} did not end in time{where}{tried}: {detail}")
_ERRORS: dict[FailureKind, tuple[type[ServiceBusError], str]] = {
    FailureKind.MOVED: _LED_ON,
    FailureKind.ASK: _LED_ON,
    FailureKind.TRY_AGAIN: _BUSY,
    FailureKind.NO_SCRIPT: (
        ServiceBusAuthorizationError,
        (
            "The server{where} does not hold {subject}, and the user may not load it. Permit SCRIPT LOAD, or have the "
            "scripts loaded on every node, replicas included, by a user who may."
        ),
    ),
    FailureKind.NOT_READY: _BUSY,
    FailureKind.READ_ONLY: _BUSY,
    FailureKind.DENIED: (
        ServiceBusAuthorizationError,
        "The user is not permitted to use {subject}{where}: {said}",
    ),
    FailureKind.UNAUTHENTICATED: (
        ServiceBusAuthenticationError,
        "The server{where} does not accept the credentials: {said}",
    ),
    FailureKind.OUT_OF_MEMORY: (
        ServiceBusServerBusyError,
        "The server{where} is at its memory limit and takes nothing more until something is consumed: {said}",
    ),
    FailureKind.BROKE: (
        ServiceBusError,
        "{subject} broke off inside the server{where}; what it had written stays: {said}",
    ),
    FailureKind.UNREACHABLE: _NOT_SENT,
    FailureKind.UNSUITABLE: (ServerUnsuitableError, "{detail}"),
    FailureKind.UNSERVED: _BUSY,
    FailureKind.LOST: (
        ServiceBusCommunicationError,
        "The connection{where} was lost under {subject}{tried}: {detail}",
    ),
    FailureKind.TIMED_OUT: _LATE,
    FailureKind.UNCONFIRMED: _LATE,
    FailureKind.FULL: (ServiceBusServerBusyError, "{subject} was not sent: {detail}"),
    FailureKind.CLOSED: _NOT_SENT,
}
"""What a caller sees of each kind of failure in the end; a refusal by a script has a class of its own."""


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
