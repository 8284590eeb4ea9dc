"""The life of a message, as one table, and the place of each state in the partition.

Theory
------

A message lives on a *side*. It begins on the main side, the queue itself. It may move once to the dead side, the dead-
letter queue. There it gets a number of the dead side, and its second life begins: a dead letter never comes back, never
expires, and is never dead-lettered again. The same rules hold on the transfer dead side, which is the transfer dead-
letter queue.

On its side a message is in exactly one *state*. These are the ways out of each state::

    NEW        send ► ACTIVE    schedule ► SCHEDULED    (either ► DROPPED, if it is a duplicate)
               on a topic: publish ► PUBLISHED; in a subscription: copy ► ACTIVE or the dead side
    SCHEDULED  activate ► ACTIVE    cancel ► CANCELLED    on a topic: publish ► PUBLISHED
    ACTIVE     receive ► LOCKED or HELD    receive and delete ► COMPLETED    expire ► EXPIRED or the dead side
    LOCKED     complete ► COMPLETED    dead-letter ► the dead side    renew ► LOCKED
               defer ► DEFERRED; or the dead side
               abandon, release, lapse ► ACTIVE; or the dead side, DEFERRED, EXPIRED, DELAYED (see below)
    HELD       as LOCKED, except that renew leads to HELD, and nothing leads to DELAYED
    DELAYED    wake ► ACTIVE; or EXPIRED or the dead side
    DEFERRED   receive deferred ► LOCKED or HELD    receive deferred and delete ► COMPLETED
               either ► EXPIRED or the dead side
               and purge leads from ACTIVE, DELAYED and DEFERRED to PURGED,
               and bury leads from ACTIVE, HELD and DEFERRED to the dead side
               and freeze and withdraw lead from ACTIVE and TRANSFER to FROZEN and MOVED
    FROZEN     take ► MOVED    return ► back, or as ACTIVE    refuse ► dead sides, or KEPT, which is as ACTIVE

An *event* is an action of a caller (receive, complete, …) or an effect of time (lapse, activate, wake, expire). If the
table has no row for an event in a state, the event cannot happen to a message in that state. Such an event is refused,
reported or ignored, and the message does not change.

The outcome of an event may depend on more than the state. A row therefore lists its *conditions*, and **the first one
that holds decides**. Their order is part of the table. When a lock ends without a settlement, three consequences of
this order are easy to miss:

- The failed delivery is counted before the conditions are checked, and the first condition is the delivery limit. So a
  message is dead-lettered for its deliveries even if the message would otherwise become deferred again, or has expired
  meanwhile.
- If a message was deferred before it was locked, it becomes deferred again, whether or not it has expired. A deferred
  message does not expire when its time to live ends. It expires only when a receiver asks for its number after that.
- Expiry takes effect immediately when the lock ends; a delay that the caller asked for does not postpone it.

A locked message never expires, because LOCKED has no row for it. A released message keeps its number and level, and so
its old place. A scheduled message gets a new number when it becomes active, and its time to live begins then.

Abandon, lapse and defer count as a failed delivery on the main side (``COUNTED``). If a receiver returns a message
unread, the delivery does not count. The count of a dead letter never changes.

A message of a session is received under the lock of the session: it is *held* instead of locked. Held messages are
released when the lock of the session lapses. They are also released when the receiver releases the session; these
deliveries do not count as failed. If a message of a session is abandoned with a delay, the delay blocks the session.
The message returns to its place immediately, because later messages of the session must not overtake it. On the dead
side there are no sessions.

A topic does not store a message for itself, unless the message is scheduled. It *publishes* the message: its
subscriptions have copies, and each copy has a life of its own. A copy may begin as a dead letter, because a rule
failed, or because the subscription requires sessions and the message has none.

Bands
-----

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
from collections.abc import Collection, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "BANDS",
    "BAND_WIDTH",
    "COUNTED",
    "ENDS",
    "EPOCH_LEAP",
    "LEVELS",
    "NEVER",
    "RESERVED",
    "SENTINEL",
    "SENTINEL_BAND",
    "SESSION_BANDS",
    "TRANSITIONS",
    "WAITING_ROOMS",
    "Condition",
    "Event",
    "ImpossibleError",
    "Place",
    "Reason",
    "Side",
    "SidePrefix",
    "State",
    "band",
    "decide",
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

NEVER: Final = 9_999_999_999_999
"""The time of an event that never happens: in ms since 1970, with 13 digits like all other times."""


class Side(StrEnum):
    """The main queue of an entity, its dead-letter queue, or its transfer dead-letter queue.

    The name of a message in the keys of its partition is the value of its side and then its number.
    """

    MAIN = ""
    DEAD = "d"
    TRANSFER_DEAD = "t"


SidePrefix = Literal["", "d", "t"]
"""The value of a side: what precedes the number in the name of a message."""


class State(Enum):
    """The state of a message."""

    NEW = "new"  # not stored yet
    ACTIVE = "active"
    LOCKED = "locked"
    DELAYED = "delayed"  # released with a delay; keeps its number
    DEFERRED = "deferred"  # can be received only by its number
    SCHEDULED = "scheduled"  # will be enqueued at its scheduled time
    HELD = "held"  # given out under the lock of its session
    FROZEN = "frozen"  # in a batch that is being moved to another partition
    TRANSFER = "transfer"  # waits to be moved to an entity in another slot
    KEPT = "kept"  # a dead letter whose forwarding was refused; active, except that it is not forwarded again
    PUBLISHED = "published"  # copied to the subscriptions of its topic
    COMPLETED = "completed"  # completed by its receiver, or received and deleted
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PURGED = "purged"
    MOVED = "moved"  # at its destination
    DROPPED = "dropped"  # a duplicate that was never stored


class Event(Enum):
    """What can happen to a message."""

    SEND = "send"
    PUBLISH = "publish"  # the message is copied to the subscriptions of its topic
    COPY = "copy"  # a copy is added to a subscription
    SCHEDULE = "schedule"
    CANCEL = "cancel"
    RECEIVE = "receive"
    RECEIVE_AND_DELETE = "receive and delete"
    RECEIVE_DEFERRED = "receive deferred"  # by number; in the wide mode, active and delayed messages too
    RECEIVE_DEFERRED_AND_DELETE = "receive deferred and delete"
    RENEW = "renew"
    COMPLETE = "complete"
    ABANDON = "abandon"
    RELEASE = "release"  # a receiver returns a message that it has not given to the application
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    PURGE = "purge"
    BURY = "bury"  # all messages of a session move to the dead side
    REDRIVE = "redrive"  # a dead letter returns to the main side; there, a transfer waits again
    TRANSFER = "transfer"  # a message for an entity in another slot is stored, to be moved there
    WITHDRAW = "withdraw"  # it moves to another entity in the same slot
    FREEZE = "freeze"  # it becomes part of a batch
    TAKE = "take"  # its batch is at the destination
    RETURN = "return"  # its batch is not at the destination, and will not be
    REFUSE = "refuse"  # its destination refused it for good
    # The effects of time.
    LAPSE = "lapse"  # the lock has ended
    ACTIVATE = "activate"  # a scheduled message is due
    WAKE = "wake"  # a delay is over
    EXPIRE = "expire"


class Condition(Enum):
    """A condition that decides between the outcomes of a row."""

    DUPLICATE = "its message id was seen within the window"
    FAULTY = "a rule failed on it"
    NO_SESSION = "it has no session, and its subscription requires one"
    HOME_TRANSFER = "it is a transfer"
    SESSION = "it belongs to a session"
    LIMIT = "its failures, this one included, have reached the delivery limit"
    HOME_DEFERRED = "it was deferred when it was locked"
    EXPIRED_KEPT = "it has expired, and the entity dead-letters expired messages"
    EXPIRED = "it has expired"
    DELAY = "the caller asked for a delay"
    OTHERWISE = "none of the conditions before it"


class Reason(Enum):
    """The reason why a message is on the dead side; the value is the letter in its entry."""

    NONE = "-"
    APPLICATION = "A"
    EXPIRED = "T"  # TTLExpiredException
    DELIVERIES = "M"  # MaxDeliveryCountExceeded
    FILTER = "F"  # a rule of the subscription failed
    NO_SESSION = "S"  # Session ID is null.


class Place(NamedTuple):
    """The side and state of a message after an event, and the reason if it moved to the dead side."""

    side: Side
    state: State
    reason: Reason = Reason.NONE


class ImpossibleError(LookupError):
    """The table has no such transition."""


ENDS: Final = frozenset(
    {State.PUBLISHED, State.COMPLETED, State.CANCELLED, State.EXPIRED, State.PURGED, State.MOVED, State.DROPPED}
)
"""The states in which a message is gone."""

RESERVED: Final = frozenset({(Side.TRANSFER_DEAD, State.HELD)})
"""The states that have a band but no transitions yet."""

COUNTED: Final = frozenset({(Side.MAIN, event) for event in (Event.ABANDON, Event.LAPSE, Event.DEFER)})
"""The events that count as a failed delivery, each with its side."""

_MAIN, _DEAD, _TRANSFER = Side.MAIN, Side.DEAD, Side.TRANSFER_DEAD
_ALWAYS = Condition.OTHERWISE

_FAILED: Mapping[Condition, Place] = {Condition.LIMIT: Place(_DEAD, State.ACTIVE, Reason.DELIVERIES)}
_DROPPED: Mapping[Condition, Place] = {Condition.DUPLICATE: Place(_MAIN, State.DROPPED)}
_MOVED: Mapping[Condition, Place] = {_ALWAYS: Place(_MAIN, State.MOVED)}
_TRANSFER_BURIED = {Condition.HOME_TRANSFER: Place(_TRANSFER, State.ACTIVE, Reason.APPLICATION)}
_HOME: Mapping[Condition, Place] = {Condition.HOME_DEFERRED: Place(_MAIN, State.DEFERRED)}
_EXPIRY: Mapping[Condition, Place] = {
    Condition.EXPIRED_KEPT: Place(_DEAD, State.ACTIVE, Reason.EXPIRED),
    Condition.EXPIRED: Place(_MAIN, State.EXPIRED),
}
_DELAY: Mapping[Condition, Place] = {Condition.DELAY: Place(_MAIN, State.DELAYED)}
_BACK: Mapping[Condition, Place] = {_ALWAYS: Place(_MAIN, State.ACTIVE)}
_OUT: Mapping[Condition, Place] = {Condition.SESSION: Place(_MAIN, State.HELD), _ALWAYS: Place(_MAIN, State.LOCKED)}
_BURIED: Mapping[Condition, Place] = {_ALWAYS: Place(_DEAD, State.ACTIVE, Reason.APPLICATION)}

_DEAD_HOME: Mapping[Condition, Place] = {Condition.HOME_DEFERRED: Place(_DEAD, State.DEFERRED)}
_DEAD_DELAY: Mapping[Condition, Place] = {Condition.DELAY: Place(_DEAD, State.DELAYED)}
_DEAD_BACK: Mapping[Condition, Place] = {_ALWAYS: Place(_DEAD, State.ACTIVE)}

_Rows: TypeAlias = Mapping[tuple[Side, State, Event], Mapping[Condition, Place]]

# fmt: off
_ROWS: _Rows = {
    # -- the main side
    (_MAIN, State.NEW, Event.SEND): {**_DROPPED, **_BACK},
    (_MAIN, State.NEW, Event.SCHEDULE): {**_DROPPED, _ALWAYS: Place(_MAIN, State.SCHEDULED)},
    (_MAIN, State.NEW, Event.PUBLISH): {**_DROPPED, _ALWAYS: Place(_MAIN, State.PUBLISHED)},
    (_MAIN, State.NEW, Event.COPY): {
        Condition.FAULTY: Place(_DEAD, State.ACTIVE, Reason.FILTER),
        Condition.NO_SESSION: Place(_DEAD, State.ACTIVE, Reason.NO_SESSION),
        **_BACK,
    },
    (_MAIN, State.SCHEDULED, Event.ACTIVATE): _BACK,
    (_MAIN, State.SCHEDULED, Event.PUBLISH): {_ALWAYS: Place(_MAIN, State.PUBLISHED)},
    (_MAIN, State.SCHEDULED, Event.CANCEL): {_ALWAYS: Place(_MAIN, State.CANCELLED)},
    (_MAIN, State.ACTIVE, Event.RECEIVE): _OUT,
    (_MAIN, State.ACTIVE, Event.RECEIVE_AND_DELETE): {_ALWAYS: Place(_MAIN, State.COMPLETED)},
    (_MAIN, State.ACTIVE, Event.EXPIRE): _EXPIRY,
    (_MAIN, State.ACTIVE, Event.PURGE): {_ALWAYS: Place(_MAIN, State.PURGED)},
    (_MAIN, State.ACTIVE, Event.BURY): _BURIED,
    (_MAIN, State.LOCKED, Event.RENEW): {_ALWAYS: Place(_MAIN, State.LOCKED)},
    (_MAIN, State.LOCKED, Event.COMPLETE): {_ALWAYS: Place(_MAIN, State.COMPLETED)},
    (_MAIN, State.LOCKED, Event.ABANDON): {**_FAILED, **_HOME, **_EXPIRY, **_DELAY, **_BACK},
    (_MAIN, State.LOCKED, Event.RELEASE): {**_HOME, **_EXPIRY, **_DELAY, **_BACK},
    (_MAIN, State.LOCKED, Event.LAPSE): {**_FAILED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.LOCKED, Event.DEFER): {**_FAILED, _ALWAYS: Place(_MAIN, State.DEFERRED)},
    (_MAIN, State.LOCKED, Event.DEAD_LETTER): _BURIED,
    (_MAIN, State.HELD, Event.RENEW): {_ALWAYS: Place(_MAIN, State.HELD)},
    (_MAIN, State.HELD, Event.COMPLETE): {_ALWAYS: Place(_MAIN, State.COMPLETED)},
    (_MAIN, State.HELD, Event.ABANDON): {**_FAILED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.RELEASE): {**_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.LAPSE): {**_FAILED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.DEFER): {**_FAILED, _ALWAYS: Place(_MAIN, State.DEFERRED)},
    (_MAIN, State.HELD, Event.DEAD_LETTER): _BURIED,
    (_MAIN, State.HELD, Event.BURY): _BURIED,
    (_MAIN, State.DELAYED, Event.WAKE): {**_EXPIRY, **_BACK},
    (_MAIN, State.DELAYED, Event.PURGE): {_ALWAYS: Place(_MAIN, State.PURGED)},
    (_MAIN, State.DEFERRED, Event.RECEIVE_DEFERRED): {**_EXPIRY, **_OUT},
    (_MAIN, State.DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE): {**_EXPIRY, _ALWAYS: Place(_MAIN, State.COMPLETED)},
    (_MAIN, State.DEFERRED, Event.PURGE): {_ALWAYS: Place(_MAIN, State.PURGED)},
    (_MAIN, State.DEFERRED, Event.BURY): _BURIED,
    (_MAIN, State.NEW, Event.TRANSFER): {_ALWAYS: Place(_MAIN, State.TRANSFER)},
    (_MAIN, State.ACTIVE, Event.WITHDRAW): _MOVED,
    (_MAIN, State.ACTIVE, Event.FREEZE): {_ALWAYS: Place(_MAIN, State.FROZEN)},
    (_MAIN, State.TRANSFER, Event.WITHDRAW): _MOVED,
    (_MAIN, State.TRANSFER, Event.FREEZE): {_ALWAYS: Place(_MAIN, State.FROZEN)},
    (_MAIN, State.FROZEN, Event.TAKE): _MOVED,
    (_MAIN, State.FROZEN, Event.RETURN): {Condition.HOME_TRANSFER: Place(_MAIN, State.TRANSFER), **_EXPIRY, **_BACK},
    (_MAIN, State.FROZEN, Event.REFUSE): {**_TRANSFER_BURIED, **_BURIED},
    # -- the dead side: no limit, no expiry, and only a redrive leads back
    (_DEAD, State.ACTIVE, Event.RECEIVE): {_ALWAYS: Place(_DEAD, State.LOCKED)},
    (_DEAD, State.ACTIVE, Event.RECEIVE_AND_DELETE): {_ALWAYS: Place(_DEAD, State.COMPLETED)},
    (_DEAD, State.ACTIVE, Event.PURGE): {_ALWAYS: Place(_DEAD, State.PURGED)},
    (_DEAD, State.ACTIVE, Event.REDRIVE): _BACK,
    (_DEAD, State.ACTIVE, Event.WITHDRAW): {_ALWAYS: Place(_DEAD, State.MOVED)},
    (_DEAD, State.ACTIVE, Event.FREEZE): {_ALWAYS: Place(_DEAD, State.FROZEN)},
    (_DEAD, State.FROZEN, Event.TAKE): {_ALWAYS: Place(_DEAD, State.MOVED)},
    (_DEAD, State.FROZEN, Event.RETURN): _DEAD_BACK,
    (_DEAD, State.FROZEN, Event.REFUSE): {_ALWAYS: Place(_DEAD, State.KEPT)},
    (_DEAD, State.LOCKED, Event.RENEW): {_ALWAYS: Place(_DEAD, State.LOCKED)},
    (_DEAD, State.LOCKED, Event.COMPLETE): {_ALWAYS: Place(_DEAD, State.COMPLETED)},
    (_DEAD, State.LOCKED, Event.ABANDON): {**_DEAD_HOME, **_DEAD_DELAY, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.RELEASE): {**_DEAD_HOME, **_DEAD_DELAY, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.LAPSE): {**_DEAD_HOME, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.DEFER): {_ALWAYS: Place(_DEAD, State.DEFERRED)},
    (_DEAD, State.DELAYED, Event.WAKE): _DEAD_BACK,
    (_DEAD, State.DELAYED, Event.PURGE): {_ALWAYS: Place(_DEAD, State.PURGED)},
    (_DEAD, State.DELAYED, Event.REDRIVE): _BACK,
    (_DEAD, State.DEFERRED, Event.RECEIVE_DEFERRED): {_ALWAYS: Place(_DEAD, State.LOCKED)},
    (_DEAD, State.DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE): {_ALWAYS: Place(_DEAD, State.COMPLETED)},
    (_DEAD, State.DEFERRED, Event.PURGE): {_ALWAYS: Place(_DEAD, State.PURGED)},
    (_DEAD, State.DEFERRED, Event.REDRIVE): _BACK,
}

# A receive by number in the wide mode is like a receive. A delayed message has no session.
_WIDE = {Event.RECEIVE: Event.RECEIVE_DEFERRED, Event.RECEIVE_AND_DELETE: Event.RECEIVE_DEFERRED_AND_DELETE}
_BY_NUMBER: _Rows = {
    (of[0], state, _WIDE[of[2]]): row if state is State.ACTIVE else {_ALWAYS: row[_ALWAYS]}
    for of, row in _ROWS.items() for state in (State.ACTIVE, State.DELAYED) if of[2] in _WIDE
}
_USUAL: _Rows = {**_ROWS, **_BY_NUMBER}
_KEPT: _Rows = {(_DEAD, State.KEPT, of[2]): row for of, row in _USUAL.items() if of[:2] == (_DEAD, State.ACTIVE)}
# On the transfer dead side, each event has the effect that it has on the dead side. After a redrive, transfers wait.
_OF_TRANSFERS: _Rows = {
    (_TRANSFER, of[1], of[2]): {
        why: Place(_TRANSFER, State.ACTIVE if to.state is State.KEPT else to.state) for why, to in row.items()
    }
    if of[2] is not Event.REDRIVE else {_ALWAYS: Place(_MAIN, State.TRANSFER)}
    for of, row in _USUAL.items() if of[0] is _DEAD
}
# fmt: on
TRANSITIONS: Final[_Rows] = MappingProxyType({**_USUAL, **_KEPT, **_OF_TRANSFERS})
"""All events that can happen, with an outcome for each condition. The first condition that holds decides."""


def decide(side: Side, state: State, event: Event, holding: Collection[Condition]) -> tuple[Condition, Place]:
    """Return the deciding condition and the outcome, given the conditions that hold now.

    Conditions that the row does not list have no effect. Raises :class:`ImpossibleError` if there is no row, or if none
    of its conditions holds.
    """
    for condition, outcome in TRANSITIONS.get((side, state, event), {}).items():
        if condition is Condition.OTHERWISE or condition in holding:
            return condition, outcome
    raise ImpossibleError(f"{event.value}: impossible for a message that is {state.value} on the {side.name} side")


BANDS: Final[Mapping[tuple[Side, State], range]] = MappingProxyType(
    {
        (_MAIN, State.ACTIVE): range(LEVELS),
        (_MAIN, State.HELD): range(8, 9),
        (_MAIN, State.LOCKED): range(9, 10),
        (_MAIN, State.DELAYED): range(10, 11),
        (_MAIN, State.DEFERRED): range(11, 12),
        (_MAIN, State.FROZEN): range(12, 13),
        (_MAIN, State.SCHEDULED): range(13, 14),
        (_MAIN, State.TRANSFER): range(14, 15),
        (_DEAD, State.ACTIVE): range(16, 17),
        (_DEAD, State.KEPT): range(17, 18),
        (_DEAD, State.LOCKED): range(18, 19),
        (_DEAD, State.DELAYED): range(19, 20),
        (_DEAD, State.DEFERRED): range(20, 21),
        (_DEAD, State.FROZEN): range(21, 22),
        (_TRANSFER, State.ACTIVE): range(22, 23),
        (_TRANSFER, State.HELD): range(23, 24),
        (_TRANSFER, State.LOCKED): range(24, 25),
        (_TRANSFER, State.DELAYED): range(25, 26),
        (_TRANSFER, State.DEFERRED): range(26, 27),
        (_TRANSFER, State.FROZEN): range(27, 28),
    }
)
"""The bands of each state: one band, except that active messages of the main side have one for each level."""

SESSION_BANDS: Final[Mapping[str, int]] = MappingProxyType(
    {"free": 0, "locked": 1, "waiting": 2, "blocked": 3, "stated": 4}
)
"""The bands of sessions in the key ``turns``.

A session is ``free`` to be accepted, ``locked``, ``waiting`` (locked by a receiver that waits for the next message), or
``blocked`` until a time. Free sessions are ordered by the time when they became free. The band ``stated`` orders
sessions by the time when their state was set.
"""

WAITING_ROOMS: Final[Mapping[str, int]] = MappingProxyType(
    {Side.MAIN.value: 0, Side.DEAD.value: 1, "h": 2, "s": 3, Side.TRANSFER_DEAD.value: 4}
)
"""The bands of waiting receivers. They wait for a message of a side, for a message of the session that they have
locked (``h``), or for a session (``s``)."""

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
