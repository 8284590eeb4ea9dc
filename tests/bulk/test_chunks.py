"""What a bulk writer still has to send: each row is stored once, whatever happens to the writers and the partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.bulk import WriterKey
from sbredis.bulk._chunks import Mark, TaskProgress, forgettable, prefix_of, read_mark
from sbredis.exceptions import BatchConflictError, BatchInterruptedError, DataLayoutError

KEY = WriterKey("w", 5, 3, "stream")
ROWS = [b"%d" % number * (number % 4) for number in range(40)]
DAY = 86_400_000
MONTH = 30 * 24 * 60
"""The minutes of a month."""


@dataclass
class FakePartition:
    """A partition that stores rows together with a mark."""

    rows: list[bytes] = field(default_factory=list[bytes])
    value: str | None = None

    def store(self, rows: Sequence[bytes], expected: str | None, value: str) -> bool:
        if self.value != expected:
            return False
        self.rows += rows
        self.value = value
        return True


@dataclass
class FakeWriter:
    """A run of a task that writes rows to a fake partition."""

    progress: TaskProgress
    place: int = 0

    def step(self, partition: FakePartition, rows: Sequence[bytes], most: int, *, answered: bool = True) -> None:
        """Store some rows, or learn that they are stored. The answer may be lost."""
        some = rows[self.place : self.place + most]
        known = self.progress.known(some)
        if known:
            self.place += known
        elif some:
            chunk = self.progress.chunk(some, 17)
            assert chunk.rows == len(some)
            assert chunk.value is not None
            if partition.store(some, chunk.expected, chunk.value) and answered:
                self.progress.stored()
                self.place += len(some)
            else:
                self.progress.found(partition.value)

    def finish(self, partition: FakePartition, rows: Sequence[bytes], most: int) -> None:
        while self.place < len(rows):
            self.step(partition, rows, most)
        self.progress.finish()


def begun(partition: FakePartition, key: WriterKey = KEY) -> FakeWriter:
    writer = FakeWriter(TaskProgress(key))
    writer.progress.found(partition.value)
    return writer


def written(
    rows: Sequence[bytes], most: int = 7, key: WriterKey = KEY, into: FakePartition | None = None
) -> FakePartition:
    partition = into or FakePartition()
    begun(partition, key).finish(partition, rows, most)
    return partition


@pytest.mark.slow
@given(st.data())
def test_each_row_is_stored_once(data: st.DataObject) -> None:
    """Writers of one task run at the same time, die, and lose answers; the partition loses its last rows."""
    rows = ROWS[: data.draw(st.integers(0, 40))]
    partition = FakePartition()
    states = [("", list[bytes]())]
    writers = [begun(partition)]
    for _ in range(data.draw(st.integers(0, 25))):
        what = data.draw(st.sampled_from(["step", "step", "step", "lost answer", "begin", "roll back"]))
        if what == "begin":
            writers.append(begun(partition))
        elif what == "roll back":
            value, kept = data.draw(st.sampled_from(states))
            partition = FakePartition(list(kept), value or None)
        else:
            writer = data.draw(st.sampled_from(writers))
            try:
                writer.step(partition, rows, data.draw(st.integers(1, 9)), answered=what == "step")
            except BatchInterruptedError:
                writers.remove(writer)
                writers.append(begun(partition))
        assert partition.rows == rows[: len(partition.rows)]
        states.append((partition.value or "", list(partition.rows)))
    written(rows, data.draw(st.integers(1, 50)), into=partition)
    assert partition.rows == rows


@pytest.mark.slow
@given(st.lists(st.binary(max_size=3), max_size=9), st.lists(st.binary(max_size=3), max_size=9), st.integers(1, 9))
def test_other_rows_are_refused(first: list[bytes], second: list[bytes], most: int) -> None:
    """A run with other rows stores nothing, unless the rows of the first run are the beginning of its own rows."""
    partition = written(first, most)
    if second[: len(first)] == first:
        assert written(second, most, into=partition).rows == second
        return
    with pytest.raises(
        BatchConflictError, match=r"task 3 of batch 5 of the writer 'w' cannot be stored: an earlier run"
    ):
        written(second, most, into=partition)
    assert partition.rows == first


def test_the_next_batch_begins_with_its_first_row() -> None:
    partition = written(ROWS[:9])
    written(ROWS[:4], key=WriterKey("w", 6, 3, "stream"), into=partition)
    assert partition.rows == [*ROWS[:9], *ROWS[:4]]
    with pytest.raises(BatchConflictError, match=r"a later batch, 6, was written with it.*another name as writer"):
        begun(partition)


@pytest.mark.long("half a million batches take some seconds")
def test_the_versions_of_a_month_need_one_mark_and_each_is_stored_once() -> None:
    """A version a minute; some are written again, and some of them by a run that died in the middle."""
    partition, rows = FakePartition(), ROWS[:2]
    for version in range(MONTH):
        key = WriterKey("w", version, 3, "stream")
        if version % 100 == 0:
            begun(partition, key).step(partition, rows, 1)
        written(rows, key=key, into=partition)
        if version % 1000 == 0:
            written(rows, key=key, into=partition)
        assert partition.rows == rows
        partition.rows.clear()
    with pytest.raises(BatchConflictError, match=f"a later batch, {MONTH - 1}, was written with it"):
        written(rows, key=WriterKey("w", MONTH - 2, 3, "stream"), into=partition)
    assert partition.rows == []


def test_the_error_names_the_chunk_of_the_other_rows() -> None:
    partition = written(ROWS[:20], 5)
    with pytest.raises(BatchConflictError, match="other rows, up to its chunk 4"):
        written([*ROWS[:19], b"other", *ROWS[20:]], 20, into=partition)
    with pytest.raises(BatchConflictError, match="has stored 20 rows there, and this one has only 3"):
        written(ROWS[:3], into=partition)


def test_chunks_are_counted_on_behind_those_of_an_earlier_run() -> None:
    partition = written(ROWS[:10], 5)
    written(ROWS[:20], 5, into=partition)
    assert partition.value is not None
    assert read_mark(partition.value).chunk == 4


def test_rows_may_be_cut_in_other_places() -> None:
    """A hash of joined rows alone would not see this."""
    partition = written([b"ab", b"c"])
    with pytest.raises(BatchConflictError):
        written([b"a", b"bc"], into=partition)


def test_lost_rows_interrupt_the_writer_that_stored_them() -> None:
    partition = FakePartition()
    writer = begun(partition)
    writer.step(partition, ROWS, 5)
    kept = FakePartition(list(partition.rows), partition.value)
    writer.step(partition, ROWS, 5)
    with pytest.raises(BatchInterruptedError, match="has 5 of the 10 rows that it had stored"):
        writer.step(kept, ROWS, 5)
    assert written(ROWS, into=kept).rows == ROWS
    with pytest.raises(BatchInterruptedError, match="has 0 of the 10 rows"):
        writer.step(FakePartition(), ROWS, 5)


def test_known_rows_are_counted() -> None:
    partition = written(ROWS[:10])
    writer = begun(partition)
    writer.finish(partition, ROWS, 4)
    assert (writer.progress.skipped, len(partition.rows)) == (10, 40)


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = Mark("batch", 2**63 - 1, 12, 345, "0123456789abcdef" * 2, 1_760_000_000_000)
    assert read_mark(mark.text()) == mark
    assert len(mark.text()) <= 128
    for kind in ("stream", "anonymous"):
        assert read_mark(Mark(kind, 0, 1, 2, "f" * 32, 3).text()).kind == kind


@pytest.mark.parametrize(
    "value", ["", "2 s 0 1 2 " + "f" * 32 + " 3", "1 x 0 1 2 " + "f" * 32 + " 3", "1", "1 s 0 1 2 f 3"]
)
def test_a_mark_of_another_form_is_refused(value: str) -> None:
    with pytest.raises(DataLayoutError, match="The mark of a bulk writer cannot be read"):
        read_mark(value)


@pytest.mark.parametrize(
    ("kind", "age", "forgotten"),
    [
        ("b", 7 * DAY + 1, True),
        ("b", 7 * DAY, False),
        ("a", DAY // 24 + 1, True),
        ("a", DAY // 24, False),
        ("s", 70 * DAY, False),
    ],
)
def test_only_old_marks_may_be_forgotten_and_none_of_streams(kind: str, age: int, *, forgotten: bool) -> None:
    now = 1_760_000_000_000
    assert forgettable(f"1 {kind} 0 1 2 {'f' * 32} {now - age}", now) is forgotten


def test_a_value_of_another_kind_is_never_forgotten() -> None:
    assert not forgettable("1760000000000", 1 << 60)


def test_the_names_of_a_writer_do_not_begin_like_those_of_another_writer() -> None:
    assert KEY.name == b"bulk:w:3"
    assert KEY.name.startswith(prefix_of("w"))
    assert KEY.name.startswith(prefix_of(None))
    assert not WriterKey("w.x", 0, 3, "batch").name.startswith(prefix_of("w"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("", 0, 0, "batch"), "writer '' must have"),
        (("a:b", 0, 0, "batch"), "writer 'a:b' must have"),
        (("x" * 129, 0, 0, "batch"), "must have 1 to 128"),
        (("w", -1, 0, "batch"), "batch must be a whole number"),
        (("w", 0, 1.5, "batch"), "task must be a whole number"),
        (("w", True, 0, "batch"), "batch must be a whole number"),
        (("w", 0, 0, "table"), "kind must be 'batch', 'stream' or 'anonymous'"),
    ],
)
def test_a_wrong_key_is_refused(given: tuple[str, int, int, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WriterKey(*given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
