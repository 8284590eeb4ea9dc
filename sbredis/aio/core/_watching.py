"""Watching a partition: whether it may have something, whether it was asked, and when to look again. Pure.

Theory
------

A receiver, a client that waits for a session, and the client that publishes for a topic all *watch* partitions, in the
same way. They ask a partition what it has. If it has nothing, the same run of its script registers them as waiting; the
partition then *wakes* them over a channel when something comes. Until then they leave it alone. A registration ends
after 30 seconds, so they look again before that.

Three things make this harder than it sounds:

- *A wake-up concerns everybody.* A partition wakes one waiter for each message it has. A waiter that is woken and wants
  nothing any more must look once without waiting. Only then does the partition wake the next waiter in its place.
- *A wake-up may come while an answer is under way.* The answer may be from before the wake-up. So a "nothing" that was
  overtaken by a wake-up means nothing: the partition is asked again.
- *A due time may be known to us alone.* The answer that registers us tells when something will be due. The partition
  wakes no more than one waiter to tell it a new due time. Whoever was told must look at that time even if it wants
  nothing, or the others sleep until their own registrations end.

A watch is in one state. Rows of the table that are missing leave the state as it is::

    state        what is known                                      may ask   look at
    UNKNOWN      it may have something                              yes       -
    STOCKED      it had something at the last answer                yes       -
    CALLED       it has woken us since we last asked                yes       -
    DOUBTFUL     it may have woken us unheard, or is due            yes       -
    ASKED        a call is under way                                no        when the answer is late
    OVERTAKEN    a call is under way, and it woke us after that     no        when the answer is late
    UNHEARD      it had nothing, and we cannot hear it yet          no        -
    WAITING      it had nothing, and will wake us                   no        before the registration ends
    TRUSTED      the same, and we alone know when it is due         no        then, wanted or not
    FAILED       the last call failed; trying again may help        no        after a pause
    REFUSED      the last call failed; trying again does not help   no        after a pause
    LEFT         nobody watches it any more                         no        -

CALLED and DOUBTFUL *owe* the partition a look. STOCKED and CALLED are *known* to have something: of several partitions,
those are asked for messages at once, while the others are looked at first, which locks nothing.

Events are methods. Those that something happened to (``woken``, ``missed``, ``time_passed``, ``disconnected``,
``heard``) may come in any state. Those that end a call (``found``, ``nothing``, ``passed_on``, ``failed``, …) come only
while one is under way, or after the partition was left. Then they change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from sbredis.aio.core._pauses import Pauses

__all__ = ["LATE", "REGISTERED", "TABLE", "Event", "State", "Watch", "to_ask"]

REGISTERED: Final = 25.0
"""Look again after so many seconds: a partition forgets a waiter after 30."""
LATE: Final = 1.0
"""An answer that takes longer than so many seconds holds up nobody: the other partitions are asked."""
_PAUSES: Final = 0.1, 10.0


class State(Enum):
    """What is known of a partition."""

    __hash__ = object.__hash__  # that of an Enum is computed in Python, and states are looked up all the time

    UNKNOWN = "it may have something"
    STOCKED = "it had something at the last answer"
    CALLED = "it has woken us since we last asked"
    DOUBTFUL = "it may have woken us unheard, or is due"
    ASKED = "a call is under way"
    OVERTAKEN = "a call is under way, and it woke us after that"
    UNHEARD = "it had nothing, and we cannot hear it yet"
    WAITING = "it had nothing, and will wake us"
    TRUSTED = "it had nothing, and we alone know when something is due"
    FAILED = "the last call failed; trying again may help"
    REFUSED = "the last call failed; trying again does not help"
    LEFT = "nobody watches it any more"


class Event(Enum):
    """What may happen to a watch."""

    __hash__ = object.__hash__

    ASK = "a call is made"
    FOUND = "the answer: it has something"
    MORE = "the answer: it is still busy with what is due"
    NOTHING = "the answer: nothing; it will wake us"
    NOTHING_YET = "the answer: nothing now, something soon; it will wake us"
    UNREGISTERED = "the answer: nothing; it does not know where to wake us"
    PASSED_ON = "the answer: nothing, to somebody who does not wait"
    WOKEN = "it says that it has something"
    MISSED = "it may have said so unheard"
    HEARD = "its channel can be heard from now on"
    TIME = "the time has come to look again"
    DISCONNECTED = "no connection is left over which it could wake us"
    WANTED_NOW = "somebody wants to know what it has at this moment"
    ANEW = "somebody comes who was not told yet that it refuses everything"
    FAIL = "a call failed; trying again may help"
    REFUSE = "a call failed; trying again does not help"
    LEAVE = "nobody watches it any more"


def _table() -> dict[tuple[State, Event], State]:
    s, e = State, Event
    may_ask = (s.UNKNOWN, s.STOCKED, s.CALLED, s.DOUBTFUL)
    under_way = (s.ASKED, s.OVERTAKEN)
    silent = (s.UNHEARD, s.WAITING, s.TRUSTED)
    ended = (s.FAILED, s.REFUSED)
    table: dict[tuple[State, Event], State] = {}
    for state in may_ask:
        table[state, e.ASK] = s.ASKED
    table |= {
        (s.ASKED, e.FOUND): s.STOCKED,
        (s.ASKED, e.MORE): s.UNKNOWN,
        (s.ASKED, e.NOTHING): s.WAITING,
        (s.ASKED, e.NOTHING_YET): s.TRUSTED,
        (s.ASKED, e.UNREGISTERED): s.UNHEARD,
        (s.ASKED, e.PASSED_ON): s.UNKNOWN,
        (s.OVERTAKEN, e.FOUND): s.CALLED,
        (s.OVERTAKEN, e.MORE): s.DOUBTFUL,
        (s.OVERTAKEN, e.NOTHING): s.DOUBTFUL,
        (s.OVERTAKEN, e.NOTHING_YET): s.DOUBTFUL,
        (s.OVERTAKEN, e.UNREGISTERED): s.DOUBTFUL,
        (s.OVERTAKEN, e.PASSED_ON): s.DOUBTFUL,
    }
    for state in under_way:
        table[state, e.WOKEN] = table[state, e.MISSED] = s.OVERTAKEN
        table[state, e.FAIL], table[state, e.REFUSE] = s.FAILED, s.REFUSED
    for state in (*may_ask, *silent, *ended):
        table[state, e.WOKEN], table[state, e.MISSED] = s.CALLED, s.DOUBTFUL
    for state in (*silent, *ended):
        table[state, e.HEARD] = s.UNKNOWN
    for state in (*silent, *ended):
        table[state, e.TIME] = table[state, e.WANTED_NOW] = s.UNKNOWN
    for state in silent:
        table[state, e.DISCONNECTED] = s.UNKNOWN
        table[state, e.FAIL], table[state, e.REFUSE] = s.FAILED, s.REFUSED  # of the call that would make it heard
    for event in (e.TIME, e.DISCONNECTED, e.WANTED_NOW, e.HEARD):
        table[s.TRUSTED, event] = s.DOUBTFUL  # the others who wait do not know when it is due: somebody has to look
    table[s.REFUSED, e.ANEW] = s.UNKNOWN
    for state in s:
        table[state, e.LEAVE] = s.LEFT
    return table


TABLE: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(_table())

_MAY_ASK = frozenset({State.UNKNOWN, State.STOCKED, State.CALLED, State.DOUBTFUL})
_KNOWN = frozenset({State.STOCKED, State.CALLED})
_OWING = frozenset({State.CALLED, State.DOUBTFUL})
_UNDER_WAY = frozenset({State.ASKED, State.OVERTAKEN})
_SILENT = frozenset({State.UNHEARD, State.WAITING, State.TRUSTED})


class Watch:
    """One partition, as somebody watches it."""

    __slots__ = ("_pauses", "calls", "late", "look_at", "registered", "state", "wanted")

    def __init__(self) -> None:
        self.state = State.UNKNOWN
        self.calls = 0
        """How many calls were made, the one under way included."""
        self.wanted = 0
        """For how many messages the call under way asks; 0 for a look."""
        self.late = False
        """The answer to the call under way is late."""
        self.look_at: float | None = None
        """When :meth:`time_passed` changes something."""
        self.registered = False
        """The partition has us registered, as far as we know."""
        self._pauses = Pauses(*_PAUSES)

    def __repr__(self) -> str:
        return f"<Watch {self.state.name}{' late' if self.late else ''}>"

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def may_ask(self) -> bool:
        """Whether a call may be made, and may bring something."""
        return self.state in _MAY_ASK

    @property
    def known(self) -> bool:
        """Whether it is known to have something."""
        return self.state in _KNOWN

    @property
    def owes_a_look(self) -> bool:
        """Whether the partition waits for us to come, wanted or not."""
        return self.state in _OWING

    @property
    def under_way(self) -> bool:
        """Whether a call is under way."""
        return self.state in _UNDER_WAY

    @property
    def left(self) -> bool:
        """Whether nobody watches it any more."""
        return self.state is State.LEFT

    @property
    def troubled(self) -> bool:
        """Whether nothing is known of it: calls fail, or the answer is late."""
        return self.late or self.failing

    @property
    def failing(self) -> bool:
        """Whether the last calls failed."""
        return bool(self._pauses)

    @property
    def alone_knows(self) -> bool:
        """Whether it must be looked at in time even if nothing is wanted."""
        return self.state is State.TRUSTED

    @property
    def may_be_registered(self) -> bool:
        """Whether the partition should be told when we leave."""
        return self.registered or self.under_way

    @property
    def unheard(self) -> bool:
        """Whether it should be listened to."""
        return self.state is State.UNHEARD

    # -- calls ---------------------------------------------------------------------------------------------------------

    def ask(self, now: float, wanted: int = 0) -> None:
        """Begin a call, for so many messages, or to look."""
        if self.state not in _MAY_ASK:
            raise RuntimeError(f"a partition cannot be asked when {self.state.value}")
        self._be(Event.ASK)
        self.calls += 1
        self.wanted = wanted
        self.look_at = now + LATE

    def found(self) -> None:
        """It has something."""
        self._answered(Event.FOUND, registered=False)

    def busy_with_due(self, *, registered: bool) -> None:
        """It has more due work than one call does, and cannot say yet what it has."""
        self._answered(Event.MORE, registered=registered)

    def nothing(self, now: float, due: float, *, registered: bool) -> None:
        """It has nothing. Something is due in so many seconds, or never if that is 0."""
        answer = Event.NOTHING_YET if 0 < due < REGISTERED else Event.NOTHING
        self._answered(answer if registered else Event.UNREGISTERED, registered=registered)
        if self.state is State.TRUSTED:
            self.look_at = now + due
        elif self.state is State.WAITING:
            self.look_at = now + REGISTERED

    def passed_on(self) -> None:
        """It has nothing for somebody who does not wait."""
        self._answered(Event.PASSED_ON, registered=False)

    def failed(self, now: float, *, refused: bool) -> None:
        """A call failed."""
        if self._ends_call("it failed"):
            self._pause(now, refused=refused)

    def cannot_listen(self, now: float, *, refused: bool) -> None:
        """The attempt to listen to its channel failed."""
        if self.state in _SILENT:
            self._pause(now, refused=refused)

    def _answered(self, event: Event, *, registered: bool) -> None:
        if self._ends_call(event.value):
            self._pauses.reset()
            self.registered = registered
            self._be(event)

    def _ends_call(self, how: str) -> bool:
        """End the call that is under way. Returns whether that still matters."""
        if self.left:
            return False
        if self.state not in _UNDER_WAY:
            raise RuntimeError(f"no call is under way that could end: {how}")
        self.wanted, self.late, self.look_at = 0, False, None
        return True

    def _pause(self, now: float, *, refused: bool) -> None:
        self._be(Event.REFUSE if refused else Event.FAIL)
        self.look_at = now + self._pauses.next()

    # -- what happens --------------------------------------------------------------------------------------------------

    def woken(self) -> None:
        """It says that it has something."""
        self._rouse(Event.WOKEN)

    def missed(self) -> None:
        """It may have said so unheard."""
        self._rouse(Event.MISSED)

    def heard(self) -> None:
        """Its channel can be heard from now on. What it said before was not heard."""
        self._wake_up(Event.HEARD)

    def disconnected(self) -> None:
        """No connection is left over which it could wake us."""
        self._wake_up(Event.DISCONNECTED)

    def wanted_now(self) -> None:
        """Somebody wants to know what it has at this moment."""
        self._wake_up(Event.WANTED_NOW)

    def anew(self) -> None:
        """Somebody comes who was not told yet that it refuses everything."""
        self._wake_up(Event.ANEW)

    def leave(self) -> None:
        """Watch it no longer."""
        self._be(Event.LEAVE)
        self.look_at = None

    def time_passed(self, now: float) -> None:
        """Find an answer late, or look again, if it is time for that."""
        if self.look_at is None or self.look_at > now:
            return
        self.look_at = None
        if self.state in _UNDER_WAY:
            self.late = True
        else:
            self._be(Event.TIME)

    def _rouse(self, event: Event) -> None:
        self._pauses.reset()
        self._wake_up(event)

    def _wake_up(self, event: Event) -> None:
        before = self.state
        self._be(event)
        if self.state is not before and self.state not in _UNDER_WAY:
            self.look_at = None

    def _be(self, event: Event) -> None:
        self.state = TABLE.get((self.state, event), self.state)


def to_ask(watches: Sequence[Watch], together: int) -> list[int]:
    """Return the partitions to ask now. At most so many calls are under way ``together``; late ones do not count."""
    may_ask, room = list[int](), together
    for place, watch in enumerate(watches):
        if watch.state in _MAY_ASK:
            may_ask.append(place)
        elif watch.state in _UNDER_WAY and not watch.late:
            room -= 1
    return may_ask[: max(0, room)]
