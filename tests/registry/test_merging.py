"""Tests that the list of all entities has the entities of all buckets, in order, with each bucket read once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.registry._merging import BucketMerge, BucketRead, Row

names = st.binary(min_size=1, max_size=4)
buckets = st.lists(st.frozensets(names, max_size=300), min_size=1, max_size=12)


class Held:
    """Buckets that are lists of names, and what was read of them."""

    def __init__(self, held: list[frozenset[bytes]], lost: frozenset[int] = frozenset()) -> None:
        self.held = [sorted(bucket) for bucket in held]
        self.lost = lost
        self.read: Counter[tuple[int, bytes]] = Counter()

    def rows(self, read: BucketRead) -> list[Row]:
        found = [name for name in self.held[read.number] if name > read.after][: read.limit]
        self.read.update((read.number, name) for name in found)
        return [(name, b"") for name in found]

    def listed(self, merge: BucketMerge, page: int) -> list[bytes]:
        """List everything, and check that each page is full as long as the list goes on."""
        found: list[bytes] = []
        while not merge.ended:
            for read in merge.to_read():
                if read.number in self.lost:
                    merge.failed(read.number)
                else:
                    merge.took(read, self.rows(read))
            part = merge.take(page)
            assert len(part) <= page
            found += [name for name, _ in part]
        return found


@settings(deadline=None)
@given(buckets, st.integers(1, 50), st.sampled_from([b"", b"a", b"m"]))
def test_a_list_has_all_names_in_order_and_reads_each_once(
    held: list[frozenset[bytes]], page: int, after: bytes
) -> None:
    them = Held(held)
    listed = them.listed(BucketMerge(len(held), after), page)
    assert listed == sorted(name for bucket in held for name in bucket if name > after)
    assert set(them.read.values()) <= {1}


@settings(deadline=None)
@given(buckets, st.data())
def test_a_list_without_some_buckets_has_all_names_of_the_others(
    held: list[frozenset[bytes]], data: st.DataObject
) -> None:
    lost = data.draw(st.frozensets(st.sampled_from(range(len(held)))))
    listed = Held(held, lost).listed(BucketMerge(len(held)), 10)
    assert listed == sorted(name for number, bucket in enumerate(held) if number not in lost for name in bucket)


@pytest.mark.parametrize(("entities", "most"), [(0, 256), (1, 256), (3000, 3 * 256), (50_000, 4 * 256)])
def test_a_list_of_256_buckets_needs_few_calls(entities: int, most: int) -> None:
    """A bucket is read with a short page, and then with long ones."""
    held: list[set[bytes]] = [set() for _ in range(256)]
    for number in range(entities):
        held[number * 7919 % 256].add(b"%06d" % number)
    them, merge, calls = Held([frozenset(bucket) for bucket in held]), BucketMerge(256), 0
    listed = 0
    while not merge.ended:
        for read in merge.to_read():
            calls += 1
            merge.took(read, them.rows(read))
        listed += len(merge.take(1000))
    assert listed == entities
    assert calls <= most


def test_the_beginning_of_a_list_reads_one_short_page_of_each_bucket() -> None:
    them, merge = (
        Held([frozenset(b"%04d" % (8 * each + bucket) for each in range(500)) for bucket in range(8)]),
        BucketMerge(8),
    )
    reads = merge.to_read()
    for read in reads:
        merge.took(read, them.rows(read))
    assert [name for name, _ in merge.take(100)] == [b"%04d" % number for number in range(100)]
    assert merge.to_read() == []
    assert sum(read.limit for read in reads) < 200
