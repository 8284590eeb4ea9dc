"""Tests that the benchmark of sessions runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.sessions import Handled, Turnstile, Weights, verdicts
from tests.benchmarks.running import SPEED, benchmark, mismatches, refused

BYTES = r"-?\d+ B"
TRIP = r"p50 \d+\.\d\d ms +p99 \d+\.\d\d ms"
RATIO = r" +\d+\.\d\d x a queue"
STEPS = [rf"send +{SPEED}", rf"receive, complete +{SPEED}"]
SESSION_STEPS = [rf"send +{SPEED}", rf"accept, receive, complete, close +{SPEED}"]
PATTERNS = [
    r".+",
    r"with its append-only file on; Python 3\S+; 100 messages of 64 B each time, 200 sessions; medians, rounds: 1; .+",
    r"memory over the body, a message",
    rf"in a queue +{BYTES}",
    rf"in a session of 100 messages +{BYTES}",
    rf"alone in its session +{BYTES} +{BYTES} when held",
    r"memory, a session without messages",
    rf"with a state of 100 B, over that +{BYTES}",
    r"without one +-?\d+\.\d B",
    r"server time, a call",
    r"10 sessions free +accept the next +\d+\.\d µs +give back +\d+\.\d µs",
    r"200 sessions free +accept the next +\d+\.\d µs +give back +\d+\.\d µs",
    r"through the client, each by itself +messages/s +client CPU +server CPU",
    rf"a queue, batches of 100 +{SPEED} +1\.00 x a queue",
    rf"one session, batches of 100 +{SPEED}{RATIO}",
    rf"a queue +{SPEED} +1\.00 x a queue",
    *STEPS,
    rf"one session +{SPEED}{RATIO}",
    *STEPS,
    rf"10 messages a session +{SPEED}{RATIO}",
    *SESSION_STEPS,
    rf"1 message a session +{SPEED}{RATIO}",
    *SESSION_STEPS,
    r"idle",
    rf"send to start of handler, a queue +{TRIP}",
    rf"send to start of handler, one session +{TRIP}",
    rf"send to start of handler, the next session +{TRIP}",
    rf"accept the next to first message, 10 free +{TRIP}",
    rf"accept the next to first message, 200 free +{TRIP}",
    r"a worker of 16 slots",
    r"messages of a queue +[\d,]+ +\d+ µs",
    r"sessions of one message +[\d,]+ +\d+ µs",
    r"left of 110 sessions when they are over: \w+ [\d,]+ B, .+",
    r"goals",
    r"a message in a session, over its body: ≤ 250 B +\d+\.\d{3} B  (met|MISSED)",
    r"accepting, many free: ≤ 1\.5 x 10 free +\d+\.\d{3} x  (met|MISSED)",
    r"a session that is over: ≤ 1 B +-?\d+\.\d{3} B  (met|MISSED)",
    r"plain messages a session in a worker: ≤ 10 +\d+\.\d{3} x  (met|MISSED)",
    r"CPU of a session in a worker: ≤ 6 messages +\d+\.\d{3} x  (met|MISSED)",
    r"A short run: .*",
]


@pytest.mark.long("it runs a whole benchmark")
def test_the_short_form_reports_the_same_rows_as_the_long_form() -> None:
    lines = benchmark("sessions", "--short", "--messages", "100", "--sessions", "200", "--body", "64")
    assert mismatches(lines, PATTERNS) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_an_invalid_number_is_refused() -> None:
    assert "--sessions more than 10" in refused("sessions", "--sessions", "10")


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    def judged(weight: float, growth: float, left: float, slowness: float, cost: float) -> list[str]:
        weights = Weights(100, weight, 999, 999, 999, left)
        workers = Handled(1000, 100), Handled(1000 / slowness, 100 * cost)
        lines = verdicts(weights, Turnstile(50, 50), Turnstile(50 * growth, 999), workers)
        return [re.split(r" {2,}", line.strip())[-1] for line in lines[1:]]

    assert judged(250, 1.5, 1, 10, 6) == ["met"] * 5
    assert judged(250.1, 1.51, 1.1, 10.1, 6.1) == ["MISSED"] * 5
