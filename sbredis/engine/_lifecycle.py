"""The life of a message, as one table.

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
               and freeze and withdraw lead from ACTIVE, DELAYED, DEFERRED and TRANSFER to FROZEN and MOVED
               and commit leads from ACTIVE to COMPLETED, in a reserved partition
               and lose leads from SCHEDULED, ACTIVE, DELAYED, DEFERRED and HELD to the dead side
    FROZEN     take ► MOVED    return ► back, or as ACTIVE    refuse ► dead sides, back, or KEPT, which is as ACTIVE

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

If the record of a message is missing or damaged, the message becomes a dead letter when a call needs the record. A call
that does not need it works as always. So a locked message can still be settled, and a lock that ends frees it. A dead
letter stays where it is, and is shown without content.

While a partition is reserved, its ready messages up to a number are *pinned*: no event but commit happens to them.

A message of a session is received under the lock of the session: it is *held* instead of locked. Held messages are
released when the lock of the session lapses. They are also released when the receiver releases the session; these
deliveries do not count as failed. If a message of a session is abandoned with a delay, the delay blocks the session.
The message returns to its place immediately, because later messages of the session must not overtake it. On the dead
side there are no sessions.

A topic does not store a message for itself, unless the message is scheduled. It *publishes* the message: its
subscriptions have copies, and each copy has a life of its own. A copy may begin as a dead letter, because a rule
failed, or because the subscription requires sessions and the message has none.

:mod:`sbredis.engine._bands` says where the messages of each state are in a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "COUNTED",
    "ENDS",
    "NEVER",
    "TRANSITIONS",
    "Condition",
    "Event",
    "ImpossibleError",
    "Reason",
    "Side",
    "SidePrefix",
    "Stage",
    "State",
    "decide",
]

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
    COMMIT = "commit"  # the reader of a reserved partition has committed the range of the message
    PURGE = "purge"
    BURY = "bury"  # all messages of a session move to the dead side
    REDRIVE = "redrive"  # a dead letter returns to the main side; there, a transfer waits again
    TRANSFER = "transfer"  # a message for an entity in another slot is stored, to be moved there
    WITHDRAW = "withdraw"  # it moves to another entity in the same slot
    FREEZE = "freeze"  # it becomes part of a batch
    TAKE = "take"  # its batch is at the destination
    RETURN = "return"  # its batch is not at the destination, and will not be
    REFUSE = "refuse"  # its destination refused it for good
    LOSE = "lose"  # a call needs the record of the message and cannot read it
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
    CHOSEN = "it is a transfer, or a client has chosen it, so its batch has a purpose"
    SESSION = "it belongs to a session"
    LIMIT = "its failures, this one included, have reached the delivery limit"
    HOME_DEFERRED = "it was deferred when it was locked"
    EXPIRED_KEPT = "it has expired, and the entity dead-letters expired messages"
    EXPIRED = "it has expired"
    DELAY = "the caller asked for a delay"
    OTHERWISE = "none of the conditions before it"


class Reason(Enum):
    """The reason why a message is on the dead side; the value is the letter in its entry, but for LAPSES."""

    NONE = "-"
    APPLICATION = "A"
    EXPIRED = "T"  # TTLExpiredException
    DELIVERIES = "M"  # MaxDeliveryCountExceeded
    LAPSES = "1"  # the same, and its last delivery ended with the end of the lock: 1 to >, how many of the last ones
    FILTER = "F"  # a rule of the subscription failed
    NO_SESSION = "S"  # Session ID is null.
    LOST = "R"  # RecordMissing


class Stage(NamedTuple):
    """The stage of a message's life after an event: its side, its state, and why it is on the dead side, if it is."""

    side: Side
    state: State
    reason: Reason = Reason.NONE


class ImpossibleError(LookupError):
    """The table has no such transition."""


ENDS: Final = frozenset(
    {State.PUBLISHED, State.COMPLETED, State.CANCELLED, State.EXPIRED, State.PURGED, State.MOVED, State.DROPPED}
)
"""The states in which a message is gone."""

COUNTED: Final = frozenset({(Side.MAIN, event) for event in (Event.ABANDON, Event.LAPSE, Event.DEFER)})
"""The events that count as a failed delivery, each with its side."""

_MAIN, _DEAD, _TRANSFER = Side.MAIN, Side.DEAD, Side.TRANSFER_DEAD
_ALWAYS = Condition.OTHERWISE

_FAILED: Mapping[Condition, Stage] = {Condition.LIMIT: Stage(_DEAD, State.ACTIVE, Reason.DELIVERIES)}
_LAPSED: Mapping[Condition, Stage] = {Condition.LIMIT: Stage(_DEAD, State.ACTIVE, Reason.LAPSES)}
_DROPPED: Mapping[Condition, Stage] = {Condition.DUPLICATE: Stage(_MAIN, State.DROPPED)}
_MOVED: Mapping[Condition, Stage] = {_ALWAYS: Stage(_MAIN, State.MOVED)}
_TRANSFER_BURIED = {Condition.CHOSEN: Stage(_TRANSFER, State.ACTIVE, Reason.APPLICATION)}
_HOME: Mapping[Condition, Stage] = {Condition.HOME_DEFERRED: Stage(_MAIN, State.DEFERRED)}
_EXPIRY: Mapping[Condition, Stage] = {
    Condition.EXPIRED_KEPT: Stage(_DEAD, State.ACTIVE, Reason.EXPIRED),
    Condition.EXPIRED: Stage(_MAIN, State.EXPIRED),
}
_DELAY: Mapping[Condition, Stage] = {Condition.DELAY: Stage(_MAIN, State.DELAYED)}
_BACK: Mapping[Condition, Stage] = {_ALWAYS: Stage(_MAIN, State.ACTIVE)}
_OUT: Mapping[Condition, Stage] = {Condition.SESSION: Stage(_MAIN, State.HELD), _ALWAYS: Stage(_MAIN, State.LOCKED)}
_LOST: Mapping[Condition, Stage] = {_ALWAYS: Stage(_DEAD, State.ACTIVE, Reason.LOST)}
_BURIED: Mapping[Condition, Stage] = {_ALWAYS: Stage(_DEAD, State.ACTIVE, Reason.APPLICATION)}

_DEAD_HOME: Mapping[Condition, Stage] = {Condition.HOME_DEFERRED: Stage(_DEAD, State.DEFERRED)}
_DEAD_DELAY: Mapping[Condition, Stage] = {Condition.DELAY: Stage(_DEAD, State.DELAYED)}
_DEAD_BACK: Mapping[Condition, Stage] = {_ALWAYS: Stage(_DEAD, State.ACTIVE)}

_Rows: TypeAlias = Mapping[tuple[Side, State, Event], Mapping[Condition, Stage]]

# fmt: off
_ROWS: _Rows = {
    # -- the main side
    (_MAIN, State.NEW, Event.SEND): {**_DROPPED, **_BACK},
    (_MAIN, State.NEW, Event.SCHEDULE): {**_DROPPED, _ALWAYS: Stage(_MAIN, State.SCHEDULED)},
    (_MAIN, State.NEW, Event.PUBLISH): {**_DROPPED, _ALWAYS: Stage(_MAIN, State.PUBLISHED)},
    (_MAIN, State.NEW, Event.COPY): {
        Condition.FAULTY: Stage(_DEAD, State.ACTIVE, Reason.FILTER),
        Condition.NO_SESSION: Stage(_DEAD, State.ACTIVE, Reason.NO_SESSION),
        **_BACK,
    },
    (_MAIN, State.SCHEDULED, Event.ACTIVATE): _BACK,
    (_MAIN, State.SCHEDULED, Event.PUBLISH): {_ALWAYS: Stage(_MAIN, State.PUBLISHED)},
    (_MAIN, State.SCHEDULED, Event.CANCEL): {_ALWAYS: Stage(_MAIN, State.CANCELLED)},
    (_MAIN, State.ACTIVE, Event.RECEIVE): _OUT,
    (_MAIN, State.ACTIVE, Event.RECEIVE_AND_DELETE): {_ALWAYS: Stage(_MAIN, State.COMPLETED)},
    (_MAIN, State.ACTIVE, Event.EXPIRE): _EXPIRY,
    (_MAIN, State.ACTIVE, Event.COMMIT): {_ALWAYS: Stage(_MAIN, State.COMPLETED)},
    (_MAIN, State.ACTIVE, Event.PURGE): {_ALWAYS: Stage(_MAIN, State.PURGED)},
    (_MAIN, State.ACTIVE, Event.BURY): _BURIED,
    (_MAIN, State.LOCKED, Event.RENEW): {_ALWAYS: Stage(_MAIN, State.LOCKED)},
    (_MAIN, State.LOCKED, Event.COMPLETE): {_ALWAYS: Stage(_MAIN, State.COMPLETED)},
    (_MAIN, State.LOCKED, Event.ABANDON): {**_FAILED, **_HOME, **_EXPIRY, **_DELAY, **_BACK},
    (_MAIN, State.LOCKED, Event.RELEASE): {**_HOME, **_EXPIRY, **_DELAY, **_BACK},
    (_MAIN, State.LOCKED, Event.LAPSE): {**_LAPSED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.LOCKED, Event.DEFER): {**_FAILED, _ALWAYS: Stage(_MAIN, State.DEFERRED)},
    (_MAIN, State.LOCKED, Event.DEAD_LETTER): _BURIED,
    (_MAIN, State.HELD, Event.RENEW): {_ALWAYS: Stage(_MAIN, State.HELD)},
    (_MAIN, State.HELD, Event.COMPLETE): {_ALWAYS: Stage(_MAIN, State.COMPLETED)},
    (_MAIN, State.HELD, Event.ABANDON): {**_FAILED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.RELEASE): {**_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.LAPSE): {**_LAPSED, **_HOME, **_EXPIRY, **_BACK},
    (_MAIN, State.HELD, Event.DEFER): {**_FAILED, _ALWAYS: Stage(_MAIN, State.DEFERRED)},
    (_MAIN, State.HELD, Event.DEAD_LETTER): _BURIED,
    (_MAIN, State.HELD, Event.BURY): _BURIED,
    (_MAIN, State.DELAYED, Event.WAKE): {**_EXPIRY, **_BACK},
    (_MAIN, State.DELAYED, Event.PURGE): {_ALWAYS: Stage(_MAIN, State.PURGED)},
    (_MAIN, State.DEFERRED, Event.RECEIVE_DEFERRED): {**_EXPIRY, **_OUT},
    (_MAIN, State.DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE): {**_EXPIRY, _ALWAYS: Stage(_MAIN, State.COMPLETED)},
    (_MAIN, State.DEFERRED, Event.PURGE): {_ALWAYS: Stage(_MAIN, State.PURGED)},
    (_MAIN, State.DEFERRED, Event.BURY): _BURIED,
    (_MAIN, State.SCHEDULED, Event.LOSE): _LOST,
    (_MAIN, State.ACTIVE, Event.LOSE): _LOST,
    (_MAIN, State.DELAYED, Event.LOSE): _LOST,
    (_MAIN, State.DEFERRED, Event.LOSE): _LOST,
    (_MAIN, State.HELD, Event.LOSE): _LOST,
    (_MAIN, State.NEW, Event.TRANSFER): {_ALWAYS: Stage(_MAIN, State.TRANSFER)},
    (_MAIN, State.ACTIVE, Event.WITHDRAW): _MOVED,
    (_MAIN, State.ACTIVE, Event.FREEZE): {_ALWAYS: Stage(_MAIN, State.FROZEN)},
    (_MAIN, State.DELAYED, Event.WITHDRAW): _MOVED,
    (_MAIN, State.DELAYED, Event.FREEZE): {_ALWAYS: Stage(_MAIN, State.FROZEN)},
    (_MAIN, State.DEFERRED, Event.WITHDRAW): _MOVED,
    (_MAIN, State.DEFERRED, Event.FREEZE): {_ALWAYS: Stage(_MAIN, State.FROZEN)},
    (_MAIN, State.TRANSFER, Event.WITHDRAW): _MOVED,
    (_MAIN, State.TRANSFER, Event.FREEZE): {_ALWAYS: Stage(_MAIN, State.FROZEN)},
    (_MAIN, State.FROZEN, Event.TAKE): _MOVED,
    (_MAIN, State.FROZEN, Event.RETURN): {
        Condition.HOME_TRANSFER: Stage(_MAIN, State.TRANSFER),
        **_HOME,
        **_EXPIRY,
        **_BACK,
    },
    (_MAIN, State.FROZEN, Event.REFUSE): {**_TRANSFER_BURIED, **_BURIED},
    # -- the dead side: no limit, no expiry, and only a redrive leads back
    (_DEAD, State.ACTIVE, Event.RECEIVE): {_ALWAYS: Stage(_DEAD, State.LOCKED)},
    (_DEAD, State.ACTIVE, Event.RECEIVE_AND_DELETE): {_ALWAYS: Stage(_DEAD, State.COMPLETED)},
    (_DEAD, State.ACTIVE, Event.PURGE): {_ALWAYS: Stage(_DEAD, State.PURGED)},
    (_DEAD, State.ACTIVE, Event.REDRIVE): _BACK,
    (_DEAD, State.ACTIVE, Event.WITHDRAW): {_ALWAYS: Stage(_DEAD, State.MOVED)},
    (_DEAD, State.ACTIVE, Event.FREEZE): {_ALWAYS: Stage(_DEAD, State.FROZEN)},
    (_DEAD, State.FROZEN, Event.TAKE): {_ALWAYS: Stage(_DEAD, State.MOVED)},
    (_DEAD, State.FROZEN, Event.RETURN): {**_DEAD_HOME, **_DEAD_BACK},
    (_DEAD, State.FROZEN, Event.REFUSE): {**_DEAD_HOME, _ALWAYS: Stage(_DEAD, State.KEPT)},
    (_DEAD, State.LOCKED, Event.RENEW): {_ALWAYS: Stage(_DEAD, State.LOCKED)},
    (_DEAD, State.LOCKED, Event.COMPLETE): {_ALWAYS: Stage(_DEAD, State.COMPLETED)},
    (_DEAD, State.LOCKED, Event.ABANDON): {**_DEAD_HOME, **_DEAD_DELAY, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.RELEASE): {**_DEAD_HOME, **_DEAD_DELAY, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.LAPSE): {**_DEAD_HOME, **_DEAD_BACK},
    (_DEAD, State.LOCKED, Event.DEFER): {_ALWAYS: Stage(_DEAD, State.DEFERRED)},
    (_DEAD, State.DELAYED, Event.WAKE): _DEAD_BACK,
    (_DEAD, State.DELAYED, Event.PURGE): {_ALWAYS: Stage(_DEAD, State.PURGED)},
    (_DEAD, State.DELAYED, Event.REDRIVE): _BACK,
    (_DEAD, State.DELAYED, Event.WITHDRAW): {_ALWAYS: Stage(_DEAD, State.MOVED)},
    (_DEAD, State.DELAYED, Event.FREEZE): {_ALWAYS: Stage(_DEAD, State.FROZEN)},
    (_DEAD, State.DEFERRED, Event.RECEIVE_DEFERRED): {_ALWAYS: Stage(_DEAD, State.LOCKED)},
    (_DEAD, State.DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE): {_ALWAYS: Stage(_DEAD, State.COMPLETED)},
    (_DEAD, State.DEFERRED, Event.PURGE): {_ALWAYS: Stage(_DEAD, State.PURGED)},
    (_DEAD, State.DEFERRED, Event.REDRIVE): _BACK,
    (_DEAD, State.DEFERRED, Event.WITHDRAW): {_ALWAYS: Stage(_DEAD, State.MOVED)},
    (_DEAD, State.DEFERRED, Event.FREEZE): {_ALWAYS: Stage(_DEAD, State.FROZEN)},
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
        why: Stage(_TRANSFER, State.ACTIVE if to.state is State.KEPT else to.state) for why, to in row.items()
    }
    if of[2] is not Event.REDRIVE else {_ALWAYS: Stage(_MAIN, State.TRANSFER)}
    for of, row in _USUAL.items() if of[0] is _DEAD
}
# fmt: on
TRANSITIONS: Final[_Rows] = MappingProxyType({**_USUAL, **_KEPT, **_OF_TRANSFERS})
"""All events that can happen, with an outcome for each condition. The first condition that holds decides."""


def decide(side: Side, state: State, event: Event, holding: Collection[Condition]) -> tuple[Condition, Stage]:
    """Return the deciding condition and the outcome, given the conditions that hold now.

    Conditions that the row does not list have no effect. Raises :class:`ImpossibleError` if there is no row, or if none
    of its conditions holds.
    """
    for condition, outcome in TRANSITIONS.get((side, state, event), {}).items():
        if condition is Condition.OTHERWISE or condition in holding:
            return condition, outcome
    raise ImpossibleError(f"{event.value}: impossible for a message that is {state.value} on the {side.name} side")
