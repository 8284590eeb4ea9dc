"""Tests of the table that says how long an opening retries after each kind of failure."""

from __future__ import annotations

import pytest

from sbredis.transport._address import Kind
from sbredis.transport._patience import Patience, passes
from sbredis.transport._replies import FailureKind

STARTED, SOON, LAST = 100.0, 105.0, 160.0
LASTING = {
    FailureKind.NO_SCRIPT,
    FailureKind.NO_FUNCTION,
    FailureKind.NO_ENGINE,
    FailureKind.DENIED,
    FailureKind.UNAUTHENTICATED,
    FailureKind.OUT_OF_MEMORY,
    FailureKind.REFUSED,
    FailureKind.BROKE,
    FailureKind.UNSUITABLE,
    FailureKind.UNWRITABLE,
    FailureKind.UNCONFIRMED,
    FailureKind.FULL,
    FailureKind.CLOSED,
    FailureKind.MOVED,
    FailureKind.ASK,
}
NOT_YET = {FailureKind.NOT_READY, FailureKind.UNSERVED, FailureKind.TRY_AGAIN}
SILENT = {FailureKind.UNREACHABLE, FailureKind.LOST, FailureKind.TIMED_OUT}


def patience(kind: Kind) -> Patience:
    return Patience(STARTED, SOON - STARTED, LAST, kind)


def test_every_kind_of_failure_is_in_the_table() -> None:
    assert {kind for kind in FailureKind if not passes(kind)} == LASTING
    assert LASTING | NOT_YET | SILENT | {FailureKind.READ_ONLY} == set(FailureKind)


@pytest.mark.parametrize("kind", ["standalone", "cluster", "sentinel", "unix"])
def test_a_wrong_configuration_is_refused_without_waiting(kind: Kind) -> None:
    assert {patience(kind).limit(failure, masters) for failure in LASTING for masters in (None, 1, 3)} == {STARTED}


@pytest.mark.parametrize("kind", ["standalone", "cluster", "sentinel", "unix"])
def test_the_client_waits_for_a_server_that_is_not_ready_until_the_deadline(kind: Kind) -> None:
    assert {patience(kind).limit(failure, masters) for failure in NOT_YET for masters in (None, 1, 3)} == {LAST}


@pytest.mark.parametrize(
    ("kind", "masters", "until"),
    [
        ("standalone", None, SOON),
        ("standalone", 1, SOON),
        ("unix", 1, SOON),
        ("cluster", None, SOON),  # no node answers, so the address may be wrong
        ("sentinel", None, SOON),
        ("cluster", 1, LAST),  # another node has named this server, so the address is right
        ("sentinel", 1, LAST),
        ("cluster", 3, SOON),  # the client then opens without this server
    ],
)
def test_the_client_waits_for_a_silent_server_that_other_nodes_know(
    kind: Kind, masters: int | None, until: float
) -> None:
    assert {patience(kind).limit(failure, masters) for failure in SILENT} == {until}


@pytest.mark.parametrize(
    ("kind", "until"), [("standalone", SOON), ("unix", SOON), ("sentinel", LAST), ("cluster", LAST)]
)
def test_the_client_waits_for_a_replica_that_may_be_promoted(kind: Kind, until: float) -> None:
    assert patience(kind).limit(FailureKind.READ_ONLY, 1) == until


def test_no_wait_exceeds_the_deadline() -> None:
    short = Patience(STARTED, 5.0, STARTED + 1, "standalone")
    assert short.limit(FailureKind.UNREACHABLE) == STARTED + 1
