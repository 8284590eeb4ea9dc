"""The watermarks of a partition: reading them. A transaction advances them. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from sbredis.engine._packing import MAXIMUM_ID_BYTES
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition
from sbredis.engine._request import Request

__all__ = ["Watermark", "WatermarksRead", "watermarks"]


class Watermark(NamedTuple):
    """A watermark as a partition keeps it."""

    name: bytes
    value: str
    number: int
    """The number of the last message that was sent with it; 0 if there was none."""


class WatermarksRead(NamedTuple):
    """A part of the watermarks of a partition."""

    watermarks: tuple[Watermark, ...]
    onwards: str | None
    """The cursor for the next part; ``None`` after the last part."""


def watermarks(
    partition: Partition, prefix: bytes = b"", cursor: str | None = None, *, call_id: CallId = NO_CALL_ID
) -> Request[WatermarksRead]:
    """Read the watermarks whose names begin with ``prefix``, about a thousand at a time.

    A watermark that is there during all calls is in at least one part.
    """
    if len(prefix) > MAXIMUM_ID_BYTES:
        raise ValueError(f"the name of a watermark has up to {MAXIMUM_ID_BYTES} bytes, not {len(prefix)}")

    def read(reply: list[Any]) -> WatermarksRead:
        onwards, names, values = reply
        found = [_watermark(name, value.decode()) for name, value in zip(names, values, strict=True)]
        return WatermarksRead(tuple(found), None if onwards == b"0" else onwards.decode())

    return partition.request("watermarks", call_id, read, {"prefix": prefix, "cursor": cursor or "0"})


def _watermark(name: bytes, stored: str) -> Watermark:
    number, _, value = stored.partition(" ")
    return Watermark(name, value, int(number))
