"""Tests of the reading of logs: a reader that misses announcements, deletions and whole buckets still catches up."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.maintenance._bucket_logs import BucketLog, BucketLogs, LogPace, News
from sbredis.registry import BucketChanges

PATHS = [f"q{number}" for number in range(9)]
KEPT = 2
"""The number of deleted entities in the log of the tests."""
PAGE = 3


class Bucket:
    """A bucket as the scripts keep it, with a short memory for deletions."""

    def __init__(self, life: int = 0) -> None:
        self.life = life
        self.last = self.floor = 0
        self.changes: dict[str, int] = {}
        self.records: dict[str, bytes] = {}

    def change(self, path: str) -> None:
        self.last += 1
        self.records[path], self.changes[path] = b"%d" % self.last, self.last

    def delete(self, path: str) -> None:
        if self.records.pop(path, None) is not None:
            self.last += 1
            self.changes[path] = self.last
            gone = sorted((number, each) for each, number in self.changes.items() if each not in self.records)
            if len(gone) > KEPT:
                self.floor, oldest = gone[0]
                del self.changes[oldest]

    def read(self, after: int) -> BucketChanges:
        entries = sorted((number, path) for path, number in self.changes.items() if number > after)[:PAGE]
        number = entries[-1][0] if entries else after
        records = tuple((path, self.records.get(path)) for _, path in entries)
        return BucketChanges(str(self.life), self.floor, number, self.last, len(entries) == PAGE, records)


class Reader:
    """What a client knows of a bucket."""

    def __init__(self) -> None:
        self.log = BucketLog()
        self.known: dict[str, bytes] = {}

    def take(self, changes: BucketChanges | None) -> bool:
        """Take a reply, and return whether another page follows."""
        news, more = self.log.took(changes)
        for path, record in news.records:
            if record is None:
                self.known.pop(path, None)
            else:
                self.known[path] = record
        if news.only is not None:
            self.known = {path: record for path, record in self.known.items() if path in news.only}
        return more


EVENTS = st.one_of(
    st.tuples(st.just("change"), st.sampled_from(PATHS)),
    st.tuples(st.just("delete"), st.sampled_from(PATHS)),
    st.tuples(st.sampled_from(["read", "read", "lose", "lose the last", "mend"]), st.just("")),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(EVENTS, max_size=80))
def test_a_reader_that_has_read_to_the_end_knows_exactly_what_there_is(events: list[tuple[str, str]]) -> None:
    bucket, reader, saved = Bucket(), Reader(), Bucket()
    for event, path in events:
        match event:
            case "change":
                bucket.change(path)
            case "delete":
                bucket.delete(path)
            case "read":
                reader.take(bucket.read(reader.log.after))
            case "lose":  # the server loses everything
                bucket = Bucket(bucket.life + 1)
            case "lose the last":  # a failover loses the last writes
                bucket.records, bucket.changes = dict(saved.records), dict(saved.changes)
                bucket.floor, bucket.life = saved.floor, bucket.life + 1
            case _:  # a record that could not be read is mended by hand
                reader.log.restart()
        if event in {"change", "delete"} and random.Random(len(path)).random() < 0.5:
            saved.records, saved.changes, saved.floor = dict(bucket.records), dict(bucket.changes), bucket.floor
    replies = 0
    while reader.take(bucket.read(reader.log.after)):
        replies += 1
        assert replies < 20
    assert reader.log.whole
    assert reader.known == bucket.records
    reader.take(None)
    assert reader.known == {}


def test_what_was_known_stays_until_a_reading_from_the_beginning_has_ended() -> None:
    bucket, reader = Bucket(), Reader()
    for path in PATHS:
        bucket.change(path)
    while reader.take(bucket.read(reader.log.after)):
        pass
    for path in PATHS[:4]:
        bucket.delete(path)
    assert bucket.floor > 0
    bucket.life += 1
    assert reader.take(bucket.read(reader.log.after))
    assert reader.log.after == 0
    assert set(reader.known) == set(PATHS)
    while reader.take(bucket.read(reader.log.after)):
        pass
    assert set(reader.known) == set(PATHS[4:])


def test_a_reader_asks_only_for_what_is_new() -> None:
    bucket, reader = Bucket(), Reader()
    for path in PATHS:
        bucket.change(path)
    while reader.take(bucket.read(reader.log.after)):
        pass
    bucket.change("q3")
    changes = bucket.read(reader.log.after)
    assert [path for path, _ in changes.records] == ["q3"]
    assert reader.log.took(changes) == (News((("q3", b"10"),)), False)


def test_deletions_meanwhile_do_not_begin_a_reading_anew() -> None:
    """The bucket has forgotten deletions before, so each further deletion makes it forget another one."""
    bucket, reader, replies = Bucket(), Reader(), 0
    for number in range(90):
        bucket.change(f"q{number}")
    for number in range(3):
        bucket.delete(f"q{number}")
    going = iter(range(89, 3, -1))
    while reader.take(bucket.read(reader.log.after)):
        replies += 1
        assert replies < 90
        bucket.delete(f"q{next(going)}")
    assert reader.known == bucket.records


def test_deletions_that_the_log_loses_before_they_are_read_begin_a_reading_anew() -> None:
    bucket, reader = Bucket(), Reader()
    for number in range(30):
        bucket.change(f"q{number}")
    assert reader.take(bucket.read(reader.log.after))
    for number in range(3):
        bucket.delete(f"q{number}")
    while reader.take(bucket.read(reader.log.after)):
        pass
    assert reader.known == bucket.records


# -- which buckets are read --------------------------------------------------------------------------------------------

QUIET = BucketChanges("life", 0, 1, 1, False, ())
PACE = LogPace(at_once=4, between=1.0, round=100.0)


def read_all(logs: BucketLogs, now: float) -> float:
    """Read what is to be read, and return the time when nothing is left."""
    for _ in range(100):
        for number in logs.begin(now):
            logs.took(number, QUIET, now)
        if logs.whole:
            return now
        now += logs.seconds(now)
    pytest.fail("there is no end")


def test_all_buckets_are_read_at_first_a_few_at_a_time() -> None:
    logs, now, read = BucketLogs(10, PACE), 0.0, list[list[int]]()
    while not logs.whole and len(read) < 100:
        numbers = logs.begin(now)
        for number in numbers:
            logs.took(number, QUIET, now)
        read.append(numbers)
        now += logs.seconds(now)
    assert [len(each) for each in read] == [4, 4, 2]
    assert sorted(number for each in read for number in each) == list(range(10))
    assert logs.begin(50.0) == []


def test_a_client_that_does_not_hurry_reads_one_bucket_in_each_round() -> None:
    logs, now, read = BucketLogs(10, PACE), 0.0, list[list[int]]()
    while not logs.whole and len(read) < 100:
        read.append(logs.begin(now, hurries=False))
        logs.heard(9 if len(read) == 1 else read[-1][0])
        for number in read[-1]:
            logs.took(number, QUIET, now)
        if len(read) == 1:
            assert logs.begin(now, hurries=False) == [9]
            logs.took(9, QUIET, now)
        now += 1.0
        for number in logs.begin(now - 0.5, hurries=False):
            logs.took(number, QUIET, now)
        assert logs.tried == logs.whole
    assert read == [[number] for number in range(9)]


def test_a_bucket_that_cannot_be_read_counts_as_tried() -> None:
    logs = BucketLogs(3, PACE)
    for number in logs.begin(0.0):
        assert not logs.tried
        if number:
            logs.took(number, QUIET, 0.0)
        else:
            logs.failed(number, 0.0)
    assert logs.tried
    assert not logs.whole
    logs.missed(1)
    assert not logs.tried


def test_a_bucket_that_announces_a_change_is_read_at_once_and_alone() -> None:
    logs = BucketLogs(10, PACE)
    now = read_all(logs, 0.0)
    logs.heard(7)
    assert logs.seconds(now) == 0.0
    assert logs.begin(now) == [7]
    logs.heard(7)
    assert logs.begin(now) == [], "it is being read; what it has said meanwhile is read afterwards"
    logs.took(7, QUIET, now)
    assert logs.begin(now) == [7]
    logs.took(7, QUIET, now)
    assert logs.whole


def test_announcements_do_not_wait_for_the_reading_of_all_buckets() -> None:
    logs = BucketLogs(256, PACE)
    assert len(logs.begin(0.0)) == 4
    logs.heard(200)
    for number in range(4):
        logs.took(number, QUIET, 0.0)
    assert logs.begin(0.1) == [200], "the next round of the others comes later"


def test_buckets_that_do_not_answer_delay_no_announced_one() -> None:
    logs = BucketLogs(256, PACE._replace(kept=2))
    assert len(logs.begin(0.0)) == 4
    assert logs.seconds(0.75) == 0.25
    for number in (200, 201, 202):
        logs.heard(number)
    assert logs.seconds(0.75) == 0.0
    assert logs.begin(0.75) == [200, 201]
    assert logs.begin(0.75) == []
    assert logs.seconds(0.75) == 0.25
    logs.took(200, QUIET, 0.75)
    assert logs.begin(0.75) == [202]


@pytest.mark.parametrize("heard", [True, False])
def test_buckets_that_do_not_answer_delay_the_first_reading_of_all_others_by_seconds_only(heard: bool) -> None:
    """A third of the buckets is on a server that is away, and each call to it lasts five seconds."""
    pace = LogPace(between=0.0)
    logs, now, began, read = BucketLogs(256, pace), 0.0, dict[int, float](), set[int]()
    if heard:
        for number in range(256):
            logs.heard(number)
    while len(read) < 256 - 85:
        assert now < 4.0
        for number in logs.begin(now):
            assert number not in read
            began[number] = now
        for number, since in list(began.items()):
            if number >= 85:
                logs.took(number, QUIET, now)
                read.add(number)
            elif since + 5.0 <= now:
                logs.failed(number, now)
            if number >= 85 or since + 5.0 <= now:
                del began[number]
        now += max(0.001, logs.seconds(now))


def test_every_bucket_is_read_once_in_a_round_although_nothing_is_announced() -> None:
    logs = BucketLogs(10, PACE)
    now = read_all(logs, 0.0)
    assert 90 < logs.seconds(now) <= 100
    later = read_all(logs, now + 100.0)
    assert later <= now + 103
    assert logs.begin(later) == []


def test_further_pages_are_read_at_once() -> None:
    logs = BucketLogs(1, PACE)
    assert logs.begin(0.0) == [0]
    logs.took(0, QUIET._replace(more=True), 0.0)
    assert (logs.whole, logs.tried) == (False, False)
    assert logs.begin(0.0) == [0]
    logs.took(0, QUIET, 0.0)
    assert (logs.whole, logs.tried) == (True, True)


@pytest.mark.parametrize("heard", [True, False])
def test_a_bucket_that_cannot_be_read_is_tried_again_after_growing_pauses(heard: bool) -> None:
    logs, now, times = BucketLogs(2, PACE._replace(at_once=9)), 0.0, list[float]()
    for _ in range(100):
        for number in logs.begin(now):
            if number:
                logs.took(number, QUIET, now)
            else:
                times.append(now)
                logs.failed(number, now)
        if heard:
            logs.heard(0)
        assert logs.seconds(now) > 0
        now += logs.seconds(now)
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.5 <= pauses[0] <= 2
    assert max(pauses) <= 31
    assert pauses[-1] > pauses[0]
    assert not logs.whole


def test_nothing_is_to_be_done_while_everything_is_being_read() -> None:
    logs = BucketLogs(4, PACE)
    assert len(logs.begin(0.0)) == 4
    assert logs.begin(0.0) == []
    assert logs.seconds(0.0) == math.inf


def test_a_late_reading_ends_like_any_other() -> None:
    logs = BucketLogs(10, PACE)
    assert logs.begin(0.0) == [0, 1, 2, 3]
    assert logs.begin(1.0) == [4, 5, 6, 7]
    logs.heard(0)
    assert logs.begin(1.0) == [], "it is still being read"
    logs.took(0, QUIET, 1.5)
    assert logs.begin(1.5) == [0]
