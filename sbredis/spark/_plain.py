"""Columns of messages that have a body, perhaps an id, and no other field. Arrow cuts them, many at once.

Such messages are the usual ones of a large read. A loop of Python over their records takes four times as long. Records
of which any is not like that are left to :func:`~sbredis.engine.columns_of`, which reads, or refuses, everything.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from sbredis.engine import NEVER, Columns, Numbers, PlainLayout, Rows, Texts, plain_layout

__all__ = ["plain_columns"]

_MOST_SIZES = 16
"""The most sizes of ids for which this is faster."""
_LONGEST_ID = 127
"""The size of a longer id takes more than a byte."""
_WHOLE = (1 << 31) - 1
"""An end behind that of each record."""
_END = b"\x00"
"""Follows the last field of a message."""


def plain_columns(replies: Sequence[Rows], *, body: bool) -> Columns | None:
    """Return the messages of several replies in columns, as ``columns_of`` does; ``None`` if not all are plain."""
    records = list(chain.from_iterable(reply.records for reply in replies))
    layout = plain_layout(records[0]) if records else None
    if layout is None or any(reply.extras for reply in replies):
        return None
    names = list(chain.from_iterable(reply.names for reply in replies))
    try:
        return _cut(names, records, layout, "".join(reply.states for reply in replies), body=body)
    except pa.ArrowInvalid:  # a number or an id is damaged
        return None


def _cut(names: list[bytes], records: list[bytes], layout: PlainLayout, states: str, *, body: bool) -> Columns | None:
    whole = pa.array(records, pa.binary())
    head = layout.payload + len(layout.head)
    if _distinct(whole, 0, 1) != [layout.form] or _distinct(whole, layout.payload, head) != [layout.head]:
        return None
    enqueued = _numbers(pc.binary_slice(whole, *layout.enqueued))
    if len(names) != len(records) or not pc.min_max(enqueued)["min"].as_py():  # a record that is lost has no time
        return None
    numbers = _numbers(pa.array(names, pa.binary()))
    made = Columns(len(records), _column(numbers), _column(enqueued), states=states or None)
    if layout.expires is not None:
        expires = _numbers(pc.binary_slice(whole, *layout.expires))
        if pc.min_max(expires)["max"].as_py() >= NEVER:
            return None
        made.expires = _column(expires)
    if not layout.has_id:
        made.bodies = _texts(pc.binary_slice(whole, head, _WHOLE)) if body else None
        return made
    return made if _cut_ids(made, whole, head, body=body) else None


def _cut_ids(made: Columns, whole: pa.Array, head: int, *, body: bool) -> bool:
    """Fill in ids and bodies, for each size of the ids at once. Return whether the records are like that."""
    sizes = pc.binary_slice(whole, head, head + 1)
    found: list[bytes] = pc.unique(sizes).to_pylist()
    if len(found) > _MOST_SIZES or b"" in found or max(found)[0] > _LONGEST_ID:
        return False
    ids: list[pa.Array] = []
    bodies: list[pa.Array] = []
    rows: list[pa.Array] = []
    for size in found:
        of_size = whole
        if len(found) > 1:
            is_of_size = pc.equal(sizes, size)
            of_size = whole.filter(is_of_size)
            rows.append(pc.indices_nonzero(is_of_size))
        end = head + 1 + size[0]
        if _distinct(of_size, end, end + 1) != [_END]:
            return False
        ids.append(pc.binary_slice(of_size, head + 1, end).cast(pa.string()))
        if body:
            bodies.append(pc.binary_slice(of_size, end + 1, _WHOLE))
    order = pc.sort_indices(pa.concat_arrays(rows)) if rows else None
    made.texts["message_id"] = _texts(_in_order(ids, order))
    made.bodies = _texts(_in_order(bodies, order)) if body else None
    return True


def _in_order(parts: list[pa.Array], order: pa.Array | None) -> pa.Array:
    return parts[0] if order is None else pa.concat_arrays(parts).take(order)


def _distinct(whole: pa.Array, begin: int, end: int) -> list[bytes]:
    found: list[bytes] = pc.unique(pc.binary_slice(whole, begin, end)).to_pylist()
    return found


def _numbers(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.string()).cast(pa.int64())


def _column(numbers: pa.Array) -> Numbers:
    _, data = numbers.buffers()
    assert data is not None
    return Numbers(array("q", data.slice(0, 8 * len(numbers)).to_pybytes()))


def _texts(values: pa.Array) -> Texts:
    _, offsets, data = values.buffers()
    assert offsets is not None
    ends = array("i", offsets.slice(0, 4 * (len(values) + 1)).to_pybytes())
    return Texts(b"" if data is None else data.slice(0, ends[-1]).to_pybytes(), ends)
