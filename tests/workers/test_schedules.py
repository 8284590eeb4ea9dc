"""Which ticks of a schedule are sent: the declaration, and the decision that every worker makes for itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import WorkerSetupError
from sbredis.workers import Router
from sbredis.workers.declaring._schedules import Missed, Overlap, Schedule, make_schedule
from sbredis.workers.schedules._deciding import MOST_TOGETHER, Decision, decide
from sbredis.workers.schedules._ticking import tick_message

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def schedule(missed: Missed = "latest", overlap: Overlap = "skip", **given: Any) -> Schedule:
    """Return a schedule that ticks every ten seconds."""
    every = None if given.get("line") else timedelta(seconds=10)
    return make_schedule("ticking", given.get("line"), every, tz=given.get("tz", "UTC"), missed=missed, overlap=overlap)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


# -- the decision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", ["latest", "all", "none"])
@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("busy", [False, True])
def test_nothing_is_due_before_the_next_tick(missed: Missed, overlap: Overlap, *, busy: bool) -> None:
    assert decide(schedule(missed, overlap), at(0), at(9.999), busy=busy) is None
    assert decide(schedule(missed, overlap), at(20), at(0), busy=busy) is None  # the watermark is ahead of the clock


Row = tuple[Missed, Overlap, bool, float, list[float], int, float]
TABLE: list[Row] = [
    # missed, overlap, busy, now, ticks to send, passed over, new watermark; the old one is 0
    ("latest", "queue", False, 10, [10], 0, 10),
    ("latest", "queue", True, 10, [10], 0, 10),
    ("latest", "queue", False, 39, [30], 2, 30),
    ("latest", "skip", False, 39, [30], 2, 30),
    ("latest", "skip", True, 10, [], 1, 10),
    ("latest", "skip", True, 39, [], 3, 30),
    ("all", "queue", False, 10, [10], 0, 10),
    ("all", "queue", True, 39, [10, 20, 30], 0, 30),
    ("all", "skip", False, 39, [10], 2, 30),
    ("all", "skip", True, 39, [], 3, 30),
    ("none", "queue", False, 10, [10], 0, 10),
    ("none", "queue", True, 39, [30], 2, 30),
    ("none", "skip", False, 39, [30], 2, 30),
    ("none", "skip", True, 39, [], 3, 30),
]


@pytest.mark.parametrize(("missed", "overlap", "busy", "now", "send", "passed", "watermark"), TABLE)
def test_due_ticks_are_sent_or_passed_over(  # noqa: PLR0917 -- a row of the table
    missed: Missed, overlap: Overlap, busy: bool, now: float, send: list[float], passed: int, watermark: float
) -> None:
    expected = Decision(tuple(map(at, send)), passed, at(watermark))
    assert decide(schedule(missed, overlap), at(0), at(now), busy=busy) == expected


def test_without_catching_up_a_late_tick_is_sent_within_a_minute() -> None:
    daily = make_schedule("daily", "0 12 * * *", None, missed="none")
    yesterday, minute = NOON - timedelta(days=1), timedelta(minutes=1)
    for late, sent in ((timedelta(), True), (minute, True), (minute + timedelta(milliseconds=1), False)):
        decision = decide(daily, yesterday, NOON + late, busy=False)
        assert decision == Decision((NOON,) if sent else (), 0 if sent else 1, NOON)


def test_many_missed_ticks_are_sent_in_several_transactions() -> None:
    every = schedule("all", "queue")
    watermark, sent = at(0), list[datetime]()
    while (decision := decide(every, watermark, at(1_000), busy=False)) is not None:
        assert len(decision.send) <= MOST_TOGETHER
        sent += decision.send
        watermark = decision.watermark
    assert sent == [at(seconds) for seconds in range(10, 1_001, 10)]


@pytest.mark.parametrize("line", ["* * * * *", "0 0 29 2 *", "30 2 * * 0"])
def test_the_last_tick_is_found_after_years(line: str) -> None:
    wanted = make_schedule("long", line, None, tz="Europe/Berlin")
    decision = decide(wanted, NOON - timedelta(days=1500), NOON, busy=False)
    assert decision is not None
    assert decision.send == (decision.watermark,)
    assert wanted.after(decision.watermark) > NOON >= decision.watermark


def test_ticks_of_a_period_are_its_multiples_since_1970() -> None:
    weekly = make_schedule("w", None, timedelta(days=7))
    assert weekly.after(NOON) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=7 * 2931)
    half = make_schedule("h", None, timedelta(seconds=1.5))
    assert str(half) == "every 1.5 s"
    times = half.ticks.times(datetime(1970, 1, 1, tzinfo=UTC))
    assert [next(times).timestamp() for _ in range(3)] == [1.5, 3.0, 4.5]


# -- many workers ------------------------------------------------------------------------------------------------------


class Worker:
    """A worker whose clock is wrong by a constant, and whose knowledge of the watermark may be old."""

    def __init__(self, skew: float) -> None:
        self.skew = timedelta(seconds=skew)
        self.known: datetime | None = None


class Broker:
    """The watermark and the ticks that were sent."""

    def __init__(self) -> None:
        self.watermark: datetime | None = None
        self.sent: list[datetime] = []
        self.passed = 0

    def advance(self, worker: Worker, decision: Decision) -> None:
        """Do what the transaction of a worker does."""
        if worker.known == self.watermark:
            self.watermark = decision.watermark
            self.sent += decision.send
            self.passed += decision.passed
        worker.known = self.watermark


@given(
    missed=st.sampled_from(["latest", "all", "none"]),
    overlap=st.sampled_from(["skip", "queue"]),
    skews=st.lists(st.sampled_from([0.0, 0.0, -15.0, 0.5, 25.0, 3_600.0]), min_size=1, max_size=5),
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 1, 4, 10, 11, 300]), st.booleans()), max_size=60
    ),
    held=st.integers(0, 2**32),
)
def test_each_tick_is_sent_at_most_once_by_workers_with_wrong_clocks(
    missed: Missed, overlap: Overlap, skews: list[float], steps: list[tuple[int, int, bool]], held: int
) -> None:
    """Workers decide and write in any order, so a decision may be long out of date when it reaches the broker.

    With ``missed="all"`` and without overlap each tick up to the watermark is sent.
    """
    workers, broker, plan = [Worker(skew) for skew in skews], Broker(), schedule(missed, overlap)
    under_way: list[tuple[Worker, Decision]] = []
    now, begun = at(3), None
    rng = random.Random(held)
    for index, later, busy in steps:
        now += timedelta(seconds=later)
        worker = workers[index % len(workers)]
        if worker not in [one for one, _ in under_way]:
            own = now + worker.skew
            decision = Decision((), 0, own) if worker.known is None else decide(plan, worker.known, own, busy=busy)
            if decision is not None:
                under_way.append((worker, decision))
        if under_way and rng.random() < 0.6:
            broker.advance(*under_way.pop(rng.randrange(len(under_way))))
            begun = begun or broker.watermark
    assert broker.sent == sorted(set(broker.sent))
    if begun is not None:
        assert all(begun < tick for tick in broker.sent)
        assert broker.watermark is not None
        if missed == "all" and overlap == "queue":
            first = plan.after(begun)
            expected = [first + timedelta(seconds=10 * number) for number in range(len(broker.sent))]
            assert broker.sent == expected
        assert len(broker.sent) + broker.passed == _ticks_between(plan, begun, broker.watermark)


def _ticks_between(plan: Schedule, begin: datetime, end: datetime) -> int:
    count, times = 0, plan.ticks.times(begin)
    while next(times) <= end:
        count += 1
    return count


# -- the message -------------------------------------------------------------------------------------------------------


def test_the_message_of_a_tick_is_always_the_same() -> None:
    berlin = schedule(tz="Europe/Berlin")
    message = tick_message(berlin, at(10), in_session=False)
    assert (message.subject, message.message_id, message.partition_key, message.session_id) == (
        "ticking",
        "ticking@2026-03-01T12:00:10.000+00:00",
        "ticking",
        None,
    )
    assert str(message) == '"2026-03-01T13:00:10+01:00"'
    assert tick_message(berlin, at(10), in_session=True).session_id == "ticking"


# -- declarations ------------------------------------------------------------------------------------------------------


async def nightly() -> None:
    """Do nothing."""


def test_a_schedule_has_the_name_and_the_queue_of_its_function() -> None:
    router = Router()
    assert router.cron("0 3 * * *", tz="Europe/Berlin")(nightly) is nightly
    (declared,) = router._declared
    assert declared.schedule is not None
    assert (declared.schedule.name, declared.source.path, declared.settings.subject) == ("nightly",) * 3
    assert declared.schedule.zone == ZoneInfo("Europe/Berlin")
    assert declared.entity_options == {"create_if_missing": True}


def test_a_schedule_may_share_a_queue_with_other_handlers() -> None:
    router = Router()
    router.cron(every=timedelta(minutes=5), name="five", queue="jobs", max_concurrent_calls=2)(nightly)
    router.cron("@daily", queue="jobs")(nightly)
    router.queue("jobs")(nightly)
    assert [each.source.path for each in router._declared] == ["jobs"] * 3
    assert [each.settings.subject for each in router._declared] == ["five", "nightly", None]
    assert router._declared[0].entity_options == {"max_concurrent_calls": 2}


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda router: router.cron("61 * * * *"), r"The minute of the cron line '61 \* \* \* \*' is wrong"),
    (lambda router: router.cron("* * * *"), "has 4 of the five fields"),
    (lambda router: router.cron("0 0 30 2 *"), "never happens"),
    (lambda router: router.cron("* * * * *", tz="Mars/Base"), "There is no time zone 'Mars/Base'"),
    (lambda router: router.cron("* * * * *", tz="../../etc/passwd"), "There is no time zone"),
    (lambda router: router.cron("* * * * *", tz=7), "tz must be the name of a time zone"),
    (lambda router: router.cron(), "It has no times"),
    (lambda router: router.cron("* * * * *", every=timedelta(1)), "Give a cron line or every=, not both"),
    (lambda router: router.cron(every=timedelta(milliseconds=999)), "every must be from 1 second to 366 days"),
    (lambda router: router.cron(every=timedelta(days=367)), "every must be from 1 second"),
    (lambda router: router.cron(every=timedelta(seconds=1, microseconds=1)), "whole number of milliseconds"),
    (lambda router: router.cron(every=5), "every must be a timedelta, not int"),
    (lambda router: router.cron("* * * * *", missed="some"), "missed must be 'latest' or 'all' or 'none'"),
    (lambda router: router.cron("* * * * *", overlap="?"), "overlap must be 'skip' or 'queue'"),
    (lambda router: router.cron("* * * * *", name=""), "name must have 1 to 90 printable characters"),
    (lambda router: router.cron("* * * * *", name=3), "name must be a str"),
]


@pytest.mark.parametrize(("declare", "text"), WRONG, ids=[text for _, text in WRONG])
def test_a_wrong_schedule_is_refused_where_it_is_written(declare: Callable[[Router], Any], text: str) -> None:
    router = Router()
    with pytest.raises(WorkerSetupError, match=text) as refused:
        declare(router)(nightly)
    assert "The schedule of tests.workers.test_schedules.nightly cannot be used: " in str(refused.value)
    assert router._declared == []


def test_options_of_messages_are_no_options_of_schedules() -> None:
    for name in ("subject", "when", "batch", "batch_wait", "sub_queue"):
        given: Any = {name: None}
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            Router().cron("* * * * *", **given)
    for name, near in {"overlaps": "overlap", "publish": "publishes"}.items():
        typo: Any = {name: None}
        with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}' \(did you mean '{near}'\?\)$"):
            Router().cron("* * * * *", **typo)


def test_two_schedules_of_one_name_are_refused() -> None:
    router, other = Router(), Router()
    router.cron("* * * * *")(nightly)
    other.cron("@daily", queue="elsewhere")(nightly)
    with pytest.raises(WorkerSetupError, match=r"Two schedules have the name 'nightly'.*another name="):
        router.cron("@daily", queue="elsewhere")(nightly)
    with pytest.raises(WorkerSetupError, match="Two schedules have the name 'nightly'"):
        router.include(other)
    assert len(router._declared) == 1


def test_a_schedule_is_refused_if_a_router_that_includes_its_own_has_one_of_its_name() -> None:
    router, inner = Router(), Router()
    router.include(inner)
    router.cron("* * * * *")(nightly)
    with pytest.raises(WorkerSetupError, match="Two schedules have the name 'nightly'"):
        inner.cron("@daily", queue="elsewhere")(nightly)
    assert (len(router._declared), len(inner._declared)) == (1, 0)
