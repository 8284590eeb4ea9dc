"""The marks of bulk writers in a partition, and the notes about tasks that are kept like marks.

The marks tell a run with other rows only up to the rows that are stored. A run with another number of tasks may have a
task that begins with the same rows and goes on, or a task that is new. The notes tell these too: how many rows an ended
task of a writer with a single batch has, and in how many tasks the batch is cut.
"""

from __future__ import annotations

import logging
from asyncio import gather
from typing import TYPE_CHECKING

from sbredis.bulk._chunks import (
    WriterKey,
    conflict,
    end_name,
    forgettable,
    note_text,
    prefix_of,
    read_mark,
    tasks_name,
    writer_of,
    writers_prefix,
)
from sbredis.client import connection_of, deadline_of
from sbredis.engine import (
    MAXIMUM_TRANSACTIONS,
    CallId,
    PartRefusedError,
    Transacted,
    advance,
    entity_name,
    transact,
    transact_together,
)
from sbredis.exceptions import ServiceBusQuotaExceededError, WatermarkChangedError
from sbredis.sending import destination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sbredis.client import Connected, Entity, PartitionClient
    from sbredis.engine import Partition, Request, TransactedTogether, Watermark, WatermarksRead

__all__ = [
    "NO_VALUE",
    "TaskNotes",
    "change_mark",
    "forget_marks",
    "forget_old",
    "forget_writer",
    "known_writers",
    "note_tasks",
    "stored_rows",
    "stored_value",
]

_log = logging.getLogger("sbredis.client")
NO_VALUE = "?"
"""A value that no mark has. A change that expects it is refused, and so reads the mark."""


async def change_mark(
    link: PartitionClient, lane: str, name: bytes, change: tuple[str | None, str | None], deadline: float
) -> str | None:
    """Change a mark from one value to another. If its value is not the first one, change nothing and return it.

    Raises :class:`~sbredis.engine.PartRefusedError` if the partition refuses the change for another reason.
    """

    def make(partition: Partition, call_id: CallId) -> Request[Transacted]:
        return transact(call_id, [advance(partition, name, *change)])

    try:
        await link.call(lane, make, deadline)
    except PartRefusedError as refusal:
        if not isinstance(refusal.reason, WatermarkChangedError):
            raise
        return stored_value(refusal.detail)
    return None


def stored_value(detail: str) -> str | None:
    """Return the mark that a refusal tells: a number and the value, which is missing if there is no mark."""
    return detail.partition(" ")[2] or None


async def forget_writer(client: Connected, path: str, writer: str, *, timeout: float = 60.0) -> int:
    """Forget what the partitions of a queue or topic remember of a bulk writer. Return the number of marks.

    Do this only if the writer will not run again: otherwise it would store the rows of its last batch a second time.
    """
    deadline = deadline_of(timeout)
    return await forget_marks(await destination(connection_of(client), entity_name(path), deadline), writer, deadline)


async def stored_rows(client: Connected, path: str, writer: str, *, timeout: float = 60.0) -> int:
    """Return how many rows a queue or topic has stored of the last batch of each task of a bulk writer.

    Receivers may have taken some of the messages since.
    """
    marks = await _marks(client, path, prefix_of(writer), deadline_of(timeout))
    return sum(read_mark(each.value).rows for each in marks)


async def known_writers(client: Connected, path: str, beginning: str, *, timeout: float = 60.0) -> set[str]:
    """Return the bulk writers that a queue or topic remembers, and whose names begin with a text."""
    marks = await _marks(client, path, writers_prefix(beginning), deadline_of(timeout))
    return {writer_of(each.name) for each in marks}


async def _marks(client: Connected, path: str, prefix: bytes, deadline: float) -> list[Watermark]:
    """Return the watermarks of all partitions of an entity whose names begin with a text."""
    entity = await destination(connection_of(client), entity_name(path), deadline)

    async def marks_in(link: PartitionClient) -> list[Watermark]:
        lane = link.borrow_lane()
        try:
            return await _list(link, lane, prefix, deadline)
        finally:
            link.return_lane(lane)

    found = await gather(*(marks_in(entity.partition_client(each)) for each in entity.numbers))
    return [mark for marks in found for mark in marks]


async def forget_marks(entity: Entity, writer: str, deadline: float) -> int:
    """Forget the marks of a bulk writer in all partitions of an entity. Return their number."""
    prefix = prefix_of(writer)
    forgotten = 0
    for number in entity.numbers:
        link = entity.partition_client(number)
        lane = link.borrow_lane()
        try:
            forgotten += await _forget(link, lane, prefix, lambda _: True, deadline)
        finally:
            link.return_lane(lane)
    return forgotten


async def forget_old(link: PartitionClient, lane: str, now: int, deadline: float) -> int:
    """Forget old marks in a partition that has no room for another mark, except those of streams. Return the number."""
    forgotten = await _forget(link, lane, prefix_of(None), lambda mark: forgettable(mark.value, now), deadline)
    if forgotten:
        _log.info("%s: %d old marks of writers that have ended were forgotten", link, forgotten)
    return forgotten


async def _forget(
    link: PartitionClient, lane: str, prefix: bytes, chosen: Callable[[Watermark], bool], deadline: float
) -> int:
    listed = [(mark.name, mark.value) for mark in await _list(link, lane, prefix, deadline) if chosen(mark)]
    forgotten = 0
    for at in range(0, len(listed), MAXIMUM_TRANSACTIONS):
        forgotten += await _remove(link, lane, listed[at : at + MAXIMUM_TRANSACTIONS], deadline)
    return forgotten


async def _list(link: PartitionClient, lane: str, prefix: bytes, deadline: float) -> list[Watermark]:
    found: dict[bytes, Watermark] = {}
    cursor: str | None = None
    while True:
        part = await _read(link, lane, prefix, cursor, deadline)
        found |= {mark.name: mark for mark in part.watermarks}
        cursor = part.onwards
        if cursor is None:
            return list(found.values())


async def _read(link: PartitionClient, lane: str, prefix: bytes, cursor: str | None, deadline: float) -> WatermarksRead:
    def make(partition: Partition, call_id: CallId) -> Request[WatermarksRead]:
        return partition.watermarks(prefix, cursor, call_id=CallId("", 0, call_id.now))

    return await link.call(lane, make, deadline)


async def _remove(link: PartitionClient, lane: str, marks: Sequence[tuple[bytes, str]], deadline: float) -> int:
    """Remove marks, unless they have changed meanwhile. Return the number of removed ones."""

    def make(partition: Partition, call_id: CallId) -> Request[TransactedTogether]:
        return transact_together(call_id, [[advance(partition, name, value, None)] for name, value in marks])

    try:
        outcomes = (await link.call(lane, make, deadline)).outcomes
    except PartRefusedError:  # a call of a single transaction is refused as a whole
        return 0
    return sum(isinstance(outcome, Transacted) for outcome in outcomes)


class TaskNotes:
    """The notes about one task of a batch, and about the number of tasks."""

    def __init__(self, entity: Entity, key: WriterKey) -> None:
        self._entity = entity
        self._key = key
        self._place = entity.numbers[key.task % len(entity.numbers)]
        self._ended: int | None = None
        """The number of rows of the task, if an earlier run has ended."""

    async def learn(self, deadline: float) -> None:
        """Read the notes. Raises :class:`~sbredis.exceptions.BatchConflictError` if the batch has fewer tasks."""
        key = self._key
        tasks = await _noted(self._entity, self._entity.numbers[0], tasks_name(key.writer), deadline)
        if tasks is not None and key.task >= tasks:
            raise conflict(key, f"an earlier run had {tasks} tasks, and this one has more")
        self._ended = await _noted(self._entity, self._place, end_name(key), deadline)

    def check(self, rows: int) -> None:
        """Raise :class:`~sbredis.exceptions.BatchConflictError` if the task has more rows than in an earlier run."""
        if self._ended is not None and rows > self._ended:
            raise conflict(
                self._key,
                f"the task has {self._ended} rows in an earlier run, and more in this one. The rows of a task, and the "
                "number of tasks, must be the same in every run",
            )

    async def note_end(self, rows: int, now: int, deadline: float) -> None:
        """Note that the task has ended with this number of rows."""
        self.check(rows)
        if self._ended is None:
            value = note_text(self._key.kind, self._key.batch, rows, now)
            self._ended = await _note(self._entity, self._place, end_name(self._key), value, deadline)
            self.check(rows)


async def note_tasks(client: Connected, path: str, writer: str, tasks: int, *, timeout: float = 60.0) -> None:
    """Note the number of tasks of a batch writer, unless it is noted, or no row of the writer is stored."""
    if await stored_rows(client, path, writer, timeout=timeout):
        deadline = deadline_of(timeout)
        entity = await destination(connection_of(client), entity_name(path), deadline)
        now = round(entity.connection.clock.utc() * 1000)
        await _note(entity, entity.numbers[0], tasks_name(writer), note_text("batch", 0, tasks, now), deadline)


async def _noted(entity: Entity, number: int, name: bytes, deadline: float) -> int | None:
    """Return the number of a note, or ``None`` if there is no such note."""
    found = await _advance(entity, number, name, (NO_VALUE, None), deadline)
    return None if found is None else read_mark(found).chunk


async def _note(entity: Entity, number: int, name: bytes, value: str, deadline: float) -> int:
    """Make a note, unless there is one of this name. Return the number of the note that is there now."""
    try:
        found = await _advance(entity, number, name, (None, value), deadline)
    except ServiceBusQuotaExceededError as full:
        _log.warning("%s: %s is not noted, because the partition has no room: %s", entity.name, name.decode(), full)
        found = None
    return read_mark(value if found is None else found).chunk


async def _advance(
    entity: Entity, number: int, name: bytes, change: tuple[str | None, str | None], deadline: float
) -> str | None:
    """Change a note. If it has another value than expected, change nothing and return this value."""
    link = entity.partition_client(number)
    lane = link.borrow_lane()
    try:
        return await change_mark(link, lane, name, change, deadline)
    except PartRefusedError as refusal:
        raise refusal.reason from None
    finally:
        link.return_lane(lane)
