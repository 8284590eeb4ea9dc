"""Read the ranges of a task: pages of rows, put together to RecordBatches. It is the same for all kinds of queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sbredis.engine import Columns, Maps, Numbers, Rows, Texts
from sbredis.engine import columns_of as columns_of_rows
from sbredis.exceptions import MessagesLostError
from sbredis.model import BROKERS_REASONS
from sbredis.spark._loop import ahead, run
from sbredis.spark._pacing import RatePacer
from sbredis.spark._plain import plain_columns
from sbredis.spark._query import Query, ReadTask
from sbredis.spark._schema import PROPERTIES, SchemaColumn, arrow_schema, columns_of
from sbredis.spark._typed import typed_values

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from sbredis.bulk import Browser
    from sbredis.engine import Rows
    from sbredis.spark._planning import PartitionRange

__all__ = ["BatchMaker", "Pages", "read_task"]

Pages = Callable[["Browser", "PartitionRange"], AsyncIterator["Rows"]]
"""Reads the rows of a range, page by page."""

_BATCH_ROWS, _BATCH_BYTES = 10_000, 8 * 1024 * 1024
"""A RecordBatch with this many rows or bytes takes no further page."""


def read_task(query: Query, task: InputPartition, pages: Pages) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task. A query without messages gets a task that is not one of ours."""
    if not isinstance(task, ReadTask):
        return
    columns = columns_of(query.options)
    limit = query.options.most_bytes_a_second
    pacer = RatePacer(None if limit is None else limit / task.tasks)
    for path, ranges in groupby(task.ranges, key=lambda piece: piece.entity):
        incarnation = task.incarnations[path]
        browser = run(query.browser(path, incarnation))
        maker = BatchMaker(columns, browser.path, incarnation)
        if browser.incarnation == incarnation:
            for partition, replies in ahead(partial(_gathered, browser, tuple(ranges), pages, pacer)):
                if browser.incarnation != incarnation:  # the client notices with its first call
                    break
                yield maker.batch(partition, browser.base(partition), replies)
        if browser.incarnation != incarnation:
            lost = MessagesLostError(f"'{browser.path}' was deleted and created again while the query read it.")
            query.meet_loss(f"'{browser.path}'", lost)


async def _gathered(
    browser: Browser, ranges: tuple[PartitionRange, ...], pages: Pages, pacer: RatePacer
) -> AsyncIterator[tuple[int, list[Rows]]]:
    """Yield pages of one partition, as many as one RecordBatch takes."""
    for piece in ranges:
        gathered: list[Rows] = []
        rows = size = 0
        async for page in pages(browser, piece):
            gathered.append(page)
            rows += len(page.records)
            page_size = sum(map(len, page.records))
            size += page_size
            pause = pacer.left(page_size)
            if pause:
                await asyncio.sleep(pause)
            if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield piece.partition, gathered
                gathered, rows, size = [], 0, 0
        if gathered:
            yield piece.partition, gathered


# -- RecordBatches of rows, without a Python object for each message ---------------------------------------------------


_MILLISECONDS, _MICROSECONDS = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")
_STATES = {"f": "deferred", "g": "deferred", "s": "scheduled"}
"""The states that are not active, by their letters in a reply."""
_APPLICATIONS = "A"
"""The letter for a reason that the application has given."""


class BatchMaker:
    """Makes RecordBatches with the columns of one query, of rows of one entity."""

    def __init__(self, columns: Sequence[SchemaColumn], entity: str, incarnation: str) -> None:
        self._schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._constants: Mapping[str, Any] = {"entity": entity, "incarnation": incarnation}

    def batch(self, partition: int, base: int, replies: Sequence[Rows]) -> pa.RecordBatch:
        """Return the rows of some replies of one partition. ``base`` makes sequence numbers of its own numbers."""
        names = self._names
        body = "body" in names
        found = plain_columns(replies, body=body)
        if found is None:
            found = columns_of_rows(replies, body=body, properties=not PROPERTIES.isdisjoint(names))
        constants = {**self._constants, "partition": partition}
        arrays: list[pa.Array] = []
        for name, field in zip(names, self._schema, strict=True):
            if name in constants:
                made: pa.Array | None = pa.repeat(pa.scalar(constants[name], field.type), found.rows)
            elif name in _TEXTS:
                made = _text(found.texts.get(_TEXTS[name]), found.rows, field.type)
            else:
                made = _MADE[name](found, base, field.type)
            arrays.append(pa.nulls(found.rows, field.type) if made is None else made)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_TEXTS = {
    **{name: name for name in ("message_id", "session_id", "partition_key", "correlation_id", "subject")},
    **{name: name for name in ("content_type", "reply_to", "reply_to_session_id", "to", "dead_letter_source")},
}
"""A mapping from each column of text to the field of a message."""


def _bits(valid: bytes | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(valid)


def _text(column: Texts | None, rows: int, kind: pa.DataType) -> pa.Array | None:
    if column is None:
        return None
    return pa.Array.from_buffers(
        kind, rows, [_bits(column.valid), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    )


def _number(column: Numbers | None, rows: int, kind: pa.DataType | None = None) -> pa.Array | None:
    if column is None:
        return None
    return pa.Array.from_buffers(kind or pa.int64(), rows, [_bits(column.valid), pa.py_buffer(column.values)])


def _time(column: Numbers | None, rows: int) -> pa.Array | None:
    made = _number(column, rows, _MILLISECONDS)
    return None if made is None else made.cast(_MICROSECONDS)


def _sequence_number(found: Columns, base: int, _: pa.DataType) -> pa.Array | None:
    made: pa.Array = pc.add(_number(found.numbers, found.rows), pa.scalar(base, pa.int64()))
    return made


def _first_number(found: Columns, base: int, kind: pa.DataType) -> pa.Array | None:
    own, first, died = (
        _sequence_number(found, base, kind),
        _number(found.enqueued_number, found.rows),
        _number(found.died_as, found.rows),
    )
    if died is not None:
        own = pc.coalesce(pc.add(died, pa.scalar(base, pa.int64())), own)
    return own if first is None else pc.coalesce(first, own)


def _failures(found: Columns, _: int, kind: pa.DataType) -> pa.Array | None:
    made = _number(found.failures, found.rows)
    if made is None:
        return pa.repeat(pa.scalar(0, kind), found.rows)
    filled: pa.Array = pc.fill_null(made, 0)
    return filled.cast(kind)


def _state(found: Columns, _: int, kind: pa.DataType) -> pa.Array | None:
    states = found.states or ""
    if not any(letter in states for letter in _STATES):
        return pa.repeat(pa.scalar("active", kind), found.rows)
    return pa.array([_STATES.get(letter, "active") for letter in states], kind)


def _reason(found: Columns, said: str, place: int, kind: pa.DataType) -> pa.Array | None:
    if found.reasons is None:
        return None
    own = _text(found.texts.get(said), found.rows, kind)
    if set(found.reasons) == {_APPLICATIONS}:
        return own
    texts = [None] * found.rows if own is None else own.to_pylist()
    return pa.array(
        [
            texts[row] if letter == _APPLICATIONS else BROKERS_REASONS.get(letter, (None, None))[place]
            for row, letter in enumerate(found.reasons)
        ],
        kind,
    )


def _properties(found: Columns, _: int, kind: pa.DataType) -> pa.Array | None:
    column = found.properties
    if column is None:
        return None
    return _map(found, column, kind, _text(column.values, len(column.names.offsets) - 1, pa.string()))


def _typed_properties(found: Columns, _: int, kind: pa.DataType) -> pa.Array | None:
    column = found.properties
    if column is None:
        return None
    assert isinstance(kind, pa.MapType)
    return _map(found, column, kind, typed_values(column, kind.item_type))


def _map(found: Columns, column: Maps, kind: pa.DataType, values: pa.Array | None) -> pa.Array:
    """Return a map for each row, from the names of its properties to some values."""
    names = _text(column.names, len(column.names.offsets) - 1, pa.string())
    assert names is not None
    assert values is not None
    pairs = pa.StructArray.from_arrays(
        [names, values], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", values.type)]
    )
    return pa.Array.from_buffers(
        kind, found.rows, [_bits(column.valid), pa.py_buffer(column.offsets)], children=[pairs]
    )


_MADE: Mapping[str, Callable[[Columns, int, pa.DataType], pa.Array | None]] = {
    "sequence_number": _sequence_number,
    "enqueued_sequence_number": _first_number,
    "enqueued_time": lambda found, _, __: _time(found.enqueued, found.rows),
    "scheduled_enqueue_time": lambda found, _, __: _time(found.scheduled, found.rows),
    "expires_at": lambda found, _, __: _time(found.expires, found.rows),
    "delivery_count": _failures,
    "state": _state,
    "dead_letter_reason": lambda found, _, kind: _reason(found, "reason", 0, kind),
    "dead_letter_description": lambda found, _, kind: _reason(found, "description", 1, kind),
    "time_to_live_ms": lambda found, _, __: _number(found.time_to_live, found.rows),
    "application_properties": _properties,
    "typed_properties": _typed_properties,
    "amqp": lambda found, _, kind: _text(found.others, found.rows, kind),
    "body": lambda found, _, kind: _text(found.bodies, found.rows, kind),
}
"""The functions that make the other columns."""
