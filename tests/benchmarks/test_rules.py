"""Tests that the benchmark of rules runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.rules import cases
from tests.benchmarks.running import benchmark, mismatches, refused

FIGURES = r" +[\d,]+ +[\d,]+ +[\d,]+\.\d\d µs +[\d,]+\.\d\d µs +[\d,]+\.\d ms"


@pytest.mark.long("it runs a whole benchmark")
def test_one_round_reports_the_same_rows_as_several_rounds() -> None:
    patterns = [
        r"Python 3\S+; one process; 1 rounds",
        r"filters/s +with facts +a message +with facts +to compile",
        *(re.escape(case.name) + FIGURES for case in cases()),
        r"the facts of a message alone: \d+\.\d\d µs",
    ]
    assert mismatches(benchmark("rules", "--rounds", "1"), patterns) == ([], 0)


def test_an_invalid_number_is_refused() -> None:
    assert "--rounds must be 1 at least" in refused("rules", "--rounds", "0")
