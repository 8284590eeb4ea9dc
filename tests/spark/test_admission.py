"""Tests of which messages the next batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbredis.spark._options import parse_options
from sbredis.spark._planning import Admission, Contribution, Waiting, admitted, ends_of

NUMBER = st.integers(0, 500)
WAITING = st.dictionaries(st.integers(0, 15), st.integers(0, 500), max_size=16)


@given(WAITING, st.integers(1, 1000), st.integers(0, 300))
def test_a_batch_never_has_more_rows_than_its_limit(waiting: dict[int, int], most: int, planned: int) -> None:
    contributions = admitted(Admission(most_rows=most), waiting, planned=planned, oldest={}, now=0)
    total = sum(contribution.rows for contribution in (contributions or {}).values())
    assert total == min(max(most - planned, 0), sum(waiting.values()))
    assert all(contribution.rows <= waiting[number] for number, contribution in (contributions or {}).items())


@given(WAITING)
def test_bytes_are_spread_like_rows(waiting: dict[int, int]) -> None:
    contributions = admitted(Admission(most_bytes=10_000), waiting, planned=0, oldest={}, now=0) or {}
    assert sum(contribution.bytes for contribution in contributions.values()) <= 10_000 + len(contributions)
    assert all(contribution.bytes >= 1 for contribution in contributions.values())


def test_the_bytes_of_messages_that_are_planned_already_count() -> None:
    limits, waiting = Admission(most_bytes=10_000), {1: 5, 2: 5}
    contributions = admitted(limits, waiting, planned=3, planned_bytes=9_000, oldest={}, now=0)
    assert contributions == {1: Contribution(5, 500), 2: Contribution(5, 500)}
    for planned in (10_000, 12_000):
        assert admitted(limits, waiting, planned=3, planned_bytes=planned, oldest={}, now=0) == {}


def test_the_oldest_messages_come_first_if_a_batch_is_too_small_for_all_partitions() -> None:
    waiting, oldest = {0: 500, 1: 400, 2: 1, 3: 0}, {0: 30, 1: 20, 2: 10}
    contributions = admitted(Admission(most_rows=2), waiting, planned=0, oldest=oldest, now=40) or {}
    assert {number: contribution.rows for number, contribution in contributions.items()} == {1: 1, 2: 1}


def test_a_stream_without_messages_waits() -> None:
    assert admitted(Admission(), {0: 0, 1: 0}, planned=0, oldest={}, now=0) is None
    assert admitted(Admission(), {}, planned=5, oldest={}, now=0) == {}


def test_a_stream_with_few_messages_waits_until_the_oldest_is_old() -> None:
    limits = Admission(least_rows=10, longest_delay=60)
    assert admitted(limits, {0: 9}, planned=0, oldest={0: 1_000_000}, now=1_059_999) is None
    assert admitted(limits, {0: 9}, planned=0, oldest={0: 1_000_000}, now=1_060_000) == {0: Contribution(9, 1 << 49)}
    assert admitted(limits, {0: 10}, planned=0, oldest={0: 1_000_000}, now=1_000_000) is not None
    assert admitted(limits, {0: 1}, planned=1, oldest={0: 1_000_000}, now=1_000_000) is not None


def test_a_stream_with_few_bytes_waits_if_the_size_of_a_message_is_known() -> None:
    limits = Admission(least_bytes=1000, longest_delay=60)
    assert admitted(limits, {0: 9}, planned=0, oldest={0: 1_000_000}, now=1_000_000, mean=100.0) is None
    assert admitted(limits, {0: 10}, planned=0, oldest={0: 1_000_000}, now=1_000_000, mean=100.0) is not None
    assert admitted(limits, {0: 1}, planned=0, oldest={0: 1_000_000}, now=1_000_000) is not None


def test_the_options_set_the_limits_unless_spark_asks_for_everything() -> None:
    given = {"url": "memory://x", "queue": "q", "mode": "consume", "consumer": "c", "minMessagesPerTrigger": "5"}
    options = parse_options({**given, "maxBytesPerTrigger": "99"}, stream=True, write=False)
    assert Admission.of(options, limited=False, patient=True) == Admission()
    assert Admission.of(options, limited=True, patient=True) == Admission(None, 99, 5, 0, 900.0)
    assert Admission.of(options, limited=True, patient=False).least_rows == 0


# -- browsing ----------------------------------------------------------------------------------------------------------

UNREAD = st.dictionaries(
    st.integers(0, 15),
    st.builds(lambda first, size: Waiting(first, first + size, 100.0, 5), NUMBER, NUMBER),
    max_size=9,
)


@given(UNREAD, st.none() | st.integers(1, 99), st.none() | st.integers(1, 9_900), st.integers(0, 15))
def test_a_browsed_batch_has_at_least_a_row_and_no_more_than_its_limits(
    unread: dict[int, Waiting], rows: int | None, size: int | None, turn: int
) -> None:
    ends = ends_of(Admission(most_rows=rows, most_bytes=size), unread, turn, now=9)
    assert (ends is None) is (not unread)
    taken = sum(end - unread[key].first + 1 for key, end in (ends or {}).items())
    there = sum(each.rows for each in unread.values())
    least = min(each for each in (rows, there, max((size or 1 << 40) // 100, 1)) if each is not None)
    assert taken == least
    assert all(unread[key].first <= end <= unread[key].last for key, end in (ends or {}).items())


def test_partitions_of_a_small_browsed_batch_take_turns() -> None:
    unread = {key: Waiting(1, 9, 100.0, 5) for key in range(4)}
    assert ends_of(Admission(most_rows=2), unread, None, now=9) == {0: 1, 1: 1}
    assert ends_of(Admission(most_rows=2), unread, 3, now=9) == {3: 1, 0: 1}


def test_a_browsing_stream_with_few_messages_waits_until_the_oldest_is_old() -> None:
    unread = {0: Waiting(1, 9, 100.0, 1_000_000)}
    for limits in (Admission(least_rows=10, longest_delay=60), Admission(least_bytes=1000, longest_delay=60)):
        assert ends_of(limits, unread, None, now=1_059_999) is None
        assert ends_of(limits, unread, None, now=1_060_000) == {0: 9}
    assert ends_of(Admission(least_rows=9, longest_delay=60), unread, None, now=1_000_000) == {0: 9}
