"""Requests to many partitions of one slot, and the announcements that partitions make on the channel of their slot.

These scripts only read, cost a short read or two for each partition, and need no lane. They name a partition by its
entity and its slot, because the caller need not know its settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sbredis._unreadable import decodes
from sbredis.engine._grants import NEXT_SESSION
from sbredis.engine._keys import KINDS, due_key, entity_of, partition_keys, ready_keys, state_key
from sbredis.engine._packing import within
from sbredis.engine._request import Request
from sbredis.engine._results import NEVER
from sbredis.transport import Keys

__all__ = [
    "MOST_ASKED",
    "Announcement",
    "calling",
    "find_ready",
    "quiet",
    "read_announcement",
    "read_call",
    "read_call_for_receivers",
    "upcoming",
]

MOST_ASKED = 500
"""The largest number of partitions in one call. Such a call takes the server one to three milliseconds."""
_STATE, _STORE = KINDS.index("state"), KINDS.index("store")
_LONGEST_TIME = 15
_CALLED: Final = {"m": "", "d": "d", "t": "t", "n": NEXT_SESSION}


class Announcement(NamedTuple):
    """An announcement of a partition on the channel of its slot."""

    entity: str
    """The id of the partition's entity."""
    said: int
    """The time of the announcement by the partition's clock, in ms since 1970."""
    due: int
    """The time when something will be due, by the partition's clock, in ms since 1970."""


def upcoming(
    namespace: str, salt: str, entities: Sequence[str], now: int | None = None
) -> Request[tuple[int | None, ...]]:
    """Ask the partitions of these entities in the slot of ``salt`` for a lower bound of the ms until something is due.

    The answers are in the order of the entities: an answer is ``None`` if nothing will be due, or if no such partition
    exists. ``now`` is the time for partitions with a test clock.
    """
    within("the number of partitions", len(entities), 1, MOST_ASKED)
    if now is not None:
        within("now", now, 0, NEVER - 1)
    keys = tuple(of(namespace, salt, entity) for entity in entities for of in (state_key, due_key))

    def read(reply: list[Any]) -> tuple[int | None, ...]:
        return tuple(int(each) if each else None for each in reply)

    return Request.of("upcoming", keys, ("" if now is None else now,), read)


def quiet(
    namespace: str, salt: str, entities: Sequence[tuple[str, str | None]], now: int | None = None
) -> Request[tuple[int | None, ...]]:
    """Ask the partitions of these entities in the slot of ``salt`` for the ms since their last use.

    Each entity is named by its id and, for a subscription, by the id of its topic, which stores its messages. The
    answers are in the order of the entities: an answer is ``None`` if there is no such partition. ``now`` is the time
    for partitions with a test clock.
    """
    within("the number of partitions", len(entities), 1, MOST_ASKED)
    if now is not None:
        within("now", now, 0, NEVER - 1)
    keys: list[bytes] = []
    for entity, store in entities:
        own = partition_keys(namespace, salt, entity, store)
        keys += (own[_STATE], own[_STORE])

    def read(reply: list[Any]) -> tuple[int | None, ...]:
        return tuple(int(each) if each else None for each in reply)

    return Request.of("quiet", tuple(keys), ("" if now is None else now,), read)


def calling(namespace: str, salt: str, entities: Sequence[str]) -> Request[tuple[bool, ...]]:
    """Ask the partitions of these entities in the slot of ``salt`` whether they wait for a mover."""
    within("the number of partitions", len(entities), 1, MOST_ASKED)
    keys = tuple(state_key(namespace, salt, entity) for entity in entities)

    def read(reply: list[int]) -> tuple[bool, ...]:
        return tuple(map(bool, reply))

    return Request.of("calling", keys, (), read)


def find_ready(namespace: str, salt: str, entity: str, source: str, now: int | None = None) -> Request[bool]:
    """Ask the partition of an entity in the slot of ``salt`` whether it may have something for a receiver.

    ``source`` is a side, or says that the receiver wants free sessions. ``now`` is the time for a partition with a test
    clock.
    """
    if now is not None:
        within("now", now, 0, NEVER - 1)
    keys = Keys(ready_keys(namespace, salt, entity))
    return Request.of("find_ready", keys, (source, "" if now is None else now), bool)


@decodes("A call for receivers")
def read_call_for_receivers(payload: bytes) -> frozenset[str]:
    """Return what is ready in a partition that calls receivers: the sides of messages, or free sessions.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for any other payload.
    """
    return frozenset(_CALLED[letter] for letter in payload.decode())


@decodes("An announcement of a partition")
def read_announcement(payload: bytes) -> Announcement:
    """Read an announcement of a partition.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for any other payload.
    """
    state, said, due = payload.split(b" ")
    if not said.isdigit() or not due.isdigit() or max(len(said), len(due)) > _LONGEST_TIME:
        raise ValueError("a time is malformed")
    return Announcement(entity_of(state), int(said), int(due))


@decodes("An announcement of a partition")
def read_call(payload: bytes) -> str:
    """Return the id of the entity that has called for a mover.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for any other payload.
    """
    state, word = payload.split(b" ")
    if word != b"move":
        raise ValueError("it does not call for a mover")
    return entity_of(state)
