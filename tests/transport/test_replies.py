"""Error replies and lost connections: what each means for a call, and which error the caller gets."""

from __future__ import annotations

import pytest

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
from sbredis.transport import Endpoint, Script
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._script import Call

HERE = Endpoint("h", 1)
NEVER, REFUSED, UNKNOWN = Outcome.NEVER_SENT, Outcome.REFUSED, Outcome.UNKNOWN
Kind = FailureKind
SCRIPT = " script: 6e811d0f0172f03edd82cf73ef5284baccd936b9, on @user_script:1."
SCRIPT_OF_VALKEY = " script: on @user_script:1."
FUNCTION = " script: sb_0123_send, on @user_function:1."

# Each reply of a server with its kind of failure, the known outcome of the call, and whether the transport tries again.
REPLIES = [
    ("MOVED 3999 127.0.0.1:6381", Kind.MOVED, NEVER, True),
    ("ASK 3999 127.0.0.1:6381", Kind.ASK, NEVER, True),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Kind.TRY_AGAIN, NEVER, True),
    ("NOSCRIPT No matching script. Please use EVAL.", Kind.NO_SCRIPT, NEVER, False),
    ("ERR Function not found", Kind.NO_FUNCTION, NEVER, False),
    ("LOADING Redis is loading the dataset in memory", Kind.NOT_READY, NEVER, True),
    ("CLUSTERDOWN The cluster is down", Kind.NOT_READY, NEVER, True),
    ("CLUSTERDOWN Hash slot not served", Kind.NOT_READY, NEVER, True),
    ("MASTERDOWN Link with MASTER is down", Kind.NOT_READY, NEVER, True),
    ("BUSY Redis is busy running a script.", Kind.NOT_READY, NEVER, True),
    ("NOREPLICAS Not enough good replicas to write.", Kind.NOT_READY, NEVER, True),
    ("NOREPLICAS Not enough good replicas to write." + SCRIPT, Kind.NOT_READY, NEVER, True),
    ("MISCONF Redis is configured to save RDB snapshots", Kind.NOT_READY, NEVER, True),
    ("ERR max number of clients reached", Kind.NOT_READY, NEVER, True),
    ("READONLY You can't write against a read only replica.", Kind.READ_ONLY, NEVER, True),
    ("READONLY You can't write against a read only replica." + SCRIPT, Kind.READ_ONLY, NEVER, True),
    ("READONLY You can't write against a read only replica." + SCRIPT_OF_VALKEY, Kind.READ_ONLY, NEVER, True),
    ("OOM command not allowed when used memory > 'maxmemory'.", Kind.OUT_OF_MEMORY, REFUSED, False),
    ("OOM command not allowed when used memory > 'maxmemory'." + SCRIPT, Kind.OUT_OF_MEMORY, REFUSED, False),
    ("NOPERM User x has no permissions to run the 'evalsha' command", Kind.DENIED, REFUSED, False),
    ("NOPERM User x has no permissions to run the 'fcall' command", Kind.DENIED, REFUSED, False),
    ("ERR unknown command 'FCALL', with args beginning with:", Kind.DENIED, REFUSED, False),
    ("ERR unknown command 'EVALSHA', with args beginning with:", Kind.DENIED, REFUSED, False),
    ("ERR Could not find scripting engine 'lua'", Kind.NO_ENGINE, NEVER, False),
    ("ERR Engine 'lua' not found", Kind.NO_ENGINE, NEVER, False),
    ("NOAUTH Authentication required.", Kind.UNAUTHENTICATED, NEVER, False),
    ("WRONGPASS invalid username-password pair or user is disabled.", Kind.UNAUTHENTICATED, NEVER, False),
    ("LOCKLOST 7", Kind.REFUSED, REFUSED, False),
    ("LOCKLOST", Kind.REFUSED, REFUSED, False),
    ("CROSSSLOT Keys in request don't hash to the same slot", Kind.REFUSED, REFUSED, False),
    ("ERR value is not an integer or out of range", Kind.REFUSED, REFUSED, False),
    ("ERR user_script:1: x" + SCRIPT, Kind.BROKE, UNKNOWN, False),
    ("WRONGTYPE Operation against a key" + SCRIPT_OF_VALKEY, Kind.BROKE, UNKNOWN, False),
    ("ERR user_function:1: x" + FUNCTION, Kind.BROKE, UNKNOWN, False),
    ("NOPERM User x has no permissions to run the 'set' command" + FUNCTION, Kind.BROKE, UNKNOWN, False),
    ("NOPERM User user_script has no permissions to run the 'fcall' command", Kind.DENIED, REFUSED, False),
    ("NOREPLICAS Not enough good replicas to write." + FUNCTION, Kind.NOT_READY, NEVER, True),
    ("READONLY You can't write against a read only replica." + FUNCTION, Kind.READ_ONLY, NEVER, True),
    ("NOPERM User x has no permissions to run the 'set' command" + SCRIPT, Kind.BROKE, UNKNOWN, False),
    ("ERR Script attempted to access a non local key in a cluster node" + SCRIPT, Kind.BROKE, UNKNOWN, False),
]

# Each row: the kind of failure, its known outcome, the class of the caller's error, and whether this error is
# transient. The last two columns say whether the transport repeats a call that must not be repeated, and a call that
# may be repeated.
ENDS = [
    (Kind.MOVED, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.ASK, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.TRY_AGAIN, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.NO_SCRIPT, NEVER, ServiceBusAuthorizationError, False, False, False),
    (Kind.NO_FUNCTION, NEVER, ServerUnsuitableError, False, False, False),
    (Kind.NO_ENGINE, NEVER, ServerUnsuitableError, False, False, False),
    (Kind.NOT_READY, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.READ_ONLY, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.DENIED, REFUSED, ServiceBusAuthorizationError, False, False, False),
    (Kind.UNAUTHENTICATED, NEVER, ServiceBusAuthenticationError, False, False, False),
    (Kind.OUT_OF_MEMORY, REFUSED, ServiceBusServerBusyError, True, False, False),
    (Kind.REFUSED, REFUSED, ScriptRefusedError, False, False, False),
    (Kind.BROKE, UNKNOWN, ServiceBusError, False, False, False),
    (Kind.UNREACHABLE, NEVER, ServiceBusConnectionError, True, True, True),
    (Kind.UNSUITABLE, NEVER, ServerUnsuitableError, False, False, False),
    (Kind.UNSERVED, NEVER, ServiceBusServerBusyError, True, True, True),
    (Kind.UNWRITABLE, NEVER, ServiceBusError, False, False, False),
    (Kind.LOST, NEVER, ServiceBusCommunicationError, True, True, True),
    (Kind.LOST, UNKNOWN, ServiceBusCommunicationError, True, False, True),
    (Kind.TIMED_OUT, NEVER, OperationTimeoutError, True, False, False),
    (Kind.TIMED_OUT, UNKNOWN, OperationTimeoutError, True, False, False),
    (Kind.UNCONFIRMED, UNKNOWN, OperationTimeoutError, True, False, True),
    (Kind.FULL, NEVER, ServiceBusServerBusyError, True, False, False),
    (Kind.CLOSED, NEVER, ServiceBusConnectionError, False, False, False),
    (Kind.CLOSED, UNKNOWN, ServiceBusConnectionError, False, False, False),
]


def call(*, repeatable: bool = False) -> Call:
    return Call(Script("send", "return 1"), [b"k"], [], repeatable=repeatable)


@pytest.mark.parametrize(("reply", "kind", "outcome", "again"), REPLIES, ids=[reply[0][:40] for reply in REPLIES])
def test_an_error_reply_tells_whether_the_call_ran(reply: str, kind: Kind, outcome: Outcome, again: bool) -> None:
    code, _, detail = reply.partition(" ")
    failure = failure_of_reply(code, detail, HERE)
    assert (failure.kind, failure.outcome, failure.endpoint) == (kind, outcome, HERE)
    assert (failure.code, failure.detail) == (code, detail)
    assert failure.may_repeat(call()) is again
    assert failure.may_repeat(call(repeatable=True)) is again
    assert failure.redirects is (code in ("MOVED", "ASK"))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{end[0].name}, {end[1].value}")
def test_a_failure_ends_in_an_error_of_its_class(
    end: tuple[Kind, Outcome, type[ServiceBusError], bool, bool, bool],
) -> None:
    kind, outcome, error, transient, again, again_if_recognised = end
    failure = Failure(kind, "the detail", "CODE", outcome, HERE)
    raised = failure.error(call())
    assert type(raised) is error
    assert (raised.is_transient, raised.outcome) == (transient, outcome)
    # the error for a missing script says which right to grant instead
    assert "the detail" in str(raised) or kind in (Kind.NO_SCRIPT, Kind.NO_FUNCTION)
    assert raised.tracking_id in str(raised)
    assert failure.may_repeat(call()) is again
    assert failure.may_repeat(call(repeatable=True)) is again_if_recognised


def test_every_kind_of_failure_is_in_the_tables() -> None:
    assert {row[0] for row in ENDS} == set(Kind)
    assert {row[1] for row in REPLIES} <= set(Kind)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.REFUSED])
def test_an_outcome_stays_unknown_after_an_earlier_attempt_that_may_have_run(kind: Kind) -> None:
    assert Failure(kind, "d", "C", NEVER, HERE).error(call(), maybe_ran=True).outcome is UNKNOWN


def test_a_refusal_by_the_script_decides_the_outcome() -> None:
    """The script recognises repetitions. If the first attempt had run, the script would have repeated its reply."""
    raised = Failure(Kind.REFUSED, "7", "LOCKLOST", REFUSED, HERE).error(call(), maybe_ran=True)
    assert isinstance(raised, ScriptRefusedError)
    assert (raised.reply_code, raised.detail, raised.outcome) == ("LOCKLOST", "7", REFUSED)


@pytest.mark.parametrize(
    "kind", [Kind.MOVED, Kind.NOT_READY, Kind.READ_ONLY, Kind.UNREACHABLE, Kind.LOST, Kind.UNCONFIRMED]
)
def test_the_error_gives_the_number_of_attempts_and_their_time(kind: Kind) -> None:
    said = str(Failure(kind, "d", "C", endpoint=HERE).error(call(), attempts=7, seconds=1.25))
    assert "7 attempts in 1.2 s" in said
    assert "script send" in said


@pytest.mark.parametrize("kind", list(Kind))
def test_an_error_while_connecting_mentions_no_call(kind: Kind) -> None:
    assert "None" not in str(Failure(kind, "d", "C", endpoint=HERE).error())
