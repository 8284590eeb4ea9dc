"""Decide what the receiver of a session does with the session. Pure.

Theory
------

A receiver holds a session until it closes, until the lock is lost, or until a call has released the session because it
had no messages. The answer to that call may be lost. Then the loss of the lock means the release, until the partition
has answered a later call.

Messages of a session come in their order. So before an earlier message returns to the session, the receiver withdraws
its credit, and what comes meanwhile returns too. While the session is *recalled*, the receiver fetches nothing.

============== ========================================================================================================
kept           The receiver fetches what its callers want.
leaving        The next call releases the session, unless the session has messages.
left           Such a call was made, and no answer says yet that the receiver still holds the session.
returning      Messages return to the session: the credit is being withdrawn, and what comes returns too.
left returning The same, after a call that may have released the session.
recalled       All of them have returned. Nothing is fetched until the recall ends.
released       A call has released the session.
lost           The lock is lost.
============== ========================================================================================================
"""

from __future__ import annotations

from enum import auto
from typing import Final

from sbredis._quick_enum import QuickEnum

__all__ = ["PHASES", "SessionEvent", "SessionPhase", "phase_after"]


class SessionPhase(QuickEnum):
    """What a receiver does with its session."""

    KEPT = auto()
    LEAVING = auto()
    LEFT = auto()
    RETURNING = auto()
    LEFT_RETURNING = auto()
    RECALLED = auto()
    RELEASED = auto()
    LOST = auto()

    @property
    def fetches(self) -> bool:
        """Whether messages are fetched."""
        return self in _FETCHING

    @property
    def returns(self) -> bool:
        """Whether the credit is being withdrawn, and what comes returns to the session."""
        return self in _RETURNING


class SessionEvent(QuickEnum):
    """What happens to the session of a receiver."""

    LEAVE = auto()
    """The receiver has no use for the session without messages."""
    STAY = auto()
    """The receiver keeps the session."""
    CALLED = auto()
    """A call is made that carries a grant."""
    HELD = auto()
    """The partition has answered a grant: the receiver holds the session."""
    RETURN = auto()
    """Messages begin to return to the session."""
    BACK = auto()
    """All of them are in the session, and the partition gives no more."""
    RECALL = auto()
    """The first recall begins, and there is nothing to return."""
    RESUME = auto()
    """The last recall ends."""
    LOSE = auto()
    """A call was refused because the receiver does not hold the session."""


_P, _E = SessionPhase, SessionEvent
_FETCHING: Final = frozenset({_P.KEPT, _P.LEAVING, _P.LEFT})
_RETURNING: Final = frozenset({_P.RETURNING, _P.LEFT_RETURNING})
PHASES: Final[dict[tuple[SessionPhase, SessionEvent], SessionPhase]] = {
    (_P.KEPT, _E.LEAVE): _P.LEAVING,
    (_P.KEPT, _E.RETURN): _P.RETURNING,
    (_P.KEPT, _E.RECALL): _P.RECALLED,
    (_P.KEPT, _E.LOSE): _P.LOST,
    (_P.LEAVING, _E.STAY): _P.KEPT,
    (_P.LEAVING, _E.CALLED): _P.LEFT,
    (_P.LEAVING, _E.RETURN): _P.RETURNING,
    (_P.LEAVING, _E.RECALL): _P.RECALLED,
    (_P.LEAVING, _E.LOSE): _P.LOST,
    (_P.LEFT, _E.HELD): _P.KEPT,
    (_P.LEFT, _E.RETURN): _P.LEFT_RETURNING,
    (_P.LEFT, _E.LOSE): _P.RELEASED,
    (_P.RETURNING, _E.BACK): _P.KEPT,
    (_P.RETURNING, _E.LOSE): _P.LOST,
    (_P.LEFT_RETURNING, _E.HELD): _P.RETURNING,
    (_P.LEFT_RETURNING, _E.LOSE): _P.RELEASED,
    (_P.RECALLED, _E.RETURN): _P.RETURNING,
    (_P.RECALLED, _E.RESUME): _P.KEPT,
    (_P.RECALLED, _E.LOSE): _P.LOST,
}
"""The transitions. An event without a row changes nothing.

Credit cannot be withdrawn before the partition has answered, so BACK comes after HELD, and nothing is recalled while
it is not known whether the session is held: the call that may have released it must be answered before that.
"""


def phase_after(phase: SessionPhase, event: SessionEvent) -> SessionPhase:
    """Return the phase after an event."""
    return PHASES.get((phase, event), phase)
