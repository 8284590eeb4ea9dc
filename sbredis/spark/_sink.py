"""Send DataFrames and streams, each row once: a task that runs again leaves out the rows that are stored.

A row is recognised by its writer (the streaming query, or ``writeId``), its batch (``writeVersion``), its task and its
place in the task.
So a task must give the same rows in the same order whenever it runs. Partitions of the entity remember this for good.
The tasks are known by their number, which the option ``tasks`` says and nothing checks before the end of a write; or
each row says its task (``taskColumn``), which is checked before the row is sent.

With ``idColumn``, a row is recognised by its id instead: the entity must detect duplicates.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sbredis.bulk import ROWS_SAY, BulkWriter, WriterKey, WriterKind, correct_tasks, note_ends
from sbredis.engine import entity_name
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    NamespaceMissingError,
    RowRefusedError,
    ServiceBusError,
    SparkSetupError,
)
from sbredis.spark._loop import run
from sbredis.spark._outbound import by_entity, outbound
from sbredis.spark._query import Query
from sbredis.spark._refused import RefusedRows, prepare_folder
from sbredis.spark._sentences import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchSink", "StreamSink"]

_log = logging.getLogger("sbredis.spark")
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The local properties of a task that name its streaming query and its batch."""


class _TaskIdentity(NamedTuple):
    """What identifies the rows of one task."""

    key: WriterKey
    refused: str | None = None
    """The folder for rows that cannot be sent."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has done."""

    stored: int = 0
    known: int = 0
    duplicates: int = 0
    refused: int = 0
    rows: dict[str, int] = field(default_factory=dict[str, int])
    """The number of rows of the task for each entity."""
    task: int = 0
    noted: set[str] = field(default_factory=set[str])
    """The entities in which this task was the first to note the number of tasks."""
    writer: str = ""
    """The name of the writer, of a stream."""


@sentence_first
class BatchSink(DataSourceArrowWriter):
    """Sends a DataFrame. Spark makes it once, and sends copies to the tasks."""

    def __init__(self, query: Query, sent: Sequence[str]) -> None:
        self._query = query
        self._sent = sent
        options = query.options
        kind: WriterKind = "batch"
        if options.write_id is None:
            kind = "anonymous"
        elif options.write_version is not None:
            kind = "stream"
        name = options.write_id or secrets.token_hex(8)
        try:
            self._key = WriterKey(name, options.write_version or 0, 0, kind)
            """The key of the first task. All copies have the same."""
        except ValueError as error:
            raise SparkSetupError(f"The option writeId is wrong: {error}.") from None
        self._refused = _refused_folder(query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task. Spark calls this on an executor, and again if the task fails."""
        output = _TaskIdentity(replace(self._key, task=_context().partitionId()), self._refused)
        return _WriteTask(self._query, self._sent, output).write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report what was done. The rows were sent by the tasks."""
        _log.info("written as %s: %s", self._key.writer, _sum(messages))
        _end(self._query, self._key, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Correct the number of tasks that this run has noted, if it is wrong. Spark calls this if a task failed."""
        _abort(self._query, self._key, messages)


@sentence_first
class StreamSink(DataSourceStreamArrowWriter):
    """Sends one batch of a stream. Spark makes it for each batch."""

    def __init__(self, query: Query, sent: Sequence[str]) -> None:
        self._query = query
        self._sent = sent
        self._refused = _refused_folder(query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task. Spark calls this on an executor, and again if the task or the batch fails."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert query is not None
        assert batch is not None
        output = _TaskIdentity(WriterKey(query, int(batch), context.partitionId(), "stream"), self._refused)
        done = _WriteTask(self._query, self._sent, output).write(iterator)
        done.writer = query
        return done

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report what was done. The rows were sent by the tasks."""
        _log.info("batch %d written: %s", batchId, _sum(messages))
        for key in _stream_keys(messages, batchId):
            _end(self._query, key, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Correct the number of tasks that this run has noted, if it is wrong. Spark calls this if a task failed."""
        for key in _stream_keys(messages, batchId):
            _abort(self._query, key, messages)


def _stream_keys(messages: Sequence[WriterCommitMessage | None], batch: int) -> list[WriterKey]:
    """Return the key of the batch that tasks have written. There is none if no task has ended."""
    writers = {each.writer for each in messages if isinstance(each, Written)}
    return [WriterKey(writer, batch, 0, "stream") for writer in writers]


def _end(query: Query, key: WriterKey, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Note how many rows each task of a batch had, after all of them have ended.

    Spark tells the number of tasks only at the end. If the options say another one, an error says so, and a run that
    repeats it is refused.
    """
    tasks = query.options.tasks
    if tasks is None and query.options.task_column is None:
        return
    by_entity: dict[str, dict[int, int]] = {}
    for each in messages:
        if isinstance(each, Written):
            for entity, rows in each.rows.items():
                by_entity.setdefault(entity, {})[each.task] = rows
    for entity, ends in sorted(by_entity.items()):
        try:
            run(_note_ends(query, entity, key, ends))
        except ServiceBusError as error:
            _log.warning("%s: the rows of the tasks of %s are not noted: %s", entity, key.writer, error)
    if tasks is not None and tasks != len(messages):
        named = query.options.entity
        _correct_tasks(query, key, messages, set(by_entity) if named is None else {named})
        raise SparkSetupError(
            f"All rows are stored, but the DataFrame had {len(messages)} tasks, and the option tasks says {tasks}. To "
            f"repeat this write, give tasks={len(messages)}. If an earlier run was stopped, which also said {tasks} "
            "and had yet another number, rows may be stored twice: with taskColumn they cannot be."
        )


def _abort(query: Query, key: WriterKey, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Correct a wrong number of tasks of a write that has failed, where this run was the first one that noted it.

    The number of an earlier run stays: that run is to be repeated with it.
    """
    tasks = query.options.tasks
    if tasks is not None and tasks != len(messages):
        noted = {entity for each in messages if isinstance(each, Written) for entity in each.noted}
        _correct_tasks(query, key, messages, noted)


async def _note_ends(query: Query, entity: str, key: WriterKey, ends: Mapping[int, int]) -> None:
    await note_ends(await query.client(), entity, key, ends, timeout=query.options.timeout)


def _correct_tasks(
    query: Query, key: WriterKey, messages: Sequence[WriterCommitMessage | None], entities: set[str]
) -> None:
    """Note the number of tasks that a batch has in entities, where the number of the option ``tasks`` is noted."""
    said = query.options.tasks
    assert said is not None
    for entity in sorted(entities):
        try:
            run(_correct(query, entity, key, said, len(messages)))
        except ServiceBusError as error:
            _log.warning("%s: the number of tasks of %s is not corrected: %s", entity, key.writer, error)


async def _correct(query: Query, entity: str, key: WriterKey, said: int, tasks: int) -> None:
    await correct_tasks(await query.client(), entity, key, said, tasks, timeout=query.options.timeout)


class _WriteTask:
    """The rows of one task on their way to one or more entities."""

    def __init__(self, query: Query, sent: Sequence[str], output: _TaskIdentity) -> None:
        self._query = query
        self._sent = sent
        self._output = output
        folder, key = output.refused, output.key
        self._refused = None if folder is None else RefusedRows(folder, f"{key.writer}-{key.batch}-{key.task}")
        self._writers: dict[str, BulkWriter | str] = {}
        """For each entity its writer, or why rows cannot go there."""
        self._rows: dict[str | None, int] = {}
        """The number of rows that each writer was given."""
        options = query.options
        self._tasks = options.tasks if options.task_column is None else ROWS_SAY
        """What the entity notes about the number of tasks, before a row is stored; ``None`` for nothing."""
        self._stack = AsyncExitStack()
        self._done = Written(task=key.task)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows. Rows are sent in the background while Spark makes the next ones."""
        try:
            if self._tasks is not None and self._query.options.entity is not None:
                run(self._writer(self._query.options.entity))  # also a task without rows notes the number of tasks
            for batch in batches:
                run(self._write(batch))
            run(self._finish())
        finally:
            run(self._stack.aclose())
        if self._refused is not None:
            self._refused.save()
        return self._done

    async def _write(self, batch: pa.RecordBatch) -> None:
        self._check_tasks(batch)
        columns = outbound(batch, self._sent, self._query.options.id_column)
        found = list(by_entity(batch, self._query.options.entity))
        writers = [await self._writer(entity) for entity, _ in found]  # before a row of the batch is sent
        for (entity, rows), writer in zip(found, writers, strict=True):
            places = range(batch.num_rows) if rows is None else rows
            if isinstance(writer, str):
                self._refuse(batch, places, writer)
                continue
            before = self._rows[entity]
            self._rows[entity] += len(places)
            for refusal in await writer.write(columns if rows is None else columns.rows(rows)):
                self._refuse(batch, [places[refusal.row - before]], refusal.reason)

    def _check_tasks(self, batch: pa.RecordBatch) -> None:
        """Refuse rows that say that they belong to another task."""
        name, task = self._query.options.task_column, self._output.key.task
        if name is None:
            return
        said = batch.column(batch.schema.names.index(name))
        others = pc.filter(said, pc.invert(pc.fill_null(pc.equal(said, task), False)))
        if len(others):
            raise SparkSetupError(
                f"A row in task {task} says in the column {name} that it belongs to task {others[0].as_py()}, so it is "
                f'not sent. Place the rows with repartitionById(8, "{name}"), with a number that is greater than each '
                "task, and sort them within the tasks."
            )

    async def _writer(self, entity: str | None) -> BulkWriter | str:
        """Return the writer for an entity, or why the rows that name it cannot be sent."""
        if entity is None:
            return "the column entity has no value"
        if entity not in self._writers:
            self._writers[entity] = await self._open(entity)
            self._rows[entity] = 0
        return self._writers[entity]

    async def _open(self, entity: str) -> BulkWriter | str:
        key, options = self._output.key, self._query.options
        try:
            client = await self._query.destination(entity_name(entity))
        except NamespaceMissingError:
            raise
        except (ValueError, MessagingEntityNotFoundError) as error:
            if options.entity is not None or isinstance(error, SparkSetupError):
                raise
            return error.message if isinstance(error, MessagingEntityNotFoundError) else str(error)
        writer = BulkWriter(
            client,
            entity,
            writer=key.writer,
            batch=key.batch,
            task=key.task,
            kind=key.kind,
            by_id=options.id_column is not None,
            tasks=self._tasks,
            refused="fail" if self._refused is None else "collect",
            timeout=options.timeout,
        )
        await self._stack.enter_async_context(writer)
        if writer.has_noted:
            self._done.noted.add(entity)
        return writer

    def _refuse(self, batch: pa.RecordBatch, rows: Sequence[int], reason: str) -> None:
        if self._refused is None:
            raise RowRefusedError(f"A row cannot be sent: {reason}. With the option refusedPath, such rows are saved.")
        self._refused.add(batch, rows, reason)
        self._done.refused += len(rows)

    async def _finish(self) -> None:
        for entity, writer in self._writers.items():
            if isinstance(writer, str):
                continue
            summary = await writer.finish()
            self._done.rows[entity] = summary.stored + summary.known
            self._done.stored += summary.stored
            self._done.known += summary.known
            self._done.duplicates += summary.duplicates


def _refused_folder(query: Query) -> str | None:
    given = query.options.refused_path
    return None if given is None else prepare_folder(given)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # Spark calls a writer only within a task
    return context


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [each for each in messages if isinstance(each, Written)]
    return (
        f"{sum(each.stored for each in done)} rows stored, {sum(each.known for each in done)} stored before, "
        f"{sum(each.duplicates for each in done)} dropped as duplicates, {sum(each.refused for each in done)} refused"
    )
