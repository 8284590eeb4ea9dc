"""The meaning of a failed attempt: error replies and lost connections, sorted by kind. Pure.

One table says, for each kind of failure, whether the call is known not to have run, whether trying again can help, and
which error a caller sees in the end.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

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

__all__ = ["Failure", "FailureKind", "classify", "failure_of_reply", "is_inside"]


class FailureKind(enum.Enum):
    """The reasons why an attempt brought no reply."""

    MOVED = enum.auto()
    ASK = enum.auto()
    TRY_AGAIN = enum.auto()
    NO_SCRIPT = enum.auto()
    NO_FUNCTION = enum.auto()
    NO_ENGINE = enum.auto()
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
    UNWRITABLE = enum.auto()
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
"""Kinds by the first word of a server's error reply. The server sends all of these errors before it starts a script, so
the call has not run.
"""

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
"""Failures of calls that have not run, and for which another attempt may succeed."""

_ERR_DETAILS = {
    "Function not found": FailureKind.NO_FUNCTION,
    "Could not find scripting engine": FailureKind.NO_ENGINE,
    "Engine '": FailureKind.NO_ENGINE,
    "unknown command": FailureKind.DENIED,
    "max number of clients": FailureKind.NOT_READY,
}
"""Kinds by the beginning of the text of an error with the code ERR. Other such errors are refusals."""
_INSIDE_A_SCRIPT = re.compile(r"\buser_(?:script|function):[0-9]")
"""The place in a script at which an error arose. The name of a user may be one of these words without a number."""
_BEFORE_ITS_FIRST_WRITE = (FailureKind.NOT_READY, FailureKind.READ_ONLY, FailureKind.OUT_OF_MEMORY)
"""Refusals that a server sends only at a script's first write. After that write it lets the script run to its end."""


class Failure(NamedTuple):
    """An attempt that brought no reply. It is passed on as a value; only the caller gets an exception."""

    kind: FailureKind
    detail: str = ""
    code: str = ""
    outcome: Outcome = Outcome.NEVER_SENT
    endpoint: Endpoint | None = None

    def may_repeat(self, call: Call) -> bool:
        """Whether another attempt at the same call is safe and may succeed."""
        if self.kind in _AGAIN:
            return True
        if self.kind in (FailureKind.LOST, FailureKind.UNCONFIRMED):
            return self.outcome is Outcome.NEVER_SENT or call.repeatable
        return False

    @property
    def redirects(self) -> bool:
        """Whether the server named another server. Then there is nothing to wait for."""
        return self.kind in (FailureKind.MOVED, FailureKind.ASK)

    def error(
        self, call: Call | None = None, *, maybe_ran: bool = False, attempts: int = 1, seconds: float = 0.0
    ) -> ServiceBusError:
        """Return the exception for a caller whose last attempt is this failure. Without ``call``, the attempt was an
        attempt to connect.

        ``maybe_ran`` means that an earlier attempt at the same call ended with an unknown outcome. Then the outcome
        stays unknown.
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
                library=call.needs if call and self.kind is FailureKind.NO_FUNCTION else "of functions",
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
            "scripts loaded on every node, replicas included, by a user with that right."
        ),
    ),
    FailureKind.NO_FUNCTION: (
        ServerUnsuitableError,
        (
            "The library {library} on the server{where} lacks the function for {subject}, although its name says which "
            "functions it has. Delete it with FUNCTION DELETE; it is then loaded again."
        ),
    ),
    FailureKind.NO_ENGINE: (
        ServerUnsuitableError,
        (
            "The server{where} cannot run {subject}, because it has no Lua engine: {said}. Load the module of the "
            "engine, or use a server that is built with it."
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
        "The server{where} is at its memory limit and takes no more data until messages are consumed: {said}",
    ),
    FailureKind.BROKE: (
        ServiceBusError,
        "{subject} failed halfway inside the server{where}; its earlier writes remain: {said}",
    ),
    FailureKind.UNREACHABLE: _NOT_SENT,
    FailureKind.UNSUITABLE: (ServerUnsuitableError, "{detail}"),
    FailureKind.UNSERVED: _BUSY,
    FailureKind.UNWRITABLE: (ServiceBusError, "{subject} was not sent, because its text could not be made: {detail}"),
    FailureKind.LOST: (
        ServiceBusCommunicationError,
        "The connection{where} was lost during {subject}{tried}: {detail}",
    ),
    FailureKind.TIMED_OUT: _LATE,
    FailureKind.UNCONFIRMED: _LATE,
    FailureKind.FULL: (ServiceBusServerBusyError, "{subject} was not sent: {detail}"),
    FailureKind.CLOSED: _NOT_SENT,
}
"""The error that a caller gets for each kind of failure. A refusal by a script has a class of its own."""


def is_inside(detail: str) -> bool:
    """Whether an error arose inside a script or a function, as its text says."""
    return _INSIDE_A_SCRIPT.search(detail) is not None


def classify(code: str, detail: str) -> FailureKind:
    """Return the kind of an error reply, by its first word and its text."""
    kind = _CODES.get(code)
    if is_inside(detail) and kind not in _BEFORE_ITS_FIRST_WRITE:
        return FailureKind.BROKE
    if code == "ERR":
        kind = next((found for start, found in _ERR_DETAILS.items() if detail.startswith(start)), None)
    return kind or FailureKind.REFUSED


def failure_of_reply(code: str, detail: str, endpoint: Endpoint | None) -> Failure:
    """Return an error reply as a failure. If the server refuses a call before it starts a script, the outcome is as if
    the call was never sent.
    """
    kind = classify(code, detail)
    outcome = {FailureKind.REFUSED: Outcome.REFUSED, FailureKind.BROKE: Outcome.UNKNOWN}.get(kind, Outcome.NEVER_SENT)
    if kind in (FailureKind.OUT_OF_MEMORY, FailureKind.DENIED):
        outcome = Outcome.REFUSED
    return Failure(kind, detail, code, outcome, endpoint)
