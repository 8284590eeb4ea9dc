"""Notes about a writer with a single batch: how many rows an ended task has, and in how many tasks the batch is cut.

The marks tell a run with other rows only up to the rows that are stored. A run with another number of tasks may have a
task that begins with the same rows and goes on, or a task that is new. The notes tell these too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sbredis.bulk._chunks import WriterKey, conflict, end_name, note_text, read_mark, tasks_name
from sbredis.bulk._marks import NO_VALUE, change_mark, stored_rows
from sbredis.client._arguments import deadline_of
from sbredis.client._connection import connection_of
from sbredis.engine import PartRefusedError, entity_name
from sbredis.exceptions import ServiceBusQuotaExceededError
from sbredis.sending._outbox import destination

if TYPE_CHECKING:
    from sbredis.client._connection import Connected
    from sbredis.client._entity import Entity

__all__ = ["TaskNotes", "note_tasks"]

_log = logging.getLogger("sbredis.client")


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
