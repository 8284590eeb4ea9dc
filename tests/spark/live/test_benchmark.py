"""The benchmark of Spark runs, and prints its report. No test asserts a speed."""

from __future__ import annotations

import re

import pytest

from benchmarks.spark import DELAYS, JOBS, WORKS, Pair, Spent, delay_lines, lines
from benchmarks.spark_growth_report import Queue, QueueCosts, page, picture, table
from benchmarks.spark_neighbour import Delay
from tests.benchmarks.running import benchmark, refused

SPEED = r" +[\d,]+ rows/s +[\d,]+ rows/s +\d+\.\d\d x  ≥ \d\.\d  (met|MISSED)"


@pytest.mark.long("it runs a whole benchmark")
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
    exactly = {work.name: [Pair(1.0, work.ratio), Pair(9.0, 1.0), Pair(1.0, 9.0)] for work in WORKS}
    exactly |= {job.name: [Pair(2.0, 1.0), Pair(1.0, 1.0), Pair(9.0, 1.0)] for job in JOBS}
    exactly |= {delay.name: [Pair(delay.ratio, 1.0), Pair(1.0, 1.0), Pair(9.0, 1.0)] for delay in DELAYS}
    assert [line.split()[-1] for line in lines(exactly, 1000)[1:]] == ["met"] * len(exactly)
    missed = {"read": [Pair(9.0, 1.0)], "skew": [Pair(2.1, 1.0)], "p99 beside reads": [Pair(3.1, 1.0)]}
    assert [line.split()[-1] for line in lines(missed, 1000)[1:]] == ["MISSED"] * 3


def test_processor_times_are_compared_where_they_were_measured() -> None:
    times = {"write": [Pair(1.0, 2.0)], "read": [Pair(2.0, 1.0, 4.0, 5.0), Pair(1.0, 2.0, 8.0, 5.0)]}
    write, read = lines(times, 1000)[1:]
    assert write.split()[-1] == "met"
    assert read.endswith("6.0 s and   5.0 s of processor time: 0.83 x")


@pytest.mark.long("it starts processes to see one line")
def test_invalid_arguments_are_refused() -> None:
    assert "must be 1 at least" in refused("spark", "--rows", "0")
    assert "must name pieces of work" in refused("spark", "--only", "everything")


def test_the_delay_of_another_client_says_what_its_messages_wait_for() -> None:
    found = [Delay(0.006, 0.002, 0.001, 0.25), Delay(0.005, 0.003, 0.002, 0.5), Delay(0.007, 0.001, 0.0, 0.0)]
    (line,) = delay_lines({"p99 alone": found})
    assert line == (
        "p99 alone           6.0 ms, mean 2.00 ms; for a processor, the client waits 1.00 ms a message, and the server "
        "25% of the time that it needs one"
    )


GROWTH = {
    Queue(100, 1): QueueCosts(Spent(1.0, 0.001), Spent(2.0, 0.002)),
    Queue(300, 1): QueueCosts(Spent(6.0, 0.009), Spent(3.0, 0.003)),
    Queue(100, 4): QueueCosts(Spent(1.0, 0.001), Spent(1.0, 0.001)),
}


def test_the_growth_is_compared_with_the_fewest_rows() -> None:
    assert table(GROWTH)[2:] == [
        "| 100 | 1 | 100 rows/s | 50 rows/s | 1.00 x and 1.00 x | 10.0 µs and 20.0 µs |",
        "| 100 | 4 | 100 rows/s | 100 rows/s | 1.00 x and 1.00 x | 10.0 µs and 10.0 µs |",
        "| 300 | 1 | 50 rows/s | 100 rows/s | 0.50 x and 2.00 x | 30.0 µs and 10.0 µs |",
    ]


def test_the_page_of_the_growth_has_the_table_and_the_picture_all_queues() -> None:
    made = page(GROWTH, "Valkey 9")
    assert "\n".join(table(GROWTH)) in made
    assert "Servers and rows: Valkey 9." in made
    widths = [float(width) for width in re.findall(r'<rect .* width="([0-9.]+)"', picture(GROWTH))]
    assert [width / max(widths) for width in widths] == pytest.approx([1 / 3, 2 / 3, 1, 1 / 3, 1 / 3, 1 / 3], abs=0.01)


@pytest.mark.long("it starts processes to see one line")
def test_invalid_sizes_are_refused() -> None:
    assert "invalid" in refused("spark_growth", "--rows", "0,5")
