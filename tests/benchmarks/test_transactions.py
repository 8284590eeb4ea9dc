"""Tests that the benchmark of transactions runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.transactions import BOTH, verdicts
from tests.benchmarks.running import SPEED, benchmark, mismatches, refused

CALL = r" +\d+\.\d µs"
RATIO = r" +\d+\.\d\d x the two calls"
WAYS = r"server \d+\.\d\d x two calls"
PATTERNS = [
    r".+",
    r"with its append-only file on; Python 3\S+; 100 messages of 64 B each time; medians, rounds: 1",
    r"server time, a call",
    rf"complete{CALL}",
    rf"send{CALL}",
    rf"{BOTH}{CALL}{RATIO}",
    rf"complete, after transactions{CALL}",
    rf"send, after transactions{CALL}",
    rf"5 completes{CALL}",
    rf"5 sends{CALL}",
    rf"10 messages, a transaction{CALL}{RATIO}",
    rf"50 completes{CALL}",
    rf"50 sends{CALL}",
    rf"100 messages, a transaction{CALL}{RATIO}",
    r"through the client, complete and send +a second +client CPU +server CPU",
    *(
        rf"{handlers}, {way} +{SPEED} +{WAYS}"
        for handlers in ("one handler", "100 handlers")
        for way in ("two calls", "a transaction")
    ),
    r"goals",
    r"server time of a transaction: ≤ 0\.7 x the two calls +\d+\.\d{3} x  (met|MISSED)",
    r"on one core of the server: ≥ 20,000 a second +[\d,]+  (met|MISSED)",
    r"a call of its own after transactions: ≤ 1\.03 x before +\d+\.\d{3} x  (met|MISSED)",
    r"A short run: .*",
]


def test_the_short_form_reports_the_same_rows_as_the_long_form() -> None:
    lines = benchmark("transactions", "--short", "--messages", "100", "--body", "64")
    assert mismatches(lines, PATTERNS) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_an_invalid_number_is_refused() -> None:
    assert "--messages must be 100 at least" in refused("transactions", "--messages", "99")


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    def judged(both: float, after: float) -> list[str]:
        costs = {"complete": 30, "send": 40, BOTH: both}
        costs |= {"complete, after transactions": 30, "send, after transactions": after}
        return [re.split(r" {2,}", line.strip())[-1] for line in verdicts(costs)[1:]]

    assert judged(49, 41.2) == ["met"] * 3
    assert judged(50.1, 41.3) == ["MISSED"] * 3
