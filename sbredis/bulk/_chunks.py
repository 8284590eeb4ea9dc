"""Decide what a bulk writer still has to send to a partition, so that each row is stored exactly once. Pure.

A writer's key is its name, a batch, and a task of the batch. The rows of a task are the same in every run, and so is
their order. A partition keeps a *mark* for each writer and task: the batch, the number of its rows that are stored,
and a hash of these rows. Each chunk of rows is stored in a transaction that advances the mark from the value that the
writer knows. So if the task runs again, or twice at the same time, or with other chunks, a writer compares the hash of
its own rows with the mark, leaves out the rows that are stored, and goes on behind them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple

from sbredis._quoting import quoted
from sbredis._unreadable import unreadable
from sbredis.exceptions import BatchConflictError, BatchInterruptedError, Outcome

__all__ = [
    "ROWS_SAY",
    "Chunk",
    "Mark",
    "TaskProgress",
    "Unmarked",
    "WriterKey",
    "WriterKind",
    "conflict",
    "end_name",
    "forgettable",
    "is_of",
    "note_text",
    "prefix_of",
    "read_mark",
    "refuse_rows",
    "refuse_task",
    "refuse_tasks",
    "tasks_name",
]

WriterKind = Literal["batch", "stream", "anonymous"]
"""A writer of a stream, or of versions, has a batch after the other, and its marks are kept until they are forgotten by
name. A batch writer has a single batch, and its marks are forgotten after some days if there is no room for others. An
anonymous writer has a single batch too, and a name that nobody knows after the job: only the job itself repeats its
tasks. So its marks are forgotten after an hour if there is no room for others.
"""

ROWS_SAY = 0
"""Stands for the number of tasks where each row says its task: so it is in the same task in every run."""
_PREFIX = b"bulk:"
_WRITER = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MARK = re.compile(r"1 ([bsa]) ([0-9]{1,19}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9a-f]{32}) ([0-9]{1,15})")
_LARGEST = (1 << 63) - 1
_KINDS: dict[str, WriterKind] = {"b": "batch", "s": "stream", "a": "anonymous"}
_KEPT = {"b": 7 * 86_400_000, "a": 3_600_000}
"""The time in ms for which a mark is kept in any case, by the kind of its writer. Others are kept for good."""


class Mark(NamedTuple):
    """The value of a mark: the rows of a task that are stored in a partition."""

    kind: WriterKind
    batch: int
    chunk: int
    """The number of chunks in which the rows were stored."""
    rows: int
    digest: str
    """A hash of the rows."""
    at: int
    """The time of the last chunk, in ms since 1970."""

    def text(self) -> str:
        """Return the value as it is stored. It begins with a number of its form."""
        return f"1 {self.kind[0]} {self.batch} {self.chunk} {self.rows} {self.digest} {self.at}"


def read_mark(value: str) -> Mark:
    """Read the value of a mark."""
    found = _MARK.fullmatch(value)
    if found is None:
        raise unreadable("The mark of a bulk writer", "it is malformed")
    kind, batch, chunk, rows, digest, at = found.groups()
    return Mark(_KINDS[kind], int(batch), int(chunk), int(rows), digest, int(at))


def forgettable(value: str, now: int) -> bool:
    """Return whether a mark may be forgotten to make room for another one."""
    found = _MARK.fullmatch(value)
    return found is not None and found[1] in _KEPT and int(found[6]) < now - _KEPT[found[1]]


@dataclass(frozen=True, slots=True)
class WriterKey:
    """The identity of the rows of a task: they are the same in every run."""

    writer: str
    batch: int
    task: int
    kind: WriterKind

    def __post_init__(self) -> None:
        if not _WRITER.fullmatch(self.writer):
            raise ValueError(f"writer {quoted(self.writer)} must have 1 to 128 letters, digits, '.', '-' or '_'")
        for name in ("batch", "task"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number <= _LARGEST:
                raise ValueError(f"{name} must be a whole number from 0 to 2**63 - 1, not {quoted(number)}")
        if self.kind not in _KINDS.values():
            raise ValueError(f"kind must be 'batch', 'stream' or 'anonymous', not {quoted(self.kind)}")

    @property
    def name(self) -> bytes:
        """The name of the watermark that keeps the mark."""
        return f"bulk:{self.writer}:{self.task}".encode()

    def __str__(self) -> str:
        return f"task {self.task} of batch {self.batch} of the writer {self.writer!r}"


def prefix_of(writer: str | None) -> bytes:
    """Return the beginning of the names of a writer's marks, or of the marks of all writers."""
    return _PREFIX if writer is None else _PREFIX + WriterKey(writer, 0, 0, "batch").writer.encode() + b":"


def end_name(key: WriterKey) -> bytes:
    """Return the name of the note with the number of rows of a task that has ended."""
    return key.name + b".end"


def tasks_name(writer: str) -> bytes:
    """Return the name of the note with the number of tasks of a writer's last batch."""
    return prefix_of(writer) + b"tasks"


def note_text(kind: WriterKind, batch: int, number: int, now: int) -> str:
    """Return a note as it is stored: as a mark of no rows with this number, so that it is listed and forgotten too."""
    return Mark(kind, batch, number, 0, "0" * 32, now).text()


def conflict(key: WriterKey, what: str) -> BatchConflictError:
    """Return the error that the rows of a task do not fit to those of an earlier run."""
    return BatchConflictError(f"The rows of {key} cannot be stored: {what}.", outcome=Outcome.REFUSED)


def is_of(key: WriterKey, note: str) -> bool:
    """Return whether a note is about the batch of a key."""
    return read_mark(note).batch == key.batch


def refuse_task(key: WriterKey, tasks: int) -> None:
    """Refuse a task that is not one of the tasks that its run was said to have."""
    if tasks != ROWS_SAY and key.task >= tasks:
        raise conflict(
            key,
            f"this run has more tasks than {tasks}, the number that it was given. Run it again with the right number",
        )


def refuse_tasks(key: WriterKey, tasks: int, note: str) -> None:
    """Refuse a run in another number of tasks than the note of an earlier run has, or after a later batch."""
    noted = read_mark(note)
    if noted.batch > key.batch:
        raise conflict(key, f"it is already written, because batch {noted.batch} of this writer has begun since")
    if noted.batch == key.batch and noted.chunk != tasks:
        had, has = _described(noted.chunk), _described(tasks)
        raise conflict(
            key,
            f"an earlier run had {had}, and this one has {has}, so rows could be stored twice. Run it with {had}. If "
            "that number was wrong, a stream goes on without the number; another write begins anew after "
            "forget_writer, if none of its rows count",
        )


def _described(tasks: int) -> str:
    return "tasks that the rows say" if tasks == ROWS_SAY else f"{tasks} tasks"


def refuse_rows(key: WriterKey, rows: int, note: str) -> None:
    """Refuse a run in which a task has more rows than it had when it ended in an earlier run."""
    noted = read_mark(note)
    if noted.batch == key.batch and rows > noted.chunk:
        raise conflict(
            key,
            f"the task has {noted.chunk} rows in an earlier run, and more in this one. The rows of a task, and the "
            "number of tasks, must be the same in every run",
        )


class Chunk(NamedTuple):
    """Rows to store together."""

    rows: int
    """The number of rows."""
    expected: str | None
    """The value that the mark has before."""
    value: str | None
    """The value that the mark has afterwards; ``None`` if there is no mark."""


class _Hash:
    """A hash of rows that does not depend on where their chunks begin and end."""

    def __init__(self) -> None:
        self._data = blake2b(digest_size=16)
        self._sizes = blake2b(digest_size=16)

    def copy(self) -> _Hash:
        made = _Hash.__new__(_Hash)
        made._data, made._sizes = self._data.copy(), self._sizes.copy()
        return made

    def update(self, payloads: Sequence[bytes]) -> None:
        self._data.update(b"".join(payloads))
        self._sizes.update(array("I", map(len, payloads)).tobytes())

    def digest(self) -> str:
        return blake2b(self._data.digest() + self._sizes.digest(), digest_size=16).hexdigest()


class TaskProgress:
    """The rows of a task that are stored in one partition, as far as its writer knows.

    The writer tells each value of the mark to :meth:`found`. While it is :attr:`behind`, it asks :meth:`known` how many
    of the next rows are stored already. Otherwise :meth:`chunk` and :meth:`stored` store further rows.
    """

    def __init__(self, key: WriterKey) -> None:
        self._key = key
        self._hash = _Hash()
        self._rows = 0
        self._chunks = 0
        self._value: str | None = None
        self._ahead: Mark | None = None
        self._next: tuple[Chunk, _Hash] | None = None
        self.skipped = 0
        """The number of rows that were stored before."""

    def found(self, value: str | None) -> None:
        """Note the stored value of the mark.

        Raises :class:`~sbredis.exceptions.BatchConflictError` if another run has stored other rows, or a later batch.
        Raises :class:`~sbredis.exceptions.BatchInterruptedError` if the partition has lost rows of this run.
        """
        mark = None if value is None else read_mark(value)
        self._value, self._next, self._ahead = value, None, None
        if mark is not None and mark.batch > self._key.batch:
            raise self._conflict(
                f"a later batch, {mark.batch}, was written with it. If this run has begun with a new checkpoint, give "
                "it another name as writer"
            )
        rows = mark.rows if mark is not None and mark.batch == self._key.batch else 0
        if rows < self._rows:
            raise BatchInterruptedError(
                f"A failover has lost rows of {self._key}: the partition has {rows} of the {self._rows} rows that it "
                "had stored. Run the task again from its beginning; rows that are stored are not stored again.",
                outcome=Outcome.REFUSED,
            )
        if mark is not None and rows:
            self._ahead = mark
            self._reach()

    @property
    def behind(self) -> bool:
        """Whether the partition has rows that the writer has not compared with its own rows yet."""
        return self._ahead is not None

    def known(self, payloads: Sequence[bytes]) -> int:
        """Return how many of the next rows are stored already. Do not send these rows.

        Call it again with the rows after them, until it returns 0.
        """
        if self._ahead is None or not payloads:
            return 0
        count = min(len(payloads), self._ahead.rows - self._rows)
        self._hash.update(payloads[:count])
        self._rows += count
        self.skipped += count
        self._reach()
        return count

    def chunk(self, payloads: Sequence[bytes], now: int) -> Chunk:
        """Return the chunk that stores these rows. They are not counted before :meth:`stored`."""
        digest = self._hash.copy()
        digest.update(payloads)
        key, rows = self._key, self._rows + len(payloads)
        mark = Mark(key.kind, key.batch, self._chunks + 1, rows, digest.digest(), now)
        chunk = Chunk(len(payloads), self._value, mark.text())
        self._next = chunk, digest
        return chunk

    def stored(self) -> None:
        """Note that the last chunk was stored."""
        assert self._next is not None
        chunk, self._hash = self._next
        self._rows += chunk.rows
        self._chunks += 1
        self._value, self._next = chunk.value, None

    def finish(self) -> None:
        """Check, at the end of the task, that no more rows are stored than the task has."""
        if self._ahead is not None:
            raise self._conflict(
                f"an earlier run has stored {self._ahead.rows} rows there, and this one has only {self._rows}. {_SAME}"
            )

    def _reach(self) -> None:
        """Compare the rows with the mark, if all rows of the mark are there."""
        mark = self._ahead
        if mark is None or mark.rows > self._rows:
            return
        if mark.digest != self._hash.digest():
            raise self._conflict(f"an earlier run has stored other rows, up to its chunk {mark.chunk}. {_SAME}")
        self._chunks, self._ahead = mark.chunk, None

    def _conflict(self, what: str) -> BatchConflictError:
        return conflict(self._key, what)


_SAME = "The rows of a task and their order must be the same in every run, so the input must be deterministic"


class Unmarked:
    """The rows of a task that are recognised by their ids: the partition detects duplicates, and keeps no mark.

    So a run may have the rows in another order than an earlier one. It sends all of them.
    """

    behind = False
    skipped = 0

    def found(self, value: str | None) -> None:
        """Note nothing."""

    def known(self, payloads: Sequence[bytes]) -> int:
        """Return 0: the partition recognises the rows."""
        del payloads
        return 0

    def chunk(self, payloads: Sequence[bytes], now: int) -> Chunk:
        """Return a chunk without a mark."""
        del now
        return Chunk(len(payloads), None, None)

    def stored(self) -> None:
        """Note nothing."""

    def finish(self) -> None:
        """Check nothing."""
