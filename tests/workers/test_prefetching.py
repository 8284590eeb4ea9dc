"""Tests of how many messages a worker fetches ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.workers.running._prefetching import Prefetching


def after(fixed: int | None, concurrency: int, lock: float, handling: float, count: int = 10) -> Prefetching:
    prefetching = Prefetching(fixed, concurrency, lock)
    for _ in range(count):
        prefetching.handled(handling)
    return prefetching


@pytest.mark.parametrize(
    ("concurrency", "handling", "count", "size"),
    [
        (16, 0.001, 9, 0),
        (16, 0.001, 10, 1000),
        (16, 0.01, 10, 400),
        (1, 0.01, 10, 25),
        (1, 0.3, 10, 0),
        (16, 3.1, 10, 0),
        (16, 0.0, 10, 1000),
    ],
)
def test_the_buffer_holds_a_quarter_of_a_second_of_work_of_fast_handlers(
    concurrency: int, handling: float, count: int, size: int
) -> None:
    assert after(None, concurrency, 30, handling, count).size == size


def test_the_buffer_follows_the_handlers() -> None:
    prefetching = after(None, 10, 30, 0.01, 100)
    assert prefetching.size == 250
    for _ in range(100):
        prefetching.handled(5)
    assert prefetching.size == prefetching.size_after(250) == 0


@pytest.mark.parametrize(
    ("fixed", "present", "size"),
    [(None, 0, 250), (None, 249, 250), (None, 1000, 1000), (None, 1001, 250), (100, 1000, 100)],
)
def test_the_buffer_shrinks_only_if_it_holds_more_than_a_second_of_work(
    fixed: int | None, present: int, size: int
) -> None:
    assert after(fixed, 10, 30, 0.01).size_after(present) == size


@given(st.integers(1, 100), st.floats(1, 300), st.floats(0.001, 300))
def test_the_last_message_of_the_largest_safe_buffer_is_handled_before_its_lock_ends(
    concurrency: int, lock: float, handling: float
) -> None:
    safe = after(1, concurrency, lock, handling).largest_safe
    if safe:
        assert ((safe + 1) / concurrency + 1) * handling <= lock * (1 + 1e-6) + handling
    size = after(None, concurrency, lock, handling).size
    assert size == 0 or size * handling / concurrency <= 0.25 * (1 + 1e-6)


def test_a_fixed_number_that_is_too_large_is_worth_one_warning() -> None:
    prefetching = after(100, 1, 60, 1)
    assert prefetching.size == 100
    said = prefetching.warning()
    assert said is not None
    assert "prefetch=100 is too large: a call takes 1 s" in said
    assert "The largest safe number is 58" in said
    assert prefetching.warning() is None
    assert after(58, 1, 60, 1).warning() is None
    assert after(0, 1, 60, 100).warning() is None
