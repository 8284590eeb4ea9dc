"""How far a stream is behind its entities: messages, bytes and seconds, in all and for each partition. Pure.

A reader reports its lag as ``latestOffset``, which Spark shows in the progress of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sbredis.spark._planning import EntityPartition

__all__ = ["PartitionLag", "lag_report"]


class PartitionLag(NamedTuple):
    """How far a stream is behind one partition, after the batch that is planned."""

    number: int
    """The last sequence number of the batch, or of an earlier one."""
    left: int
    """The number of messages after it. In a browsing stream some of them may be gone."""
    bytes: int
    """About the size of these messages."""
    oldest: int
    """When the first of them was enqueued, in ms since 1970; 0 if there is none, or if that is not known."""


def lag_report(lags: Mapping[EntityPartition, PartitionLag], names: Mapping[str, str], now: int) -> dict[str, Any]:
    """Return the lag of a stream as JSON. ``names`` has the path of each entity as its creator spelled it."""
    entities: dict[str, dict[str, Any]] = {}
    for key, lag in sorted(lags.items()):
        entities.setdefault(names[key.entity], {})[str(key.number)] = {
            "number": lag.number,
            "left": lag.left,
            "bytes": lag.bytes,
            "seconds": _seconds(lag.oldest, now),
        }
    oldest = min((lag.oldest for lag in lags.values() if lag.oldest), default=0)
    return {
        "messagesLeft": sum(lag.left for lag in lags.values()),
        "bytesLeft": sum(lag.bytes for lag in lags.values()),
        "secondsBehind": _seconds(oldest, now),
        "oldestEnqueuedTime": oldest,
        "entities": entities,
    }


def _seconds(oldest: int, now: int) -> float:
    return round(max(now - oldest, 0) / 1000, 3) if oldest else 0.0
