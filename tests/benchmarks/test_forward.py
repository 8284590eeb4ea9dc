"""Tests that the benchmark of forwarding runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import pytest

from benchmarks.forward import FAR, NEAR, verdicts
from benchmarks.works import Idle, Medians
from tests.benchmarks.running import SPEED, benchmark, mismatches, refused

PATTERNS = [
    r".+",
    r"with its append-only file on; Python 3\S+; 100 messages of 64 B each time; medians, rounds: 1",
    r"messages that wait are moved +a second +client CPU +server CPU",
    *(rf"{way} +{SPEED}" for way in (NEAR, FAR)),
    r"from sending a message to the start of its handler at the destination",
    *(rf"{way} +p50 \d+\.\d\d ms +p99 \d+\.\d\d ms" for way in (NEAR, FAR)),
    r"goals",
    r"moves a second: ≥ 10,000 +[\d,]+  (met|MISSED)",
    r"p50 of a move: < 20 ms +\d+\.\d\d ms  (met|MISSED)",
    r"A short run: .*",
]


@pytest.mark.long("it runs a whole benchmark")
def test_the_short_form_reports_the_same_rows_as_the_long_form() -> None:
    lines = benchmark("forward", "--short", "--messages", "100", "--body", "64")
    assert mismatches(lines, PATTERNS) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_an_invalid_number_is_refused() -> None:
    assert "must be 1 at least" in refused("forward", "--messages", "-1")


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    def judged(speed: float, delay: float) -> list[str]:
        moved = {NEAR: Medians(50_000, 1, 1), FAR: Medians(speed, 1, 1)}
        return [line.split()[-1] for line in verdicts(moved, {NEAR: Idle(1, 2), FAR: Idle(delay, 50)})[1:]]

    assert judged(10_000, 19.9) == ["met"] * 2
    assert judged(9_999, 20) == ["MISSED"] * 2
