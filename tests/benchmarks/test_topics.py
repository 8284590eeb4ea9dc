"""Tests that the benchmark of topics runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.topics import verdicts
from tests.benchmarks.running import SPEED, benchmark, mismatches, refused

TRIP = r"p50 \d+\.\d\d ms +p99 \d+\.\d\d ms"
FAN = r" +\d+\.\d\d x +-?\d+ B +1 +[\d,]+ B +[\d,]+ µs +\d+\.\d µs"
REACH = r"[\d,]+ B on the wire +\d+\.\d\d ms of the server"
RATIO = r" +\d+\.\d\d x a queue"
STEPS = [rf"send +{SPEED}{RATIO}", rf"receive, complete +{SPEED}{RATIO}"]
ALL_TAKE = ["1 that takes all", "10 that take all"]
ONE_TAKES = [f"one of 10 takes it, {how} filters" for how in ("simple", "complex")]
PATTERNS = [
    r".+",
    r"with its append-only file on; Python 3\S+; 100 copies each time; medians, rounds: 1; CPU a copy; 10 trips",
    r"one message to all subscriptions of a topic, 64 B",
    r"bodies stored +a copy beside +scripts +on the wire +server a send +a copy in calls of many",
    *(rf"{width} subscriptions?{FAN}" for width in (1, 10, 100)),
    r"one message to some of the 200 subscriptions of a topic, 64 B",
    rf"20 of them take it +{REACH}",
    rf"200 of them take it +{REACH}",
    r"through the client, each by itself +copies/s +client CPU +server CPU +judging a send",
    rf"a queue +{SPEED} +1\.00 x a queue",
    *STEPS,
    *(line for name in ALL_TAKE + ONE_TAKES for line in (rf"{name} +{SPEED} +\d+\.\d µs{RATIO}", *STEPS)),
    r"idle, send to start of handler",
    *(rf"{name} +{TRIP}" for name in ("a queue", *ALL_TAKE)),
    r"one send, to a topic of 200 subscriptions of which 20 take it",
    *(rf"{how} filters +{TRIP} +of which judging \d+\.\d\d ms" for how in ("simple", "complex")),
    r"goals: one send to 200 subscriptions of which 20 take it, ≤ 10 ms",
    *(
        rf"{what} +\d+\.\d{{3}} ms  (met|MISSED)"
        for what in ("server", "client, simple filters, p50", "client, complex filters, p50")
    ),
    r"A short run: .*",
]


@pytest.mark.long("it runs a whole benchmark")
def test_the_short_form_reports_the_same_rows_as_the_long_form() -> None:
    lines = benchmark("topics", "--short", "--messages", "100", "--body", "64")
    assert mismatches(lines, PATTERNS) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_an_invalid_number_is_refused() -> None:
    assert "--messages, --rounds and --body must be 1 at least" in refused("topics", "--rounds", "-1")


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    lines = verdicts(2_000, 10.0, {"simple": 1.0, "complex": 10.001})
    goals = [re.split(r" {2,}", line.strip()) for line in lines[1:]]
    assert goals == [
        ["server", "10.000 ms", "met"],
        ["client, simple filters, p50", "1.000 ms", "met"],
        ["client, complex filters, p50", "10.001 ms", "MISSED"],
    ]
