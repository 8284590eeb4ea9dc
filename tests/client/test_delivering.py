"""Delivering a call: the next step after each outcome, and the search for the jobs that a partition refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.client import UnmadeError
from sbredis.client import _delivering as delivering
from sbredis.client._delivering import CallDelivery, DisplacedError, Halving, NextStep
from sbredis.engine import (
    LaneUnknownError,
    MalformedCallError,
    PartRefusedError,
    SessionIdMissingError,
    SettingsBehindError,
    SettingsStaleError,
)
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

NEVER_SENT, UNKNOWN, REFUSED = Outcome.NEVER_SENT, Outcome.UNKNOWN, Outcome.REFUSED
S = NextStep

# Each row: the error of an attempt, the step if time is left, and the step if no time is left. MOVE is tested below.
ROWS: list[tuple[ServiceBusError, NextStep, NextStep]] = [
    (DisplacedError("elsewhere", outcome=NEVER_SENT), S.END, S.END),
    (PartRefusedError(SettingsBehindError("behind", outcome=REFUSED), operation=1), S.END, S.END),
    (SettingsBehindError("behind", outcome=REFUSED), S.TELL, S.TELL),
    (SettingsStaleError("stale", outcome=REFUSED), S.RELOAD, S.RELOAD),
    (MessagingEntityNotFoundError("gone", outcome=REFUSED), S.RECOVER, S.RECOVER),
    (LaneUnknownError("forgotten", outcome=REFUSED), S.ANEW, S.ANEW),
    (LaneUnknownError("forgotten", outcome=UNKNOWN), S.END, S.END),
    (ServiceBusConnectionError("no way", outcome=NEVER_SENT), S.MOVE, S.MOVE),
    (ServiceBusServerBusyError("busy", outcome=NEVER_SENT), S.MOVE, S.MOVE),
    (OperationTimeoutError("late", outcome=NEVER_SENT), S.MOVE, S.MOVE),
    (OperationTimeoutError("late", outcome=UNKNOWN), S.AGAIN, S.END),
    (ServiceBusCommunicationError("lost", outcome=UNKNOWN), S.AGAIN, S.END),
    (ServiceBusAuthorizationError("not permitted", outcome=NEVER_SENT), S.END, S.END),
    (MessagingEntityDisabledError("disabled", outcome=REFUSED), S.END, S.END),
    (ServiceBusQuotaExceededError("full", outcome=REFUSED), S.SPLIT, S.SPLIT),
    (MessageSizeExceededError("large", outcome=REFUSED), S.SPLIT, S.SPLIT),
    (SessionIdMissingError("no session", outcome=REFUSED), S.SPLIT, S.SPLIT),
    (MalformedCallError("malformed", outcome=REFUSED), S.SPLIT, S.SPLIT),
    (UnmadeError(ValueError("odd")), S.SPLIT, S.SPLIT),
    (ServiceBusError("a defect of the script", outcome=UNKNOWN, is_transient=False), S.END, S.END),
]


def named(row: tuple[ServiceBusError, NextStep, NextStep]) -> str:
    error = row[0]
    return f"{type(error).__name__}-{error.outcome.name if error.outcome else ''}"


@pytest.mark.parametrize("row", ROWS, ids=named)
@pytest.mark.parametrize("time_is_left", [False, True])
def test_the_error_of_a_call_decides_its_next_step(
    row: tuple[ServiceBusError, NextStep, NextStep], time_is_left: bool
) -> None:
    error, with_time, without = row
    delivery = CallDelivery(lane_is_known=True)
    assert delivery.failed(error.twin(), time_is_left=time_is_left) is (with_time if time_is_left else without)


@pytest.mark.parametrize("row", ROWS, ids=named)
@pytest.mark.parametrize("lane_is_known", [False, True])
def test_a_call_that_ends_without_a_result_makes_its_lane_unknown(
    row: tuple[ServiceBusError, NextStep, NextStep], lane_is_known: bool
) -> None:
    delivery = CallDelivery(lane_is_known=lane_is_known)
    step = delivery.failed(row[0].twin(), time_is_left=True)
    if step is S.MOVE:
        step = delivery.moved(some=False, time_is_left=True)
    if step in {S.TELL, S.RELOAD, S.RECOVER}:
        assert not delivery.leaves_lane
        step = delivery.obstacle_removed()
    forgotten = isinstance(row[0], LaneUnknownError)
    assert delivery.leaves_lane == (step is not S.AGAIN and (forgotten or not lane_is_known))


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("time_is_left", [False, True])
def test_a_job_that_could_not_be_moved_waits_while_there_is_time(some: bool, time_is_left: bool) -> None:
    delivery = CallDelivery(lane_is_known=True)
    assert delivery.failed(ServiceBusConnectionError("no way", outcome=NEVER_SENT), time_is_left=time_is_left) is S.MOVE
    assert delivery.unreachable
    stays = S.AGAIN if time_is_left else S.END
    assert delivery.moved(some=some, time_is_left=time_is_left) is (S.ANEW if some else stays)
    assert not delivery.maybe_ran


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_call_that_may_have_run_is_never_moved_or_reported_as_not_run(
    row: tuple[ServiceBusError, NextStep, NextStep],
) -> None:
    delivery = CallDelivery(lane_is_known=True)
    assert delivery.failed(ServiceBusCommunicationError("lost", outcome=UNKNOWN), time_is_left=True) is S.AGAIN
    assert delivery.maybe_ran
    assert delivery.unreachable
    step = delivery.failed(row[0].twin(), time_is_left=False)
    assert step is not S.MOVE
    assert delivery.error is not None
    if row[0].outcome is NEVER_SENT or isinstance(row[0], LaneUnknownError):
        assert delivery.error.outcome is UNKNOWN
    if isinstance(row[0], LaneUnknownError):
        assert step is S.END
        assert "has no record of whether the call ran" in delivery.error.message


def test_a_call_stays_unknown_through_later_attempts_that_did_not_run() -> None:
    delivery = CallDelivery(lane_is_known=True)
    for outcome in (UNKNOWN, NEVER_SENT, NEVER_SENT):
        assert delivery.failed(ServiceBusConnectionError("no way", outcome=outcome), time_is_left=True) is S.AGAIN
        assert delivery.maybe_ran
    delivery.failed(ServiceBusConnectionError("no way", outcome=NEVER_SENT), time_is_left=False)
    assert delivery.error is not None
    assert delivery.error.outcome is UNKNOWN


@pytest.mark.parametrize("obstacle", [SettingsBehindError, SettingsStaleError, MessagingEntityNotFoundError])
def test_a_failed_attempt_to_remove_an_obstacle_does_not_change_the_outcome_of_the_call(
    obstacle: type[ServiceBusError],
) -> None:
    delivery = CallDelivery(lane_is_known=True)
    delivery.failed(obstacle("in the way", outcome=REFUSED), time_is_left=True)
    worse = ServiceBusConnectionError("no way to the registry", outcome=UNKNOWN)
    assert delivery.obstacle_removed(worse) is S.END
    assert delivery.error is worse
    assert worse.outcome is REFUSED
    assert not delivery.unreachable


# -- the refused jobs --------------------------------------------------------------------------------------------------


@dataclass
class Job:
    name: int
    size: int
    odd: bool = False


class Called:
    """The jobs of a call."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def take(self, count: int) -> Called:
        taken, self.jobs = Called(self.jobs[:count]), self.jobs[count:]
        return taken

    def split_off(self, chosen: Sequence[bool]) -> Called:
        taken = Called([job for job, is_chosen in zip(self.jobs, chosen, strict=True) if is_chosen])
        self.jobs = [job for job, is_chosen in zip(self.jobs, chosen, strict=True) if not is_chosen]
        return taken


class Partition:
    """A partition that accepts all jobs of a call or none. It refuses odd jobs, and jobs that exceed its room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[int] = []
        self.calls = 0

    def take(self, jobs: list[Job]) -> ServiceBusError | None:
        self.calls += 1
        if any(job.odd for job in jobs):
            return MalformedCallError("odd", outcome=REFUSED)
        if sum(job.size for job in jobs) > self.room:
            return ServiceBusQuotaExceededError("full", outcome=REFUSED)
        self.room -= sum(job.size for job in jobs)
        self.taken += [job.name for job in jobs]
        return None


def search(jobs: list[Job], partition: Partition) -> dict[int, type[ServiceBusError]]:
    """Deliver all jobs. Return the errors of the refused jobs."""
    halving = Halving[Called](lambda called: [job.size for job in called.jobs])
    failed: dict[int, type[ServiceBusError]] = {}
    called, refusal = Called(jobs), None
    while True:
        error = refusal or partition.take(called.jobs)
        if error is not None and (refusal is not None or not halving.split(called, error)):
            failed |= {job.name: type(error) for job in called.jobs}
        part = halving.next_part()
        if part is None:
            return failed
        called, refusal = part


jobs_drawn = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([False, False, False, True])), max_size=40).map(
    lambda drawn: [Job(name, size, odd) for name, (size, odd) in enumerate(drawn)]
)


@settings(deadline=None)
@given(jobs_drawn, st.integers(0, 200))
def test_every_job_has_its_own_outcome(jobs: list[Job], room: int) -> None:
    partition = Partition(room)
    failed = search(jobs, partition) if jobs else {}
    assert sorted([*partition.taken, *failed]) == [job.name for job in jobs]
    assert partition.taken == sorted(partition.taken)  # the accepted jobs have their original order
    by_name = {job.name: job for job in jobs}
    assert not any(by_name[name].odd for name in partition.taken)
    full = [by_name[name].size for name, error in failed.items() if error is ServiceBusQuotaExceededError]
    for size in full:
        assert size > partition.room  # a job that was refused for lack of room really does not fit
    assert {name for name, error in failed.items() if error is MalformedCallError} <= {j.name for j in jobs if j.odd}


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(0, 499))
def test_one_malformed_job_among_many_is_found_in_few_calls(count: int, odd: int) -> None:
    jobs = [Job(name, 1, odd=name == odd % count) for name in range(count)]
    partition = Partition(10_000)
    assert search(jobs, partition) == {odd % count: MalformedCallError}
    assert partition.calls <= 2 * count.bit_length() + 1


def test_a_full_partition_gets_fewer_calls_than_there_are_jobs() -> None:
    partition = Partition(0)
    failed = search([Job(name, 10) for name in range(1000)], partition)
    assert len(failed) == 1000
    assert partition.calls <= 11


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_UNANSWERED", (Outcome.NEVER_SENT,)),
        ("OF_ONE_JOB", (ServiceBusQuotaExceededError, MessageSizeExceededError, MalformedCallError)),
        ("_ENDS_THE_CALL", (S.ANEW, S.END)),
        ("_OBSTACLES", ()),
    ],
)
def test_a_planted_bug_is_detected(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, name, wrong)
    with pytest.raises(AssertionError):
        _check_all_rows()


def _check_all_rows() -> None:
    for row in ROWS:
        for flag in (False, True):
            test_the_error_of_a_call_decides_its_next_step(row, flag)
            test_a_call_that_ends_without_a_result_makes_its_lane_unknown(row, flag)
        test_a_call_that_may_have_run_is_never_moved_or_reported_as_not_run(row)
    for obstacle in (SettingsBehindError, SettingsStaleError, MessagingEntityNotFoundError):
        delivery = CallDelivery(lane_is_known=True)
        delivery.failed(obstacle("in the way", outcome=NEVER_SENT), time_is_left=True)
        assert not delivery.unreachable


@pytest.mark.parametrize("spans", [False, True])
@pytest.mark.parametrize(("asked_before", "outcome"), [(False, REFUSED), (False, UNKNOWN), (True, REFUSED)])
def test_a_call_that_spans_partitions_is_not_repeated_where_its_record_is_gone(
    spans: bool, asked_before: bool, outcome: Outcome
) -> None:
    """If it ran, its effects in the other partitions are still there.

    The transport repeats a call too. Then the outcome of the refusal is unknown.
    """
    delivery = CallDelivery(lane_is_known=True, spans=spans)
    if asked_before:
        lost = ServiceBusCommunicationError("lost", outcome=Outcome.UNKNOWN)
        assert delivery.failed(lost, time_is_left=True) is NextStep.AGAIN
    step = delivery.failed(MessagingEntityNotFoundError("gone", outcome=outcome), time_is_left=True)
    assert step is (NextStep.END if spans and (asked_before or outcome is UNKNOWN) else NextStep.RECOVER)
    if step is NextStep.END:
        assert delivery.error is not None
        assert delivery.error.outcome is Outcome.UNKNOWN
