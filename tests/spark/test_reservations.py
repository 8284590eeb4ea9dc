"""Tests of how the job ``reservations`` shows a reservation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sbredis.exceptions import EntityReservedError, Outcome
from sbredis.model import ReservationPosition, ReservationStatus
from sbredis.spark._reservations import say_stale, shown

SEEN = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
POSITION = ReservationPosition(plan=3, committed=17, planned=20, left=1500, last_seen=SEEN)
STATUS = ReservationStatus(
    path="orders",
    consumer="capture",
    owner="job 7",
    since=datetime(2026, 5, 1, 12, tzinfo=UTC),
    last_seen=SEEN,
    state="reserved",
    stale=False,
    positions={0: POSITION, 2: replace(POSITION, planned=17, left=1)},
    unreachable_partitions=(1,),
)


def test_a_reservation_says_by_whom_since_when_and_how_far() -> None:
    first, *rest = shown(STATUS, "release it")
    who = "orders: reserved by capture (job 7) since 2026-05-01T12:00:00+00:00"
    assert first == f"{who}, last sign of life 2026-05-01T12:30:00+00:00"
    assert rest == [
        "  1,501 messages left to plan",
        "  partition 0: done up to 17, planned up to 20, 1,500 left",
        "  partition 2: done up to 17, 1 left",
        "  partition 1: no answer",
    ]


def test_a_single_message_is_left_to_plan() -> None:
    assert shown(replace(STATUS, positions={0: replace(POSITION, left=1)}), "")[1] == "  1 message left to plan"


def test_a_stale_reservation_comes_with_the_command_that_ends_it() -> None:
    first, *_ = shown(replace(STATUS, stale=True, last_seen=None, owner=""), "release it")
    assert first.startswith("orders: reserved by capture since ")
    assert first.endswith("last sign of life never; stale, to end it: release it")


@pytest.mark.parametrize(
    ("since", "last_seen", "stale"),
    [(20, None, True), (20, 5, False), (5, None, False), (40, 20, True), (5, 40, False)],
)
def test_an_error_tells_of_a_reservation_without_a_sign_of_life(since: int, last_seen: int | None, stale: bool) -> None:
    """Since the reservation, or the last call. A run that has taken an entity over has made no call at first."""
    error = EntityReservedError("reserved.", outcome=Outcome.REFUSED)
    error.since = SEEN - timedelta(minutes=since)
    error.last_seen = None if last_seen is None else SEEN - timedelta(minutes=last_seen)
    say_stale(error, 900, SEEN, "release it")
    latest = SEEN - timedelta(minutes=20)
    told = f" The reservation is stale: it has shown no sign of life since {latest.isoformat()}, for longer than "
    told += "reservationStaleAfter. If its query does not run any more, end it: release it"
    assert error.message == f"reserved.{told if stale else ''}"
