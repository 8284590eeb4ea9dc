"""The columns of the Spark format: those that a query reads, and those that it can write. Pure.

Types are Spark's, in the words of its DDL. :func:`arrow_schema` gives the same types to pyarrow, which must match to
the letter: Spark refuses a RecordBatch whose schema differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sbredis._quoting import quoted
from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import QueryOptions, nearest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PROPERTIES",
    "READ_COLUMNS",
    "SETTLEMENT_COLUMNS",
    "TYPED_MAP",
    "WRITE_COLUMNS",
    "SchemaColumn",
    "arrow_schema",
    "check_read_schema",
    "check_written",
    "columns_of",
    "ddl",
    "read_columns",
]


class SchemaColumn(NamedTuple):
    """One column: its name, its type in Spark's DDL, and its meaning."""

    name: str
    type: str
    meaning: str


TYPED_MAP = (
    "MAP<STRING, STRUCT<type: STRING, boolean: BOOLEAN, integer: BIGINT, number: DOUBLE, time: TIMESTAMP, "
    "bytes: BINARY, text: STRING>>"
)
"""The type of properties that keep their types. Each value says its type, and has its value in the field for it."""

READ_COLUMNS: tuple[SchemaColumn, ...] = (
    SchemaColumn("entity", "STRING", "path of the queue or subscription"),
    SchemaColumn("incarnation", "STRING", "changes when the entity is deleted and created again"),
    SchemaColumn("partition", "INT", "partition that has the message"),
    SchemaColumn("sequence_number", "BIGINT", "rising number of the message in its partition"),
    SchemaColumn("enqueued_sequence_number", "BIGINT", "number in the entity to which the message was sent first"),
    SchemaColumn("message_id", "STRING", "id that the sender gave"),
    SchemaColumn("session_id", "STRING", "session"),
    SchemaColumn("partition_key", "STRING", "key that chose the partition"),
    SchemaColumn("correlation_id", "STRING", "id of a related message"),
    SchemaColumn("subject", "STRING", "purpose of the message"),
    SchemaColumn("content_type", "STRING", "type of the body"),
    SchemaColumn("reply_to", "STRING", "entity for replies"),
    SchemaColumn("reply_to_session_id", "STRING", "session for replies"),
    SchemaColumn("to", "STRING", "destination that the sender named"),
    SchemaColumn("enqueued_time", "TIMESTAMP", "time when the message was enqueued"),
    SchemaColumn("scheduled_enqueue_time", "TIMESTAMP", "time for which it was scheduled"),
    SchemaColumn("time_to_live_ms", "BIGINT", "time in ms for which the sender wants it to live"),
    SchemaColumn("expires_at", "TIMESTAMP", "time when it expires"),
    SchemaColumn("delivery_count", "INT", "number of failed deliveries"),
    SchemaColumn("state", "STRING", "active, deferred or scheduled"),
    SchemaColumn("dead_letter_reason", "STRING", "why it is a dead letter, in a word"),
    SchemaColumn("dead_letter_description", "STRING", "why it is a dead letter, in a sentence"),
    SchemaColumn("dead_letter_source", "STRING", "entity in which it became a dead letter, if it was forwarded"),
    SchemaColumn("application_properties", "MAP<STRING, STRING>", "properties of the application, as text"),
    SchemaColumn("typed_properties", TYPED_MAP, "the same properties with their types"),
    SchemaColumn("amqp", "BINARY", "what else an AMQP message has, such as annotations, in a form of sbredis"),
    SchemaColumn("body", "BINARY", "body"),
)

SETTLEMENT_COLUMNS: tuple[SchemaColumn, ...] = (
    *READ_COLUMNS[:4],
    SchemaColumn(
        "sub_queue", "STRING", "deadLetter or transferDeadLetter, if the message was a dead letter before the event"
    ),
    SchemaColumn("event", "STRING", "what happened; lost if settlements before the next row are no longer remembered"),
    SchemaColumn("event_time", "TIMESTAMP", "time of the event"),
    SchemaColumn(
        "enqueued_time", "TIMESTAMP", "time when the message was enqueued, in events that give it to a receiver"
    ),
    SchemaColumn("lost", "BIGINT", "number of settlements that are lost, if the event is lost"),
)

WRITE_COLUMNS: tuple[SchemaColumn, ...] = (
    SchemaColumn("body", "BINARY", "body; STRING is sent in UTF-8. The only column that is required"),
    SchemaColumn("entity", "STRING", "queue or topic of this row, if no option names one"),
    SchemaColumn("message_id", "STRING", "id of the message"),
    SchemaColumn("session_id", "STRING", "session"),
    SchemaColumn("partition_key", "STRING", "key that chooses the partition"),
    SchemaColumn("correlation_id", "STRING", "id of a related message"),
    SchemaColumn("subject", "STRING", "purpose of the message"),
    SchemaColumn("content_type", "STRING", "type of the body"),
    SchemaColumn("reply_to", "STRING", "entity for replies"),
    SchemaColumn("reply_to_session_id", "STRING", "session for replies"),
    SchemaColumn("to", "STRING", "destination that receivers read"),
    SchemaColumn("application_properties", "MAP<STRING, STRING>", "properties of the application, all as text"),
    SchemaColumn("typed_properties", TYPED_MAP, "properties with types; a row that has them needs no others"),
    SchemaColumn("amqp", "BINARY", "what a read has in this column"),
    SchemaColumn("time_to_live_ms", "BIGINT", "time in ms after which the message expires"),
    SchemaColumn("scheduled_enqueue_time", "TIMESTAMP", "time at which the message can be received"),
)

_WRITTEN = {column.name: column for column in WRITE_COLUMNS}
_ALSO_WRITTEN: Mapping[str, set[str]] = {"body": {"STRING"}, "time_to_live_ms": {"INT"}, "entity": set()}
"""Types that a column may have besides the type in the table."""
_ONLY_READ = {column.name for column in READ_COLUMNS} - set(_WRITTEN)


PROPERTIES = frozenset({"application_properties", "typed_properties", "amqp"})
"""The columns that ``includeProperties=false`` leaves out."""


def read_columns(
    *, body: bool = True, properties: bool = True, columns: Sequence[str] | None = None
) -> tuple[SchemaColumn, ...]:
    """Return the columns that a query reads: the ones of these names; or all, perhaps without the body, and the
    properties and what AMQP has.

    Raises :class:`SparkSetupError` if there is no column of a name.
    """
    if columns is not None:
        by_name = {column.name: column for column in READ_COLUMNS}
        for name in columns:
            if name.lower() not in by_name:
                raise SparkSetupError(
                    f"The option columns is wrong: there is no column {quoted(name)}; {nearest(name, by_name)}"
                )
        return tuple(by_name[name.lower()] for name in columns)
    left_out = {*(() if body else ("body",)), *(() if properties else PROPERTIES)}
    return tuple(column for column in READ_COLUMNS if column.name not in left_out)


def columns_of(options: QueryOptions) -> tuple[SchemaColumn, ...]:
    """Return the columns that a query reads."""
    return read_columns(body=options.body, properties=options.properties, columns=options.columns)


def ddl(columns: Iterable[SchemaColumn]) -> str:
    """Return the schema of these columns in Spark's DDL."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def arrow_schema(columns: Sequence[SchemaColumn]) -> pa.Schema:
    """Return the schema of these columns for pyarrow."""
    import pyarrow as pa

    types = {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "BINARY": pa.binary(),
        "MAP<STRING, STRING>": _map(pa.string()),
        TYPED_MAP: _map(
            pa.struct(
                {
                    "type": pa.string(),
                    "boolean": pa.bool_(),
                    "integer": pa.int64(),
                    "number": pa.float64(),
                    "time": pa.timestamp("us", tz="UTC"),
                    "bytes": pa.binary(),
                    "text": pa.string(),
                }
            )
        ),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in columns])


def _map(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", kind, nullable=True))


def check_read_schema(given: Sequence[tuple[str, str]], options: QueryOptions) -> None:
    """Refuse the schema of a read unless it is the one of the format. ``given`` has names and types."""
    columns = SETTLEMENT_COLUMNS if options.records == "settlements" else columns_of(options)
    if [(name, _spelled(kind)) for name, kind in given] != [(each.name, _spelled(each.type)) for each in columns]:
        raise SparkSetupError(
            "The Spark format sbredis has a fixed schema: leave out schema(…), and choose columns with the option "
            "columns, or with select(…)."
        )


def check_written(given: Sequence[tuple[str, str]], options: QueryOptions) -> tuple[str, ...]:
    """Return the names of the columns to send, after a check of all columns of a DataFrame that is written.

    Columns that only a read has (``sequence_number``, ``state`` and others) are left out, so that a DataFrame that was
    read can be written.
    """
    sent: list[str] = []
    for name, kind in given:
        column = _WRITTEN.get(name)
        if name == options.id_column and _spelled(kind) != "STRING":
            raise SparkSetupError(f"The column {name} has the type {kind}, but idColumn needs STRING: cast it.")
        if name == options.task_column and _spelled(kind) not in {"INT", "BIGINT"}:
            raise SparkSetupError(f"The column {name} has the type {kind}, but taskColumn needs INT: cast it.")
        if column is None:
            if name not in _ONLY_READ and name not in {options.id_column, options.task_column}:
                raise SparkSetupError(
                    f"A message has no part for the column {quoted(name)}: {nearest(name, _WRITTEN)} "
                    "Drop the column, or put it into application_properties."
                )
            continue
        if _spelled(kind) not in {_spelled(column.type), *_ALSO_WRITTEN.get(name, ())}:
            raise SparkSetupError(f"The column {name} has the type {kind}, but must be {column.type}: cast it.")
        sent.append(name)
    _check_needed({name for name, _ in given}, options)
    return tuple(sent)


def _check_needed(given: set[str], options: QueryOptions) -> None:
    if "body" not in given:
        raise SparkSetupError(
            "The column body is missing: it is what a message carries. Name a column so: alias('body')."
        )
    for option, column in (("idColumn", options.id_column), ("taskColumn", options.task_column)):
        if column is not None and column not in given:
            raise SparkSetupError(f"{option} names {quoted(column)}, which is not a column of the DataFrame.")
    if options.entity is None and "entity" not in given:
        raise SparkSetupError("Nothing says where to send: give the option queue or topic, or a column entity.")


def _spelled(kind: str) -> str:
    words = kind.upper().replace(" ", "")
    return {"LONG": "BIGINT", "INTEGER": "INT"}.get(words, words)
