"""Tests of the columns in which a lane keeps its jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sbredis.client._lane import Jobs

Row = tuple[int, asyncio.Future[Any], float, str]


def filled(loop: asyncio.AbstractEventLoop, first: int, count: int) -> tuple[Jobs[int], list[Row]]:
    """Return jobs with numbers from ``first`` on, and the same jobs as rows."""
    rows: list[Row] = [
        (number, loop.create_future(), number / 2, f"terms {number}") for number in range(first, first + count)
    ]
    jobs = Jobs[int]()
    for row in rows:
        jobs.add(*row)
    return jobs, rows


@given(st.integers(0, 6), st.integers(0, 8), st.lists(st.booleans(), min_size=6, max_size=6))
def test_jobs_are_taken_and_put_back_in_their_order(count: int, taken: int, chosen: list[bool]) -> None:
    loop = asyncio.new_event_loop()
    try:
        jobs, rows = filled(loop, 0, count)
        first = jobs.take(taken)
        assert (list(first), list(jobs)) == (rows[:taken], rows[taken:])
        jobs.put_back(first)
        assert (list(jobs), len(jobs)) == (rows, count)
        split = jobs.split_off(chosen[:count])
        flags = list(zip(rows, chosen, strict=False))
        assert list(split) == [row for row, is_chosen in flags if is_chosen]
        assert list(jobs) == [row for row, is_chosen in flags if not is_chosen]
        jobs.add(*rows[0] if rows else (7, loop.create_future(), 1.0, "last"))
        assert len(split) + len(jobs) == count + 1  # the lists of both are their own
        jobs.clear()
        assert not jobs
        assert list(split) == [row for row, is_chosen in flags if is_chosen]
    finally:
        loop.close()
