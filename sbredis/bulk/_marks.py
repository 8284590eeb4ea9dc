"""The marks of bulk writers in a partition, and the notes about tasks that are kept like marks.

The marks tell a run with other rows only up to the rows that are stored. A run with another number of tasks may have a
task that begins with the same rows and goes on, or a task that is new. The notes tell these too: in how many tasks the
batch is cut, which each task notes before its first row, and how many rows each task has.
"""

from __future__ import annotations

import logging
from asyncio import gather
from dataclasses import replace
from typing import TYPE_CHECKING

from sbredis.bulk._chunks import (
    WriterKey,
    end_name,
    forgettable,
    is_of,
    note_text,
    prefix_of,
    read_mark,
    refuse_rows,
    refuse_task,
    refuse_tasks,
    tasks_name,
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
    from collections.abc import Callable, Mapping, Sequence

    from sbredis.client import Connected, Entity, PartitionClient
    from sbredis.engine import Partition, Request, TransactedTogether, Watermark, WatermarksRead

__all__ = [
    "NO_VALUE",
    "TaskNotes",
    "change_mark",
    "correct_tasks",
    "forget_marks",
    "forget_old",
    "forget_writer",
    "note_ends",
    "noted_tasks",
    "stored_rows",
    "stored_value",
]

_log = logging.getLogger("sbredis.client")
_TOGETHER = 64
"""The largest number of notes that are made at the same time."""
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
    """The notes about one task of a batch: the number of all tasks, and its rows in an earlier run that has ended.

    A note of an earlier batch counts for nothing, and is replaced.
    """

    def __init__(self, entity: Entity, key: WriterKey, tasks: int) -> None:
        self._entity = entity
        self._key = key
        self._tasks = tasks
        self.made = False
        """Whether this task was the first one of its batch, in all runs, that noted the number of tasks."""
        self._end: str | None = None
        """The stored note about the end of the task, of this batch or an earlier one."""

    async def begin(self, now: int, deadline: float) -> None:
        """Note the number of tasks, unless it is noted.

        Raises :class:`~sbredis.exceptions.BatchConflictError`, and changes nothing, if the task is not one of these, if
        an earlier run had another number of tasks, or if a later batch has begun.
        """
        key = self._key
        refuse_task(key, self._tasks)
        value = note_text(key.kind, key.batch, self._tasks, now)
        expected: str | None = None
        while True:
            found = await self._change_tasks((expected, value), now, deadline)
            if found is not None:
                refuse_tasks(key, self._tasks, found)
            self.made = self.made or found is None
            if expected is None and (found is None or is_of(key, found)):
                break
            expected = None if found is None or is_of(key, found) else found
        place = _place_of_end(self._entity, key)
        self._end = await _advance(self._entity, place, end_name(key), (NO_VALUE, None), deadline)

    async def _change_tasks(self, change: tuple[str | None, str | None], now: int, deadline: float) -> str | None:
        """Change the note about the number of tasks; if there is no room for it, forget old marks first."""
        number, name = self._entity.numbers[0], tasks_name(self._key.writer)
        try:
            return await _advance(self._entity, number, name, change, deadline)
        except ServiceBusQuotaExceededError:
            link = self._entity.partition_client(number)
            lane = link.borrow_lane()
            try:
                if not await forget_old(link, lane, now, deadline):
                    raise
            finally:
                link.return_lane(lane)
        return await _advance(self._entity, number, name, change, deadline)

    def check(self, rows: int) -> None:
        """Raise :class:`~sbredis.exceptions.BatchConflictError` if the task has more rows than in an earlier run."""
        if self._end is not None:
            refuse_rows(self._key, rows, self._end)


async def noted_tasks(client: Connected, path: str, writer: str, *, timeout: float = 60.0) -> int | None:
    """Return the number of tasks that a queue or topic has noted of a bulk writer, if there is one."""
    deadline = deadline_of(timeout)
    entity = await destination(connection_of(client), entity_name(path), deadline)
    found = await _advance(entity, entity.numbers[0], tasks_name(writer), (NO_VALUE, None), deadline)
    return None if found is None else read_mark(found).chunk


async def note_ends(
    client: Connected, path: str, key: WriterKey, rows: Mapping[int, int], *, timeout: float = 60.0
) -> None:
    """Note how many rows each task of a batch has, by its number, after all of them have ended.

    A task cannot note this itself: if Spark fails to give it a row, its rows seem to end there.
    """
    deadline = deadline_of(timeout)
    entity = await destination(connection_of(client), entity_name(path), deadline)
    now = round(entity.connection.clock.utc() * 1000)
    ends = [(replace(key, task=task), number) for task, number in rows.items()]
    for at in range(0, len(ends), _TOGETHER):
        await gather(*(_note_end(entity, each, number, now, deadline) for each, number in ends[at : at + _TOGETHER]))


async def _note_end(entity: Entity, key: WriterKey, rows: int, now: int, deadline: float) -> None:
    place, name = _place_of_end(entity, key), end_name(key)
    value = note_text(key.kind, key.batch, rows, now)
    try:
        found = await _advance(entity, place, name, (None, value), deadline)
        if found is not None and not is_of(key, found):
            await _advance(entity, place, name, (found, value), deadline)
    except ServiceBusQuotaExceededError as full:
        _log.warning("%s: %s is not noted, because the partition has no room: %s", entity.name, name.decode(), full)


def _place_of_end(entity: Entity, key: WriterKey) -> int:
    """Return the partition with the note about the end of a task."""
    return entity.numbers[key.task % len(entity.numbers)]


async def correct_tasks(
    client: Connected, path: str, key: WriterKey, said: int, tasks: int, *, timeout: float = 60.0
) -> None:
    """Note the number of tasks that a batch really had, if the number that this run ``said`` is noted for it.

    The number of another run stays: that run is to be repeated with it.
    """
    deadline = deadline_of(timeout)
    entity = await destination(connection_of(client), entity_name(path), deadline)
    number, name = entity.numbers[0], tasks_name(key.writer)
    found = await _advance(entity, number, name, (NO_VALUE, None), deadline)
    if found is not None and is_of(key, found) and read_mark(found).chunk == said != tasks:
        now = round(entity.connection.clock.utc() * 1000)
        await _advance(entity, number, name, (found, note_text(key.kind, key.batch, tasks, now)), deadline)


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
