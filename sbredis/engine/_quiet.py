"""The use of partitions: noting it, asking many partitions of one slot for it, and closing a partition without use."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from sbredis.engine._keys import KINDS, partition_keys
from sbredis.engine._packing import within
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition
from sbredis.engine._request import Request
from sbredis.engine._results import NEVER, Closing
from sbredis.engine._scripts import load

__all__ = ["MOST_QUIET", "close", "quiet", "touch"]

_STATE, _STORE = KINDS.index("state"), KINDS.index("store")
MOST_QUIET = 500
"""The largest number of partitions in one call."""


def quiet(
    namespace: str, salt: str, entities: Sequence[tuple[str, str | None]], now: int | None = None
) -> Request[tuple[int | None, ...]]:
    """Ask the partitions of these entities in the slot of ``salt`` for the ms since their last use.

    Each entity is named by its id and, for a subscription, by the id of its topic, which stores its messages. The
    answers are in the order of the entities: an answer is ``None`` if there is no such partition. ``now`` is the time
    for partitions with a test clock.
    """
    within("the number of partitions", len(entities), 1, MOST_QUIET)
    if now is not None:
        within("now", now, 0, NEVER - 1)
    keys: list[bytes] = []
    for entity, store in entities:
        own = partition_keys(namespace, salt, entity, store)
        keys += (own[_STATE], own[_STORE])

    def read(reply: list[Any]) -> tuple[int | None, ...]:
        return tuple(int(each) if each else None for each in reply)

    return Request(load("quiet"), tuple(keys), ("" if now is None else now,), read)


def touch(partition: Partition, call_id: CallId = NO_CALL_ID) -> Request[bool]:
    """Note a use of a partition that changes nothing else in it. The result says whether a time was written."""

    def read(reply: list[Any]) -> bool:
        return bool(reply[0])

    return partition.request("touch", call_id, read, {})


def close(
    partition: Partition, idle: int, closed: int, *, again: bool = False, now: int | None = None
) -> Request[Closing]:
    """Close a partition if nobody has used it for ``idle`` ms, because its entity is about to be removed.

    ``closed`` is the version of a closed partition: the version after the one that all clients know. With the present
    version as ``closed``, the call only asks. With ``again``, the partition is closed already and is checked again.
    """
    within("idle", idle, 1, NEVER)
    within("closed", closed, partition.version, partition.version + 1)

    def read(reply: list[Any]) -> Closing:
        return Closing(bool(reply[0]), reply[1])

    if again:
        partition = copy(partition)
        partition.version = closed
    return partition.request("close", CallId("", 0, now), read, {"idle": idle, "closed": closed})
