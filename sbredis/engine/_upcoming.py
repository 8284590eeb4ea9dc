"""The times when something will be due in partitions: asking for them, and reading announcements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sbredis._unreadable import decodes
from sbredis.engine._keys import due_channel, entity_of, state_key
from sbredis.engine._packing import within
from sbredis.engine._request import Request
from sbredis.engine._results import NEVER
from sbredis.engine._scripts import load

__all__ = ["MOST_ASKED", "Announcement", "due_channel", "read_announcement", "upcoming"]

_LONGEST_TIME = 15
MOST_ASKED = 500
"""The largest number of partitions in one call. Such a call takes the server one to three milliseconds."""


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
    keys = tuple(state_key(namespace, salt, entity) for entity in entities)

    def read(reply: list[Any]) -> tuple[int | None, ...]:
        return tuple(int(each) if each else None for each in reply)

    return Request(load("upcoming"), keys, ("" if now is None else now,), read)


@decodes("An announcement of a partition")
def read_announcement(payload: bytes) -> Announcement:
    """Read an announcement of a partition.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for any other payload.
    """
    state, said, due = payload.split(b" ")
    if not said.isdigit() or not due.isdigit() or max(len(said), len(due)) > _LONGEST_TIME:
        raise ValueError("a time is malformed")
    return Announcement(entity_of(state), int(said), int(due))
