"""Tests of how the job ``reservations`` shows a reservation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sbredis.model import ReservationPosition, ReservationStatus
from sbredis.spark._reservations import shown

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
