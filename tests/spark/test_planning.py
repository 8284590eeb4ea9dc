"""Tests of the tasks of a batch, and of the counts of a limited batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbredis.spark._planning import PartitionRange, limits, split_rows, spread, tasks_of

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8).map(
    lambda pairs: [PartitionRange(number, "b", after, after + size) for number, (after, size) in enumerate(pairs)]
)


def numbers(ranges: list[PartitionRange]) -> list[tuple[int, int]]:
    return sorted((each.partition, number) for each in ranges for number in range(each.after + 1, each.upto + 1))


@given(RANGES, st.integers(1, 10), st.integers(1, 30))
def test_tasks_cover_each_number_once(ranges: list[PartitionRange], least: int, most: int) -> None:
    most = max(least, most)
    tasks = tasks_of(ranges, least, most)
    assert numbers([each for task in tasks for each in task]) == numbers(ranges)
    assert len(tasks) <= most
    assert len(tasks) >= min(least, len(numbers(ranges)))
    assert all(task for task in tasks)
    assert tasks == tasks_of(ranges, least, most)


def test_partitions_are_put_together_so_that_tasks_have_about_the_same_work() -> None:
    ranges = [PartitionRange(number, "b", 0, 100) for number in range(16)]
    assert [sum(each.size for each in task) for task in tasks_of(ranges, 1, 4)] == [400] * 4
    assert len(tasks_of([PartitionRange(0, "b", 0, 100)], 4, 8)) == 4


def test_the_limits_of_tasks_follow_the_cores_if_no_option_says_otherwise() -> None:
    assert limits(None, None, 2) == (1, 4)
    assert limits(8, None, 2) == (8, 8)
    assert limits(None, 3, 2) == (1, 3)


@given(st.none() | st.integers(1, 10_000), st.dictionaries(st.integers(0, 20), st.integers(0, 2000), max_size=20))
def test_a_limited_batch_takes_as_much_as_it_may(most: int | None, waiting: dict[int, int]) -> None:
    counts = split_rows(most, waiting, {})
    there = sum(waiting.values())
    assert sum(counts.values()) == (there if most is None else min(most, there))
    assert all(0 <= counts[number] <= waiting[number] for number in waiting)


@given(st.integers(0, 1000), st.lists(st.integers(), min_size=1, unique=True))
def test_rows_are_spread_evenly(rows: int, places: list[int]) -> None:
    counts = spread(rows, places)
    assert sum(counts.values()) == rows
    assert max(counts.values()) - min(counts.values()) <= 1
