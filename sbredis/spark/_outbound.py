"""The columns of a RecordBatch that is written, as a bulk writer takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sbredis.engine import TEXT_VALUE, Content, Outbound, PropertyColumns, decode, name_key, other_fields, text_of
from sbredis.exceptions import DataLayoutError
from sbredis.model import duplicate_key
from sbredis.spark._typed import encoded_values

__all__ = ["by_entity", "outbound"]

_TEXTS = (
    *("message_id", "session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to"),
    "reply_to_session_id",
)


def by_entity(batch: pa.RecordBatch, entity: str | None) -> Iterator[tuple[str | None, Sequence[int] | None]]:
    """Yield each entity of a batch with its rows, in their order; ``None`` instead of the rows if it has all of them.

    The names of an entity in different spellings are one entity. Rows without an entity come with ``None`` as the
    entity.
    """
    if entity is not None:
        yield entity, None
        return
    rows: dict[str | None, list[int]] = {}
    for row, name in enumerate(batch.column("entity").to_pylist()):
        rows.setdefault(name_key(name) if name else None, []).append(row)
    yield from rows.items()


def outbound(batch: pa.RecordBatch, sent: Sequence[str], id_column: str | None) -> Outbound:
    """Return the columns of a batch that are sent."""
    texts: dict[str, Any] = {name: _bytes(batch.column(name)) for name in _TEXTS if name in sent}
    if id_column is not None:
        texts["message_id"] = _bytes(batch.column(id_column))
    wrong: dict[int, str] = {}
    made = Outbound(
        _bytes(batch.column("body")),
        **texts,
        properties=_properties(batch, sent, wrong),
        time_to_live=batch.column("time_to_live_ms").to_pylist() if "time_to_live_ms" in sent else None,
        scheduled=_milliseconds(batch) if "scheduled_enqueue_time" in sent else None,
    )
    if "amqp" in sent:
        made = _with_others(made, batch.column("amqp").cast(pa.binary()).to_pylist(), wrong)
    return replace(made, wrong=[wrong.get(row) for row in range(len(made))]) if wrong else made


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist()


def _milliseconds(batch: pa.RecordBatch) -> list[int | None]:
    micros = batch.column("scheduled_enqueue_time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[int | None] = pc.divide(micros, 1000).to_pylist()
    return found


# -- application properties --------------------------------------------------------------------------------------------


def _properties(batch: pa.RecordBatch, sent: Sequence[str], wrong: dict[int, str]) -> PropertyColumns | None:
    """Return the properties of all rows. A row that has properties with types needs no others."""
    typed = _typed(batch.column("typed_properties"), wrong) if "typed_properties" in sent else None
    if typed is not None and not batch.column("typed_properties").null_count:
        return typed
    plain = _plain(batch.column("application_properties")) if "application_properties" in sent else None
    if typed is None or plain is None:
        return typed or plain
    return _first_of(batch.column("typed_properties").is_valid().to_pylist(), typed, plain)


def _entries(column: pa.Array) -> tuple[list[int], pa.Array, pa.Array]:
    """Return where the entries of each row begin, and all names and values.

    A row without a map could have entries behind it, which Arrow ignores.
    """
    assert isinstance(column, pa.MapArray)
    offsets = column.offsets.to_pylist()
    if not column.null_count:
        return offsets, column.keys, column.items
    spans = [
        range(begin, end if there else begin)
        for (begin, end), there in zip(pairwise(offsets), column.is_valid().to_pylist(), strict=True)
    ]
    places = pa.array(list(chain.from_iterable(spans)), pa.int64())
    ends = [0]
    for span in spans:
        ends.append(ends[-1] + len(span))
    return ends, column.keys.take(places), column.items.take(places)


def _plain(column: pa.Array) -> PropertyColumns:
    offsets, names, values = _entries(column)
    return PropertyColumns(offsets, [name or b"" for name in _bytes(names)], _bytes(values))


def _typed(column: pa.Array, wrong: dict[int, str]) -> PropertyColumns:
    offsets, keys, structs = _entries(column)
    names = [name or b"" for name in _bytes(keys)]
    made = encoded_values(structs, names)
    if made.wrong:
        for row, (begin, end) in enumerate(pairwise(offsets)):
            reasons = [made.wrong[place] for place in range(begin, end) if place in made.wrong]
            if reasons:
                wrong[row] = reasons[0]
    return PropertyColumns(offsets, names, made.values, made.kinds)


def _first_of(has_first: Sequence[bool], first: PropertyColumns, second: PropertyColumns) -> PropertyColumns:
    """Return for each row the first properties if there are some, and otherwise the second ones."""
    offsets = [0]
    names: list[bytes] = []
    values: list[bytes | None] = []
    kinds: list[bytes] = []
    for row, chosen in enumerate(first if there else second for there in has_first):
        place = slice(chosen.offsets[row], chosen.offsets[row + 1])
        names += chosen.names[place]
        values += chosen.values[place]
        kinds += [TEXT_VALUE] * len(chosen.names[place]) if chosen.kinds is None else chosen.kinds[place]
        offsets.append(len(names))
    return PropertyColumns(offsets, names, values, kinds)


# -- what AMQP has besides ---------------------------------------------------------------------------------------------


def _with_others(made: Outbound, given: Sequence[bytes | None], wrong: dict[int, str]) -> Outbound:
    """Return messages with what the column ``amqp`` has: sections of AMQP, and ids that are not text.

    An id counts only if it is the one that the column of ids has as text.
    """
    others: list[bytes | None] = [None] * len(made)
    message_ids, correlation_ids = (
        [None] * len(made) if column is None else list(column) for column in (made.message_id, made.correlation_id)
    )
    keys: list[bytes | None] = [None] * len(made)
    for row, value in enumerate(given):
        if value is None:
            continue
        try:
            found = decode(value + (made.bodies[row] or b"")) if not decode(value).body else None
        except DataLayoutError:
            found = None
        if found is None:
            wrong[row] = "its column amqp is not one that a read gave"
            continue
        kept = Content(made.bodies[row] or b"", annotations=found.annotations, raw_amqp=found.raw_amqp)
        if found.raw_amqp is not None:  # other columns may have changed since they were read
            kept.modified = 1
        if found.message_id is not None and text_of(found.message_id) == message_ids[row]:
            kept.message_id, keys[row], message_ids[row] = found.message_id, duplicate_key(found.message_id), None
        if found.correlation_id is not None and text_of(found.correlation_id) == correlation_ids[row]:
            kept.correlation_id, correlation_ids[row] = found.correlation_id, None
        others[row] = other_fields(kept)
    return replace(
        made,
        others=others,
        message_id=None if made.message_id is None else message_ids,
        correlation_id=None if made.correlation_id is None else correlation_ids,
        typed_ids=keys if any(key is not None for key in keys) else None,
    )
