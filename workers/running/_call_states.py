"""The life of a call of a handler, as one table. Pure.

Theory
------

A call belongs to two parties. The *handler* works on its messages. The *worker* keeps their locks, settles them by the
outcome of the handler, and ends the call if it must. Both act at any time, so each acts only through this table: an
event happens to the call, and the table answers with the next state and with one *task* for the worker. The state says
who decides about the messages now::

    OPEN          the handler: its outcome counts
    DECIDED       the worker: the handler has ended, and its outcome is carried out
    SETTLED       nobody any more: the handler has settled the messages, or is about to
    LATE          another worker: the lock was lost, and the outcome is dropped
    CUT_OFF       the worker ends and has cancelled the handler: the outcome counts only if it completes everything
    UNQUEUED     the worker ends, and the plain function was still waiting for a thread: it never begins
    GIVEN_BACK    the worker ends, and gives the messages back without counting a delivery
    LEFT          the worker has ended, and the handler runs on: the messages are free when their lock ends

These are the ways between them::

    OPEN          end ► DECIDED, if there is an outcome    settle ► SETTLED    lose ► LATE    cut off ► CUT_OFF
                  unqueue ► UNQUEUED    leave ► LEFT    break ► DECIDED    stop ► GIVEN_BACK or LEFT
    CUT_OFF       end ► DECIDED, if it completes everything    settle, lose, unqueue, leave, stop: as OPEN
    LATE          settle ► SETTLED_LATE    leave ► LEFT    (end: the outcome is dropped)
    UNQUEUED     stop ► GIVEN_BACK    settle ► SETTLED_CUT_OFF
    LEFT          settle ► SETTLED_LEFT    (end: the outcome is dropped)
    DECIDED       lose ► DECIDED_LATE
    SETTLED       refuse ► OPEN    lose, cut off, leave ► SETTLED_LATE, SETTLED_CUT_OFF, SETTLED_LEFT
    SETTLED_...   refuse ► LATE, CUT_OFF, LEFT

An event that has no row changes nothing. A row lists *conditions*, and the first one that holds decides. Four
consequences are easy to miss:

- A thread cannot be cancelled. So while a plain function runs, the end of the worker does not cut it off, and the loss
  of its lock changes only what its context says. A message whose function still runs is never given back: another
  worker would handle it at the same time.
- A handler that settles its messages is SETTLED from the first moment, and not only when the broker has answered. So
  nobody settles them a second time. If the broker refuses, and the messages can be settled in another way, the state
  before comes back.
- The end of a handler without an outcome leaves the call OPEN: something that the handler has started may still settle
  the messages.
- What is DECIDED is carried out, also at the end of the worker. Only the loss of the lock cancels it.

A batch has a lock for each message, unless its messages are those of a session. The loss of one of these locks is no
event here: the batch goes on, and the loss shows when that message is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from sbredis._quick_enum import QuickEnum

__all__ = ["TRANSITIONS", "CallCondition", "CallEvent", "CallState", "CallStep", "CallTask", "decide"]


class CallState(QuickEnum):
    """The state of a call."""

    OPEN = "open"
    DECIDED = "decided"
    DECIDED_LATE = "decided, then its lock was lost"
    SETTLED = "settled by its handler"
    SETTLED_LATE = "settled by its handler, and its lock was lost"
    SETTLED_CUT_OFF = "settled by its handler, and cut off"
    SETTLED_LEFT = "settled by its handler, and left"
    LATE = "late"
    CUT_OFF = "cut off"
    UNQUEUED = "unqueued"
    GIVEN_BACK = "given back"
    LEFT = "left"

    # These are looked up several times for each message, so they are values and not properties.

    is_settled: bool
    """Whether the handler has settled the messages itself, or is about to."""
    has_lost_lock: bool
    """Whether the lock of all messages was lost, or is given up."""
    is_free: bool
    """Whether the worker has not interfered. Only then is a cancellation the handler's own."""
    is_dropped: bool
    """Whether the outcome does not count, whatever it is."""
    is_left: bool
    """Whether the worker has ended without waiting for the handler."""


class CallEvent(QuickEnum):
    """An event in the life of a call."""

    SETTLE = "settle"  # the handler begins to settle its messages
    REFUSE = "refuse"  # that was refused, and the messages can be settled in another way
    END = "end"  # the handler has ended
    LOSE = "lose"  # the lock of all messages was lost
    UNQUEUE = "unqueue"  # the worker ends, and has taken a plain function out of the queue for threads
    CUT_OFF = "cut off"  # the worker ends, and the time of its handlers is over
    LEAVE = "leave"  # the handler goes on although it was cancelled
    STOP = "stop"  # the worker ends, and the work on the call is over
    BREAK = "break"  # an error has ended the work on a session, and the worker goes on


class CallCondition(QuickEnum):
    """A condition that decides between the steps of a row."""

    IN_THREAD = "a plain function runs in its thread now"
    PLAIN = "the handler is a plain function that does not wait for a thread"
    COMPLETES = "the outcome of every message is that it is complete"
    OUTCOME = "at least one message has an outcome"
    OTHERWISE = "none of the conditions before it"


class CallTask(Enum):
    """The task of the worker after an event."""

    NOTHING = "nothing"
    CANCEL = "cancel the handler"
    SETTLE = "settle the messages by their outcomes"
    DROP = "say that the outcome is dropped"
    GIVE_BACK = "give the messages back, as interrupted"
    GIVE_BACK_UNTRIED = "give the messages back, which no handler has begun"
    ABANDON = "abandon the messages"
    LEAVE = "say that the handler is left"


class CallStep(NamedTuple):
    """The state of a call after an event, and the task of the worker."""

    state: CallState
    task: CallTask = CallTask.NOTHING


_S, _E, _C, _T = CallState, CallEvent, CallCondition, CallTask
_ALWAYS: Final = CallCondition.OTHERWISE
_SETTLED: Final = frozenset({_S.SETTLED, _S.SETTLED_LATE, _S.SETTLED_CUT_OFF, _S.SETTLED_LEFT})
_LEFT: Final = frozenset({_S.LEFT, _S.SETTLED_LEFT})
_LOST: Final = _LEFT | {_S.LATE, _S.SETTLED_LATE, _S.DECIDED_LATE}
_DROPPED: Final = _LOST | {_S.UNQUEUED, _S.GIVEN_BACK}
_FREE: Final = frozenset({_S.OPEN, _S.DECIDED, _S.SETTLED})
for _state in CallState:
    _state.is_settled = _state in _SETTLED
    _state.has_lost_lock = _state in _LOST
    _state.is_free = _state in _FREE
    _state.is_dropped = _state in _DROPPED
    _state.is_left = _state in _LEFT

_Row = Mapping[CallCondition, CallStep]


def _to(state: CallState, task: CallTask = CallTask.NOTHING) -> _Row:
    return {_ALWAYS: CallStep(state, task)}


def _unless(condition: CallCondition, here: CallState, state: CallState, task: CallTask) -> _Row:
    return {condition: CallStep(here), _ALWAYS: CallStep(state, task)}


_END_OF_WORK: Final[_Row] = {
    _C.IN_THREAD: CallStep(_S.LEFT, _T.LEAVE),
    _ALWAYS: CallStep(_S.GIVEN_BACK, _T.GIVE_BACK),
}

# fmt: off
TRANSITIONS: Final[Mapping[tuple[CallState, CallEvent], _Row]] = MappingProxyType({
    # -- the handler settles
    (_S.OPEN, _E.SETTLE): _to(_S.SETTLED),
    (_S.LATE, _E.SETTLE): _to(_S.SETTLED_LATE),
    (_S.CUT_OFF, _E.SETTLE): _to(_S.SETTLED_CUT_OFF),
    (_S.UNQUEUED, _E.SETTLE): _to(_S.SETTLED_CUT_OFF),
    (_S.LEFT, _E.SETTLE): _to(_S.SETTLED_LEFT),
    (_S.SETTLED, _E.REFUSE): _to(_S.OPEN),
    (_S.SETTLED_LATE, _E.REFUSE): _to(_S.LATE),
    (_S.SETTLED_CUT_OFF, _E.REFUSE): _to(_S.CUT_OFF),
    (_S.SETTLED_LEFT, _E.REFUSE): _to(_S.LEFT),
    # -- the handler ends
    (_S.OPEN, _E.END): {_C.OUTCOME: CallStep(_S.DECIDED, _T.SETTLE), _ALWAYS: CallStep(_S.OPEN)},
    (_S.CUT_OFF, _E.END): {_C.COMPLETES: CallStep(_S.DECIDED, _T.SETTLE), _ALWAYS: CallStep(_S.CUT_OFF)},
    (_S.LATE, _E.END): _to(_S.LATE, _T.DROP),
    (_S.LEFT, _E.END): _to(_S.LEFT, _T.DROP),
    (_S.SETTLED_LATE, _E.END): _to(_S.SETTLED_LATE, _T.DROP),
    (_S.SETTLED_LEFT, _E.END): _to(_S.SETTLED_LEFT, _T.DROP),
    # -- the lock is lost
    (_S.OPEN, _E.LOSE): _unless(_C.PLAIN, _S.LATE, _S.LATE, _T.CANCEL),
    (_S.CUT_OFF, _E.LOSE): _unless(_C.PLAIN, _S.LATE, _S.LATE, _T.CANCEL),
    (_S.LATE, _E.LOSE): _unless(_C.PLAIN, _S.LATE, _S.LATE, _T.CANCEL),
    (_S.DECIDED, _E.LOSE): _to(_S.DECIDED_LATE, _T.CANCEL),
    (_S.SETTLED, _E.LOSE): _unless(_C.PLAIN, _S.SETTLED_LATE, _S.SETTLED_LATE, _T.CANCEL),
    (_S.SETTLED_CUT_OFF, _E.LOSE): _to(_S.SETTLED_LATE, _T.CANCEL),
    (_S.SETTLED_LATE, _E.LOSE): _unless(_C.PLAIN, _S.SETTLED_LATE, _S.SETTLED_LATE, _T.CANCEL),
    # -- the worker ends
    (_S.OPEN, _E.UNQUEUE): _to(_S.UNQUEUED),
    (_S.CUT_OFF, _E.UNQUEUE): _to(_S.UNQUEUED),
    (_S.SETTLED, _E.UNQUEUE): _to(_S.SETTLED_CUT_OFF),
    (_S.OPEN, _E.CUT_OFF): _unless(_C.IN_THREAD, _S.OPEN, _S.CUT_OFF, _T.CANCEL),
    (_S.LATE, _E.CUT_OFF): _unless(_C.IN_THREAD, _S.LATE, _S.LATE, _T.CANCEL),
    (_S.UNQUEUED, _E.CUT_OFF): _to(_S.UNQUEUED, _T.CANCEL),
    (_S.SETTLED, _E.CUT_OFF): _unless(_C.IN_THREAD, _S.SETTLED, _S.SETTLED_CUT_OFF, _T.CANCEL),
    (_S.SETTLED_LATE, _E.CUT_OFF): _unless(_C.IN_THREAD, _S.SETTLED_LATE, _S.SETTLED_LATE, _T.CANCEL),
    (_S.OPEN, _E.LEAVE): _to(_S.LEFT, _T.LEAVE),
    (_S.LATE, _E.LEAVE): _to(_S.LEFT, _T.LEAVE),
    (_S.CUT_OFF, _E.LEAVE): _to(_S.LEFT, _T.LEAVE),
    (_S.SETTLED, _E.LEAVE): _to(_S.SETTLED_LEFT, _T.LEAVE),
    (_S.SETTLED_LATE, _E.LEAVE): _to(_S.SETTLED_LEFT, _T.LEAVE),
    (_S.SETTLED_CUT_OFF, _E.LEAVE): _to(_S.SETTLED_LEFT, _T.LEAVE),
    (_S.OPEN, _E.STOP): _END_OF_WORK,
    (_S.CUT_OFF, _E.STOP): _END_OF_WORK,
    (_S.UNQUEUED, _E.STOP): _to(_S.GIVEN_BACK, _T.GIVE_BACK_UNTRIED),
    (_S.OPEN, _E.BREAK): _to(_S.DECIDED, _T.ABANDON),
})
# fmt: on
"""The steps after each event in each state. An event without a row changes nothing."""


@cache  # several times for each message, and there are few cases
def decide(state: CallState, event: CallEvent, holding: tuple[CallCondition, ...] = ()) -> CallStep:
    """Return the next state and the task of the worker, given the conditions that hold now."""
    row = TRANSITIONS.get((state, event))
    if row is not None:
        for condition, step in row.items():
            if condition is _ALWAYS or condition in holding:
                return step
    return CallStep(state)
