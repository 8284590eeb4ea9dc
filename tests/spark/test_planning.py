"""Tests of the tasks of a batch, and of the counts of a limited batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbredis.spark._planning import PartitionRange, TaskLimits, limits, split_rows, tasks_of

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8).map(
    lambda pairs: [
        PartitionRange("orders", number, "b", after, after + size) for number, (after, size) in enumerate(pairs)
    ]
)


def numbers(ranges: list[PartitionRange]) -> list[tuple[int, int]]:
    return sorted((each.partition, number) for each in ranges for number in range(each.after + 1, each.upto + 1))


@given(RANGES, st.integers(1, 10), st.integers(1, 30))
def test_tasks_cover_each_number_once(ranges: list[PartitionRange], least: int, most: int) -> None:
    most = max(least, most)
    tasks = tasks_of(ranges, TaskLimits(least, most))
    assert numbers([each for task in tasks for each in task]) == numbers(ranges)
    assert len(tasks) <= most
    assert len(tasks) >= min(least, len(numbers(ranges)))
    assert all(task for task in tasks)
    assert tasks == tasks_of(ranges, TaskLimits(least, most))


def test_partitions_are_put_together_so_that_tasks_have_about_the_same_work() -> None:
    ranges = [PartitionRange("orders", number, "b", 0, 100) for number in range(16)]
    assert [sum(each.size for each in task) for task in tasks_of(ranges, TaskLimits(1, 4))] == [400] * 4
    assert len(tasks_of([PartitionRange("orders", 0, "b", 0, 100)], TaskLimits(4, 8))) == 4


@given(RANGES, st.integers(1, 10), st.integers(1, 60))
def test_a_task_has_no_more_rows_than_its_limit(ranges: list[PartitionRange], least: int, rows: int) -> None:
    tasks = tasks_of(ranges, limits(least, None, rows, 2))
    assert numbers([each for task in tasks for each in task]) == numbers(ranges)
    assert all(0 < sum(each.size for each in task) <= rows for task in tasks)
    assert len(tasks) >= min(least, -(-len(numbers(ranges)) // rows))
    assert tasks == tasks_of(ranges, limits(least, None, rows, 9))


def test_the_ends_of_partitions_share_a_task() -> None:
    ranges = [PartitionRange("orders", number, "b", 0, 12) for number in range(4)]
    assert [sum(each.size for each in task) for task in tasks_of(ranges, limits(None, None, 10, 2))] == [10] * 4 + [8]


def test_the_limits_of_tasks_follow_the_cores_if_no_option_says_otherwise() -> None:
    assert limits(None, None, None, 2) == (1, 4, None)
    assert limits(8, None, None, 2) == (8, 8, None)
    assert limits(None, 3, None, 2) == (1, 3, None)
    assert limits(None, None, 500, 2) == (1, 100_000, 500)


def test_a_large_batch_has_more_tasks_because_the_executors_may_have_more_cores() -> None:
    assert limits(None, None, None, 2, 250_000) == (1, 4, None)
    assert limits(None, None, None, 2, 1_000_000) == (4, 4, None)
    assert limits(None, None, None, 2, 10_000_001) == (41, 41, None)
    assert limits(None, 3, None, 2, 10_000_000) == (1, 3, None)


@given(st.none() | st.integers(1, 10_000), st.dictionaries(st.integers(0, 20), st.integers(0, 2000), max_size=20))
def test_a_limited_batch_takes_as_much_as_it_may(most: int | None, waiting: dict[int, int]) -> None:
    counts = split_rows(most, waiting, {})
    there = sum(waiting.values())
    assert sum(counts.values()) == (there if most is None else min(most, there))
    assert all(0 <= counts[number] <= waiting[number] for number in waiting)
