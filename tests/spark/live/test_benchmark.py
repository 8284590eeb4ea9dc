"""The benchmark of Spark runs, and prints its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.spark import DELAYS, JOBS, WORKS, Sample, lines
from benchmarks.spark_growth import Seconds
from benchmarks.spark_growth import lines as growth_lines
from tests.benchmarks.running import benchmark, refused

SPEED = r" +[\d,]+ rows/s +[\d,]+ rows/s +\d+\.\d\d x  ≥ \d\.\d  (met|MISSED)"


@pytest.mark.long("it runs a whole benchmark")
@pytest.mark.slow
@pytest.mark.usefixtures("spark")  # says why the test is skipped where there is no Java
def test_the_short_form_reports_its_rows() -> None:
    """It has a Spark of its own. Jobs with rows as few as these take as long as Spark needs to begin."""
    printed = benchmark("spark", "--rows", "2000", "--rounds", "1", "--only", "skew", silent=False)  # Spark complains
    assert re.fullmatch(r"Python 3\S+; 2,000 rows of 200 B", printed[1])
    found = {line: bool(re.match(rf"(write|read){SPEED}", line)) for line in printed[3:-1]}
    assert list(found.values()) == [True] * 2, found
    assert re.fullmatch(r"skew +\d+\.\d s +\d+\.\d s +\d+\.\d\d x  ≤ 2\.0  MISSED", printed[-1])


def test_each_goal_is_compared_with_the_median_ratio() -> None:
    """The goal of a job is a number of times the time of the plain read; other goals are parts of the plain speed."""
    exactly = {work.name: [Sample(1.0, work.ratio), Sample(9.0, 1.0), Sample(1.0, 9.0)] for work in WORKS}
    exactly |= {job.name: [Sample(2.0, 1.0), Sample(1.0, 1.0), Sample(9.0, 1.0)] for job in JOBS}
    exactly |= {delay.name: [Sample(delay.ratio, 1.0), Sample(1.0, 1.0), Sample(9.0, 1.0)] for delay in DELAYS}
    assert [line.split()[-1] for line in lines(exactly, 1000)[1:]] == ["met"] * len(exactly)
    missed = {"read": [Sample(9.0, 1.0)], "skew": [Sample(2.1, 1.0)], "p99 beside reads": [Sample(3.1, 1.0)]}
    assert [line.split()[-1] for line in lines(missed, 1000)[1:]] == ["MISSED"] * 3


def test_processor_times_are_compared_where_they_were_measured() -> None:
    times = {"write": [Sample(1.0, 2.0)], "read": [Sample(2.0, 1.0, 4.0, 5.0), Sample(1.0, 2.0, 8.0, 5.0)]}
    write, read = lines(times, 1000)[1:]
    assert write.split()[-1] == "met"
    assert read.endswith("6.0 s and   5.0 s of processor time: 0.83 x")


@pytest.mark.long("it starts processes to see one line")
def test_invalid_arguments_are_refused() -> None:
    assert "must be 1 at least" in refused("spark", "--rows", "0")
    assert "must name pieces of work" in refused("spark", "--only", "everything")


def test_the_growth_is_compared_with_the_fewest_rows() -> None:
    found = {(100, 1): Seconds(1.0, 2.0), (300, 1): Seconds(6.0, 3.0), (100, 4): Seconds(1.0, 1.0)}
    assert growth_lines(found)[2:] == [
        "| 100 | 1 | 100 rows/s | 50 rows/s | 1.00 x and 1.00 x |",
        "| 100 | 4 | 100 rows/s | 100 rows/s | 1.00 x and 1.00 x |",
        "| 300 | 1 | 50 rows/s | 100 rows/s | 0.50 x and 2.00 x |",
    ]


@pytest.mark.long("it starts processes to see one line")
def test_invalid_sizes_are_refused() -> None:
    assert "invalid" in refused("spark_growth", "--rows", "0,5")
