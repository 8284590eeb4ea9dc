"""The place of each message in its partition: bands, scores and the names of messages. Pure.

All messages of a partition, of all sides, are in one sorted set. The score of a message is ``band * 2**48 + number``.
The band encodes its side, its state and, for active messages of the main side, its priority level. So the state of a
message *is* its place in this set. A change of state is one write. The messages in a state can be counted as the
members in a range of scores. The oldest message of the most urgent level comes first in the set. Lua and Redis
calculate with doubles, which are exact up to 2**53; scores stay below that.

The member of a message on the main side is its number in decimals; on the dead side, ``d`` and its number there; on the
transfer dead side, ``t`` and its number there. Both sides of dead letters draw numbers from one counter.

HELD on the transfer dead side has a band but no rows. Band 31, the last below 2**53, belongs to the sentinel.

The scripts get these numbers from this module (through ``_lua_constants.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sbredis.engine._lifecycle import Side, SidePrefix, State

__all__ = [
    "BANDS",
    "BAND_WIDTH",
    "EPOCH_LEAP",
    "LEVELS",
    "RESERVED",
    "SENTINEL",
    "SENTINEL_BAND",
    "SESSION_BANDS",
    "band",
    "is_dead",
    "member",
    "number_of",
    "score",
    "side_of",
    "split_member",
    "split_score",
    "state_of_band",
]

BAND_WIDTH: Final = 2**48
"""The number of scores in a band: one for each message number."""

EPOCH_LEAP: Final = 2**24
"""The number that is added to both message counters at a new epoch.

So no number that a failover lost is given twice.
"""

LEVELS: Final = 8
"""The number of priority levels; level 0 is served first."""

RESERVED: Final = frozenset({(Side.TRANSFER_DEAD, State.HELD)})
"""The states that have a band but no transitions yet."""

BANDS: Final[Mapping[tuple[Side, State], range]] = MappingProxyType(
    {
        (Side.MAIN, State.ACTIVE): range(LEVELS),
        (Side.MAIN, State.HELD): range(8, 9),
        (Side.MAIN, State.LOCKED): range(9, 10),
        (Side.MAIN, State.DELAYED): range(10, 11),
        (Side.MAIN, State.DEFERRED): range(11, 12),
        (Side.MAIN, State.FROZEN): range(12, 13),
        (Side.MAIN, State.SCHEDULED): range(13, 14),
        (Side.MAIN, State.TRANSFER): range(14, 15),
        (Side.DEAD, State.ACTIVE): range(16, 17),
        (Side.DEAD, State.KEPT): range(17, 18),
        (Side.DEAD, State.LOCKED): range(18, 19),
        (Side.DEAD, State.DELAYED): range(19, 20),
        (Side.DEAD, State.DEFERRED): range(20, 21),
        (Side.DEAD, State.FROZEN): range(21, 22),
        (Side.TRANSFER_DEAD, State.ACTIVE): range(22, 23),
        (Side.TRANSFER_DEAD, State.HELD): range(23, 24),
        (Side.TRANSFER_DEAD, State.LOCKED): range(24, 25),
        (Side.TRANSFER_DEAD, State.DELAYED): range(25, 26),
        (Side.TRANSFER_DEAD, State.DEFERRED): range(26, 27),
        (Side.TRANSFER_DEAD, State.FROZEN): range(27, 28),
    }
)
"""The bands of each state: one band, except that active messages of the main side have one for each level."""

SESSION_BANDS: Final[Mapping[str, int]] = MappingProxyType({"free": 0, "locked": 1, "blocked": 3, "stated": 4})
"""The bands of sessions in the key ``turns``.

A session is ``free`` to be accepted, ``locked``, or ``blocked`` until a time. Free sessions are ordered by the time
when they became free. The band ``stated`` orders sessions by the time when their state was set.
"""

SENTINEL: Final = "0" * 65
"""A name in ``order`` and ``entries`` that is not a message. It makes the server use the indexed encoding for both
keys.

The server stores small collections as listpacks and scans them linearly. A member of more than 64 bytes forces the
indexed encoding, and no caller can name this member. The sentinel exists as long as the partition. Without it the
partition would be slower, but still correct.
"""

SENTINEL_BAND: Final = 31
"""The band of the sentinel, after all others."""

_OF_BAND: Final = {number: (place, bands.start) for place, bands in BANDS.items() for number in bands}
_MEMBER: Final = re.compile(r"([dt]?)([1-9][0-9]{0,14})", re.ASCII)


def band(side: Side, state: State, level: int = 0) -> int:
    """Return the band of a message; its level matters if the state has a band for each level."""
    if not 0 <= level < LEVELS:
        raise ValueError(f"level {level} is outside 0 to {LEVELS - 1}")
    try:
        bands = BANDS[side, state]
    except KeyError:
        raise ValueError(f"no message on the {side.name} side is {state.value}") from None
    return bands[level] if len(bands) > 1 else bands.start


def state_of_band(number: int) -> tuple[Side, State, int]:
    """Return side, state and level of the messages in a band; the level is 0 if the band has none."""
    try:
        (side, state), first = _OF_BAND[number]
    except KeyError:
        raise ValueError(f"band {number} is not used") from None
    return side, state, number - first


def score(in_band: int, number: int) -> int:
    """Return the score of the message with this number, in this band."""
    if not 0 <= number < BAND_WIDTH:
        raise ValueError(f"number {number} does not fit into a band")
    return in_band * BAND_WIDTH + number


def split_score(value: int) -> tuple[int, int]:
    """Return the band and the number of a score."""
    return divmod(value, BAND_WIDTH)


def member(side: Side, number: int) -> str:
    """Return the name of a message in the keys of its partition."""
    return f"{side.value}{number}"


def is_dead(name: str) -> bool:
    """Return whether the message of this name is on a dead-letter queue."""
    return not name[0].isdigit()


def side_of(name: str) -> SidePrefix:
    """Return the side of the message of this name."""
    return "" if name[0].isdigit() else "t" if name[0] == "t" else "d"


def number_of(name: str) -> int:
    """Return the number of the message of this name on its side."""
    return int(name[1:] if is_dead(name) else name)


def split_member(name: str) -> tuple[Side, int]:
    """Return the side and the number of a member."""
    match = _MEMBER.fullmatch(name)
    if match is None or int(match[2]) >= BAND_WIDTH:
        raise ValueError(f"{name!r} is not the name of a message")
    return Side(match[1]), int(match[2])
