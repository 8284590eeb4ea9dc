"""Writing in bulk: rows in columns become messages, and each row is stored once however often its task runs."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeVar

from sbredis._quoting import quoted
from sbredis.bulk._chunks import WriterKey, WriterKind
from sbredis.bulk._marks import TaskNotes
from sbredis.bulk._rows import Refusal, encoded, encoded_messages, partitions_of, refusals_of, too_large
from sbredis.bulk._storing import PartitionWriter
from sbredis.client import connection_of, deadline_of, seconds_of
from sbredis.engine import Outbound, entity_name
from sbredis.exceptions import Outcome, RowRefusedError
from sbredis.sending import destination

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sbredis.bulk._rows import Encoded
    from sbredis.client import Connected, Entity
    from sbredis.model import ServiceBusMessage

__all__ = ["BulkWriter", "WriteSummary", "WriteTarget", "destination_of"]

T = TypeVar("T")
_HELD = 64 * 1024 * 1024
"""The largest number of bytes that wait for the comparison of rows with those of an earlier run."""
_SHOWN = 3
"""The largest number of refused rows that an error quotes."""


class WriteSummary(NamedTuple):
    """What a bulk writer has done."""

    stored: int
    """The number of rows that this writer has stored."""
    known: int
    """The number of rows that an earlier run, or another one at the same time, has stored."""
    duplicates: int
    """The number of stored rows that duplicate detection has dropped."""
    refused: tuple[Refusal, ...]
    """The rows that are not valid messages."""


class WriteTarget(NamedTuple):
    """An entity to which rows go."""

    path: str
    kind: str
    """Queue, topic or subscription."""
    detects_duplicates: bool


async def destination_of(client: Connected, path: str, *, timeout: float = 60.0) -> WriteTarget:
    """Return what an entity is now. Raises :class:`MessagingEntityNotFoundError` if there is none of this name.

    Processes of bulk writers live for long, and the entity may have been made again since this process has seen it.
    """
    until = deadline_of(timeout)
    entity = await connection_of(client).entity(path, until)
    await entity.refresh(until)
    return WriteTarget(entity.name, entity.record.kind, entity.detects_duplicates)


class BulkWriter:
    """Writes the rows of one task of a batch to a queue or topic, each of them once.

    The same task may run any number of times, also at the same time: rows that are stored are left out. The rows of a
    task, and their order, must be the same in every run. ``writer`` names the whole output, for instance a streaming
    query; ``batch`` rises with each of its batches, and ``task`` tells the parts of a batch apart. The number of tasks
    must be the same whenever a batch is written again. A writer of the ``kind`` ``"batch"`` has a single batch, and
    what partitions remember of it may be forgotten after a week; of an ``"anonymous"`` writer, after an hour.

    With ``tasks``, the number of tasks of the batch, the entity notes this number before the first row is stored, and
    refuses each run with another number, each further task, and each run of an earlier batch. It also refuses more rows
    than :func:`note_ends` has noted for the task. Without ``tasks``, a later run may go on behind the rows of an
    earlier one. :data:`ROWS_SAY` instead of a number means that each row says its task, so that any number is right.

    With ``by_id`` the entity recognises rows by their message ids, so it must detect duplicates, and each row needs an
    id. Then the rows of a task may be in another order in each run, and partitions remember nothing else of the writer.

    Rows of one session id, or else of one partition key, are in one partition, as with every sender; if the entity
    detects duplicates, the message id is a key too. Rows without a key take turns. Within a partition the rows are in
    the order in which they were written.

    With ``refused="fail"`` a row that is not a valid message raises :class:`~sbredis.exceptions.RowRefusedError`, and
    no row of its call is stored. With ``"collect"`` the writer leaves out such rows and returns them. A call of a
    partition takes up to ``timeout`` seconds.

    Use the writer with ``async with``, and end with :meth:`finish`. Without it, some rows are not stored.
    """

    def __init__(
        self,
        client: Connected,
        path: str,
        *,
        writer: str,
        batch: int,
        task: int,
        kind: WriterKind = "stream",
        by_id: bool = False,
        tasks: int | None = None,
        refused: Literal["fail", "collect"] = "fail",
        timeout: float = 120.0,
    ) -> None:
        if refused not in {"fail", "collect"}:
            raise ValueError(f"refused must be 'fail' or 'collect', not {quoted(refused)}")
        self._key = WriterKey(writer, batch, task, kind)
        self._connection = connection_of(client)
        self._connection.check_open()
        self._reference = self._connection.reference()
        self._closed = False
        self._path = entity_name(path)
        self._by_id = by_id
        self._tasks = None if by_id else tasks
        self._notes: TaskNotes | None = None
        self._collects = refused == "collect"
        self._timeout = seconds_of(timeout, "timeout")
        self._writers: list[PartitionWriter] = []
        self._progressed = asyncio.Event()
        self._refused: list[Refusal] = []
        self._rows = 0
        self._valid = 0

    async def __aenter__(self) -> Self:
        try:
            await self._open(deadline_of(self._timeout))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def write(self, rows: Outbound) -> list[Refusal]:
        """Take rows, and return those that are refused. Some ten thousand rows a call are best.

        The rows are stored in the background. The call waits while too many rows are under way. It raises the error of
        earlier rows, if they could not be stored.
        """
        entity = await self._ready(deadline_of(self._timeout))
        self._raise_failures()
        self._require_detection(entity)
        made, refused = await self._encode(entity, rows)
        self._rows += len(rows)
        if made is not None:
            await self._add(entity, made)
        return refused

    async def write_messages(self, messages: Sequence[ServiceBusMessage]) -> None:
        """Take messages as rows. Every run must give them the same ids.

        Raises an error for the first one that cannot be sent, and then stores none of the call.
        """
        entity = await self._ready(deadline_of(self._timeout))
        self._raise_failures()
        made = encoded_messages(messages)
        unfit = too_large(made, entity.largest_message)
        if entity.record.settings.sessions:
            without = [row for row, each in enumerate(messages) if each.session_id is None]
            unfit |= dict.fromkeys(without, "the message has no session_id, and the entity requires sessions")
        if unfit:
            raise self._error({row: Refusal(self._rows + row, reason) for row, reason in unfit.items()})
        self._rows += len(messages)
        await self._add(entity, made)

    @property
    def has_noted(self) -> bool:
        """Whether no other task or run had noted the number of tasks of this batch before this task did."""
        return self._notes is not None and self._notes.made

    @property
    def done(self) -> int:
        """The number of rows that are known to be stored, by this run or an earlier one."""
        return sum(writer.stored + writer.progress.skipped for writer in self._writers)

    async def finish(self) -> WriteSummary:
        """Store the rest of the rows, and return what was done."""
        for writer in self._writers:
            writer.check_end()
        for writer in self._writers:
            writer.start(everything=True)
        while any(writer.busy for writer in self._writers):
            await self._progress()
        self._raise_failures()
        for writer in self._writers:
            writer.check_end()
        return WriteSummary(
            sum(writer.stored for writer in self._writers),
            sum(writer.progress.skipped for writer in self._writers),
            sum(writer.duplicates for writer in self._writers),
            tuple(self._refused),
        )

    async def _ready(self, deadline: float) -> Entity:
        """Return the entity. Its name has the registry's spelling from now on."""
        self._check_open()
        entity = await destination(self._connection, self._path, deadline)
        self._check_open()
        self._path = entity.name
        return entity

    async def _open(self, deadline: float) -> None:
        entity = await self._ready(deadline)
        self._require_detection(entity)
        if self._tasks is not None:
            self._notes = TaskNotes(entity, self._key, self._tasks)
            await self._notes.begin(round(entity.connection.clock.utc() * 1000), deadline)
        marked = not self._by_id
        self._writers = [
            PartitionWriter(entity, number, self._key, self._timeout, self._progressed, marked=marked)
            for number in entity.numbers
        ]
        learning = [writer.learn(deadline) for writer in self._writers]
        for result in await asyncio.gather(*learning, return_exceptions=True):
            if result is not None:
                raise result

    def _require_detection(self, entity: Entity) -> None:
        if self._by_id and not entity.detects_duplicates:
            raise ValueError(f"{entity.name!r} does not detect duplicates, so it does not recognise rows by their ids.")

    async def _encode(self, entity: Entity, rows: Outbound) -> tuple[Encoded | None, list[Refusal]]:
        """Return the valid rows in the form for a partition, if there are any, and the refused rows."""
        made, refused = self._judge(entity, rows)
        if refused and await entity.refresh(deadline_of(self._timeout)):  # its properties may have changed
            made, refused = self._judge(entity, rows)
        if refused and not self._collects:
            raise self._error(refused)
        self._refused += refused.values()
        return made, list(refused.values())

    def _judge(self, entity: Entity, rows: Outbound) -> tuple[Encoded | None, Mapping[int, Refusal]]:
        sessions = entity.record.settings.sessions
        refused = refusals_of(rows, self._rows, needs_session=sessions, needs_id=self._by_id)
        kept = [row for row in range(len(rows)) if row not in refused] if refused else range(len(rows))
        made = encoded(rows.rows(kept) if refused else rows)
        large = too_large(made, entity.largest_message)
        if large:
            refused |= {kept[row]: Refusal(self._rows + kept[row], reason) for row, reason in large.items()}
            kept = [row for row in kept if row not in refused]
            made = encoded(rows.rows(kept))
        return made if kept else None, dict(sorted(refused.items()))

    def _error(self, refused: Mapping[int, Refusal]) -> RowRefusedError:
        some = [f"row {row}: {reason}" for row, reason in refused.values()]
        more = f"; and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
        error = RowRefusedError(
            f"Rows of {self._key} cannot be sent to {self._path!r}: {'; '.join(some[:_SHOWN])}{more}. "
            "No row of this call was stored.",
            outcome=Outcome.NEVER_SENT,
        )
        error.rows = tuple(each.row for each in refused.values())
        error.entity = self._path
        return error

    async def _add(self, entity: Entity, made: Encoded) -> None:
        """Give each partition its rows, and wait until few enough rows are under way."""
        if self._notes is not None:
            self._notes.check(self._valid + len(made.payloads))
        detects = entity.detects_duplicates
        payloads, options = made.payloads, made.options(detects_duplicates=detects)
        places = partitions_of(made.rows, self._valid, len(self._writers), detects_duplicates=detects)
        self._valid += len(payloads)
        for writer, rows in zip(self._writers, places, strict=True):
            writer.add(_chosen(payloads, rows), None if options is None else _chosen(options, rows))
        if not self._holds:
            for writer in self._writers:
                writer.start()
            await asyncio.sleep(0)
        while any(writer.full for writer in self._writers):
            await self._progress()

    @property
    def _holds(self) -> bool:
        """Whether to store nothing yet: if the rows differ from those of an earlier run, none of them is stored."""
        behind = any(writer.behind for writer in self._writers)
        return behind and sum(writer.waiting.size for writer in self._writers) < _HELD

    async def _progress(self) -> None:
        self._progressed.clear()
        await self._progressed.wait()
        self._raise_failures()

    def _raise_failures(self) -> None:
        for writer in self._writers:
            writer.raise_failure()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The bulk writer is closed. Make another one.")
        self._connection.check_open()

    async def _close(self) -> None:
        self._closed = True
        for writer in self._writers:
            await writer.close()


def _chosen(listed: list[T], rows: Sequence[int]) -> list[T]:
    return listed[rows.start : rows.stop : rows.step] if isinstance(rows, range) else [listed[row] for row in rows]
