"""Decide which of its slots a consumer of sessions may use, as one table. Pure.

Theory
------

A consumer has a number of slots, and each session that it holds takes one. The state of a slot says what becomes of its
session::

    ACCEPTED   its work has not begun
    OPENING    it waits for room for its dependencies, and has begun no message
    WORKING    its messages are handled, or the next ones are fetched
    IDLE       it has no messages, and waits for some
    LEAVING    a call is under way that releases it, unless it has messages, because other sessions wait
    WAITING    its next message is a suspect: it waits for its turn, and holds no message
    CHOSEN     it has its turn
    CUT_OFF    the worker ends, and has cancelled its handler
    REPLACED   it is given back, and another session may have its slot
    ENDING     it is given back, and keeps its slot until then
    LEFT       the worker ends without waiting for it

An event that has no row changes nothing. Two consequences are easy to miss:

- A slot is free as soon as its session is LEAVING or REPLACED. So the next session may be accepted before this one is
  given back. If its dependencies must be cleaned up, the slot is kept until they are.
- A session that has its turn is never IDLE or LEAVING: no other session may take its slot.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import auto
from typing import Final, Generic, TypeVar

from sbredis._quick_enum import QuickEnum

__all__ = ["SLOT_STATES", "SessionSlots", "SlotEvent", "SlotState"]

T = TypeVar("T")


class SlotState(QuickEnum):
    """The state of a slot, and of the session in it."""

    ACCEPTED = auto()
    OPENING = auto()
    WORKING = auto()
    IDLE = auto()
    LEAVING = auto()
    WAITING = auto()
    CHOSEN = auto()
    CUT_OFF = auto()
    REPLACED = auto()
    ENDING = auto()
    LEFT = auto()

    @property
    def ends(self) -> bool:
        """Whether the session is given back, or left."""
        return self in _ENDS


class SlotEvent(QuickEnum):
    """What happens to the session in a slot."""

    OPEN = auto()
    """Its work begins: it needs room for its dependencies."""
    BEGIN = auto()
    """It has room for its dependencies."""
    EMPTY = auto()
    """It has no messages."""
    FILLED = auto()
    """It has messages again, or has waited long enough."""
    LEAVE = auto()
    """A call begins that may release it."""
    STAY = auto()
    """The call has not released it."""
    SUSPECT = auto()
    """Its next message is a suspect."""
    CHOOSE = auto()
    """It gets its turn."""
    TURN_OVER = auto()
    """Its turn is over, and others may go on."""
    CUT_OFF = auto()
    """The worker ends, and cancels its handler."""
    REPLACE = auto()
    """Another session takes the slot, or suspects are taken."""
    END = auto()
    """It is about to be given back."""
    CLEAN_UP = auto()
    """It was given back, and its dependencies must be cleaned up."""
    ABANDON = auto()
    """The worker ends, and its work goes on although it was cancelled."""


_S, _E = SlotState, SlotEvent
_ENDS: Final = frozenset({_S.REPLACED, _S.ENDING, _S.LEFT})
SLOT_STATES: Final[dict[tuple[SlotState, SlotEvent], SlotState]] = {
    (_S.ACCEPTED, _E.OPEN): _S.OPENING,
    (_S.ACCEPTED, _E.END): _S.ENDING,
    (_S.OPENING, _E.BEGIN): _S.WORKING,
    (_S.OPENING, _E.REPLACE): _S.REPLACED,
    (_S.OPENING, _E.END): _S.ENDING,
    (_S.WORKING, _E.EMPTY): _S.IDLE,
    (_S.WORKING, _E.LEAVE): _S.LEAVING,
    (_S.WORKING, _E.SUSPECT): _S.WAITING,
    (_S.WORKING, _E.CUT_OFF): _S.CUT_OFF,
    (_S.WORKING, _E.END): _S.ENDING,
    (_S.WORKING, _E.ABANDON): _S.LEFT,
    (_S.IDLE, _E.FILLED): _S.WORKING,
    (_S.IDLE, _E.REPLACE): _S.REPLACED,
    (_S.LEAVING, _E.STAY): _S.WORKING,
    (_S.LEAVING, _E.CUT_OFF): _S.CUT_OFF,
    (_S.LEAVING, _E.END): _S.REPLACED,
    (_S.LEAVING, _E.ABANDON): _S.LEFT,
    (_S.WAITING, _E.CHOOSE): _S.CHOSEN,
    (_S.WAITING, _E.END): _S.ENDING,
    (_S.CHOSEN, _E.TURN_OVER): _S.WORKING,
    (_S.CHOSEN, _E.CUT_OFF): _S.CUT_OFF,
    (_S.CHOSEN, _E.END): _S.ENDING,
    (_S.CHOSEN, _E.ABANDON): _S.LEFT,
    (_S.CUT_OFF, _E.END): _S.ENDING,
    (_S.CUT_OFF, _E.ABANDON): _S.LEFT,
    (_S.REPLACED, _E.CLEAN_UP): _S.ENDING,
    (_S.REPLACED, _E.ABANDON): _S.LEFT,
    (_S.ENDING, _E.ABANDON): _S.LEFT,
}
"""The state of a slot after each event. An idle session always gets FILLED before it ends."""


class SessionSlots(Generic[T]):
    """The slots of a consumer that are taken, with the state of each. ``most`` sessions may be held at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: dict[T, SlotState] = {}
        self._taken: dict[SlotState, dict[T, None]] = {state: {} for state in SlotState}
        self._leaving, self._replaced = self._taken[SlotState.LEAVING], self._taken[SlotState.REPLACED]

    def __len__(self) -> int:
        return len(self._states)

    @property
    def taken(self) -> Collection[T]:
        """The slots that are taken. Another thread may read them."""
        return self._states.keys()

    @property
    def free(self) -> int:
        """The number of slots that are free, or will be at once; it is negative if sessions were accepted early."""
        return self._most - len(self._states) + len(self._leaving) + len(self._replaced)

    def take(self, slot: T) -> None:
        """Let a session take a slot."""
        self._states[slot] = SlotState.ACCEPTED
        self._taken[SlotState.ACCEPTED][slot] = None

    def give_up(self, slot: T) -> None:
        """Forget a slot whose session is gone."""
        del self._taken[self._states.pop(slot)][slot]

    def state_of(self, slot: T) -> SlotState | None:
        """Return the state of a slot, or ``None`` if its session is gone."""
        return self._states.get(slot)

    def happens(self, slot: T, event: SlotEvent) -> bool:
        """Note an event. Return whether it has changed the state of the slot."""
        before = self._states.get(slot)
        after = None if before is None else SLOT_STATES.get((before, event))
        if before is None or after is None:
            return False
        del self._taken[before][slot]
        self._taken[after][slot] = None
        self._states[slot] = after
        return True

    def those(self, state: SlotState) -> Collection[T]:
        """Return the slots in a state, the one that is in it for longest first."""
        return self._taken[state].keys()

    def longest_in(self, state: SlotState) -> T | None:
        """Return the slot that is in a state for longest, or ``None``."""
        return next(iter(self._taken[state]), None)
