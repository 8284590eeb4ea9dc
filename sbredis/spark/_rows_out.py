"""Take the columns of a RecordBatch apart, for a bulk writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sbredis.engine import Outbound, PropertyColumns, name_key

__all__ = ["by_entity", "outbound"]

_TEXTS = ("message_id", "session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to")


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
    """Return the columns of a batch that are sent, as a bulk writer takes them."""
    texts = {name: _bytes(batch.column(name)) for name in _TEXTS if name in sent}
    if id_column is not None:
        texts["message_id"] = _bytes(batch.column(id_column))
    return Outbound(
        _bytes(batch.column("body")),
        **texts,
        properties=_properties(batch) if "application_properties" in sent else None,
        time_to_live=batch.column("time_to_live_ms").to_pylist() if "time_to_live_ms" in sent else None,
        scheduled=_milliseconds(batch) if "scheduled_enqueue_time" in sent else None,
    )


def _bytes(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.binary()).to_pylist()


def _milliseconds(batch: pa.RecordBatch) -> list[int | None]:
    micros = batch.column("scheduled_enqueue_time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[int | None] = pc.divide(micros, 1000).to_pylist()
    return found


def _properties(batch: pa.RecordBatch) -> PropertyColumns:
    column = batch.column("application_properties")
    if column.null_count:  # a row without a map could have entries behind it, which Arrow ignores
        column = pa.array(column.to_pylist(), pa.map_(pa.string(), pa.string()))
    assert isinstance(column, pa.MapArray)
    names = [name or b"" for name in _bytes(column.keys)]
    return PropertyColumns(column.offsets.to_pylist(), names, _bytes(column.items))
