"""Watch a partition: decide whether the partition may have something, whether to ask it, and when to look again. Pure.

Theory
------

Three kinds of clients *watch* partitions in the same way: a receiver, a client that waits for a session, and the client
that publishes for a topic. Such a client asks a partition for messages or other work. If the partition has nothing, the
same run of the script registers the client as a waiter. The partition then *wakes* the client over a channel when
something comes. Until then the client makes no calls to the partition. A registration ends after 30 seconds, so the
client looks again before that. In the following, *we* are that client.

Four facts make this difficult:

- *An unused wake-up must be passed on.* A partition wakes one waiter for each message that it has. If a waiter needs
  nothing when it is woken, it must look once without waiting. Only then does the partition wake the next waiter.
- *A wake-up may come while an answer is under way.* The answer may be older than the wake-up. So if a wake-up comes
  before an answer of "nothing", the client ignores the answer and asks the partition again.
- *We alone may know a due time.* The answer that registers us also contains the time when something will be due. The
  partition sends a new due time to one waiter only. That waiter must look at that time even if it needs nothing then.
  Otherwise the other waiters sleep until their own registrations end.
- *Partitions fall silent together*, because a server has several of them. A client that asks one partition after the
  other would wait for each of these. So if one answer is late, the client *doubts* what other partitions have said
  before, and looks at all of them at the same time.

A watch is always in one of these states::

    state        what is known                                      may ask   look at
    UNKNOWN      it may have something                              yes       -
    STOCKED      it had something at the last answer                yes       -
    CALLED       it has woken us since we last asked                yes       -
    DOUBTFUL     we may have missed a wake-up, or work is due       yes       -
    ASKED        a call is under way                                no        when the answer is late
    OVERTAKEN    a call is under way, and it woke us after that     no        when the answer is late
    UNHEARD      it had nothing, and we cannot hear it yet          no        -
    WAITING      it had nothing, and will wake us                   no        before the registration ends
    TRUSTED      it will wake us, and we alone know the due time    no        the due time, even if we need nothing
    FAILED       the last call failed; trying again may help        no        the end of a pause
    REFUSED      the last call failed; trying again does not help   no        the end of a pause
    LEFT         the watch has ended                                no        -

In the states CALLED and DOUBTFUL we *owe* the partition a look. In the states STOCKED and CALLED the partition is
*known* to have something. If there are several partitions, the known ones are asked for messages immediately. At the
other partitions we first look, which locks nothing.

Events are methods. Events from outside (``woken``, ``missed``, ``moved``, ``doubted``, ``time_passed``,
``disconnected``, ``heard``) may come in any state. Events that end a call (``found``, ``nothing``, ``passed_on``,
``failed``, …) may come only while a call is under way, or after the watch has ended; then they change nothing. If a
pair of state and event is missing in :data:`TABLE`, the event does not change the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from sbredis.client._pauses import Pauses
from sbredis.client._timings import Timings

__all__ = ["TABLE", "Watch", "WatchEvent", "WatchState", "to_ask"]

_HURRIED: Final = 0.2
"""The part of ``Timings.late`` after which an answer is late for a caller whose time is over."""


class WatchState(Enum):
    """The client's knowledge of a watched partition."""

    __hash__ = object.__hash__  # states are looked up very often, and the hash of Enum is slow

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
    LEFT = "the watch has ended"


class WatchEvent(Enum):
    """An event that may happen to a watch."""

    __hash__ = object.__hash__

    ASK = "a call is made"
    FOUND = "the answer: it has something"
    MORE = "the answer: it is still busy with what is due"
    NOTHING = "the answer: nothing; it will wake us"
    NOTHING_YET = "the answer: nothing now, something soon; it will wake us"
    UNREGISTERED = "the answer: nothing; it does not know where to wake us"
    PASSED_ON = "the answer: nothing; we did not wait, so it wakes another waiter"
    WOKEN = "it says that it has something"
    MISSED = "it may have said so unheard"
    MOVED = "its clock was moved by hand"
    HEARD = "its channel can be heard from now on"
    TIME = "the time has come to look again"
    DOUBTED = "another partition does not answer in time, and this one may not either"
    DISCONNECTED = "it cannot wake us because no connection is left"
    WANTED_NOW = "a caller wants to know what it has now"
    NEW_CALLER = "a new caller comes; it does not know of the refusal"
    FAIL = "a call failed; trying again may help"
    REFUSE = "a call failed; trying again does not help"
    LEAVE = "the watch ends"


def _table() -> dict[tuple[WatchState, WatchEvent], WatchState]:
    s, e = WatchState, WatchEvent
    may_ask = (s.UNKNOWN, s.STOCKED, s.CALLED, s.DOUBTFUL)
    under_way = (s.ASKED, s.OVERTAKEN)
    silent = (s.UNHEARD, s.WAITING, s.TRUSTED)
    ended = (s.FAILED, s.REFUSED)
    table: dict[tuple[WatchState, WatchEvent], WatchState] = {}
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
        table[state, e.WOKEN] = table[state, e.MISSED] = table[state, e.MOVED] = s.OVERTAKEN
        table[state, e.FAIL], table[state, e.REFUSE] = s.FAILED, s.REFUSED
    for state in (*may_ask, *silent, *ended):
        table[state, e.WOKEN], table[state, e.MISSED] = s.CALLED, s.DOUBTFUL
    table[s.STOCKED, e.DOUBTED], table[s.CALLED, e.DOUBTED] = s.UNKNOWN, s.DOUBTFUL
    for state in (*silent, *ended):
        table[state, e.HEARD] = s.UNKNOWN
    for state in (*silent, *ended):
        table[state, e.TIME] = table[state, e.WANTED_NOW] = table[state, e.MOVED] = s.UNKNOWN
    for state in silent:
        table[state, e.DISCONNECTED] = s.UNKNOWN
        table[state, e.FAIL], table[state, e.REFUSE] = s.FAILED, s.REFUSED  # listening failed
    for event in (e.TIME, e.DISCONNECTED, e.WANTED_NOW, e.HEARD, e.MOVED):
        table[s.TRUSTED, event] = s.DOUBTFUL  # we must look, because the other waiters do not know the due time
    table[s.REFUSED, e.NEW_CALLER] = s.UNKNOWN
    for state in s:
        table[state, e.LEAVE] = s.LEFT
    return table


TABLE: Final[Mapping[tuple[WatchState, WatchEvent], WatchState]] = MappingProxyType(_table())

_MAY_ASK = frozenset({WatchState.UNKNOWN, WatchState.STOCKED, WatchState.CALLED, WatchState.DOUBTFUL})
_KNOWN = frozenset({WatchState.STOCKED, WatchState.CALLED})
_OWING = frozenset({WatchState.CALLED, WatchState.DOUBTFUL})
_UNDER_WAY = frozenset({WatchState.ASKED, WatchState.OVERTAKEN})
_SILENT = frozenset({WatchState.UNHEARD, WatchState.WAITING, WatchState.TRUSTED})


class Watch:
    """One partition that is watched."""

    __slots__ = ("_asked_at", "_pauses", "_timings", "calls", "late", "look_at", "registered", "state", "wanted")

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self.state = WatchState.UNKNOWN
        self.calls = 0
        """The number of calls made, including the one under way."""
        self.wanted = 0
        """The number of messages that the call under way asks for; 0 for a look."""
        self.late = False
        """Whether the answer to the call under way is late."""
        self.look_at: float | None = None
        """The time at which :meth:`time_passed` changes the watch."""
        self.registered = False
        """Whether the partition has registered us, as far as we know."""
        self._asked_at = 0.0
        self._pauses = Pauses(*timings.asking_again)

    def __repr__(self) -> str:
        return f"<Watch {self.state.name}{' late' if self.late else ''}>"

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def may_ask(self) -> bool:
        """Whether we may ask the partition now."""
        return self.state in _MAY_ASK

    @property
    def known(self) -> bool:
        """Whether the partition is known to have something."""
        return self.state in _KNOWN

    @property
    def owes_a_look(self) -> bool:
        """Whether the partition waits for us to look, even if we need nothing."""
        return self.state in _OWING

    @property
    def under_way(self) -> bool:
        """Whether a call is under way."""
        return self.state in _UNDER_WAY

    @property
    def left(self) -> bool:
        """Whether the watch has ended."""
        return self.state is WatchState.LEFT

    @property
    def troubled(self) -> bool:
        """Whether the partition does not answer in time: the last calls failed, or an answer is late."""
        return self.late or self.failing

    @property
    def failing(self) -> bool:
        """Whether the last calls failed."""
        return bool(self._pauses)

    @property
    def must_look(self) -> bool:
        """Whether we must look at the due time even if we need nothing."""
        return self.state is WatchState.TRUSTED

    @property
    def may_be_registered(self) -> bool:
        """Whether the partition may have registered us. If so, we tell the partition when we leave."""
        return self.registered or self.under_way

    @property
    def unheard(self) -> bool:
        """Whether to start listening to the partition."""
        return self.state is WatchState.UNHEARD

    # -- calls ---------------------------------------------------------------------------------------------------------

    def ask(self, now: float, wanted: int = 0) -> None:
        """Begin a call for ``wanted`` messages, or a look."""
        if self.state not in _MAY_ASK:
            raise RuntimeError(f"the partition must not be asked in the state {self.state.name} ({self.state.value})")
        self._apply(WatchEvent.ASK)
        self.calls += 1
        self.wanted = wanted
        self._asked_at, self.look_at = now, now + self._timings.late

    def hurry(self) -> None:
        """Let the answer to the call under way be late sooner, because the time of a caller is over."""
        if self.state in _UNDER_WAY and self.look_at is not None:
            self.look_at = self._asked_at + self._timings.late * _HURRIED

    def found(self) -> None:
        """End a call that showed that the partition has something."""
        self._answered(WatchEvent.FOUND, registered=False)

    def busy_with_due(self, *, registered: bool) -> None:
        """End a call without a clear answer: more work was due than one call does. The partition may have something."""
        self._answered(WatchEvent.MORE, registered=registered)

    def nothing(self, now: float, due: float, *, registered: bool) -> None:
        """End a call that found nothing. ``due`` is the number of seconds until work is due; 0 means never."""
        answer = WatchEvent.NOTHING_YET if 0 < due < self._timings.registered else WatchEvent.NOTHING
        self._answered(answer if registered else WatchEvent.UNREGISTERED, registered=registered)
        if self.state is WatchState.TRUSTED:
            self.look_at = now + due
        elif self.state is WatchState.WAITING:
            self.look_at = now + self._timings.registered

    def passed_on(self) -> None:
        """End a call that did not wait. The partition has nothing for us, and wakes another waiter."""
        self._answered(WatchEvent.PASSED_ON, registered=False)

    def failed(self, now: float, *, refused: bool) -> None:
        """End a call that failed."""
        if self._ends_call(WatchEvent.FAIL):
            self._pause(now, refused=refused)

    def cannot_listen(self, now: float, *, refused: bool) -> None:
        """Record that the attempt to listen failed."""
        if self.state in _SILENT:
            self._pause(now, refused=refused)

    def _answered(self, event: WatchEvent, *, registered: bool) -> None:
        if self._ends_call(event):
            self._pauses.reset()
            self.registered = registered
            self._apply(event)

    def _ends_call(self, event: WatchEvent) -> bool:
        """End the call under way. Return whether its end still matters."""
        if self.left:
            return False
        if self.state not in _UNDER_WAY:
            raise RuntimeError(f"a call ended ({event.value}), but no call was under way")
        self.wanted, self.late, self.look_at = 0, False, None
        return True

    def _pause(self, now: float, *, refused: bool) -> None:
        self._apply(WatchEvent.REFUSE if refused else WatchEvent.FAIL)
        self.look_at = now + self._pauses.next()

    # -- events from outside -------------------------------------------------------------------------------------------

    def woken(self) -> None:
        """Record that the partition has woken us, because it has something."""
        self._rouse(WatchEvent.WOKEN)

    def missed(self) -> None:
        """Record that the partition may have woken us while we could not hear it."""
        self._rouse(WatchEvent.MISSED)

    def moved(self) -> None:
        """Record that the clock was moved by hand. Work may be due now, and the partition may have forgotten us."""
        self._rouse(WatchEvent.MOVED)

    def doubted(self) -> None:
        """Record that the answer of another partition is late. Look at this one before it is asked for messages."""
        self._apply(WatchEvent.DOUBTED)

    def heard(self) -> None:
        """Record that we can hear the channel from now on. We did not hear earlier wake-ups."""
        self._wake_up(WatchEvent.HEARD)

    def disconnected(self) -> None:
        """Record that the partition cannot wake us, because there is no connection to it any more."""
        self._wake_up(WatchEvent.DISCONNECTED)

    def wanted_now(self) -> None:
        """Record that a caller wants to know what the partition has now."""
        self._wake_up(WatchEvent.WANTED_NOW)

    def new_caller(self) -> None:
        """Record that there is a new caller. That caller has not seen an earlier refusal, so we may ask again."""
        self._wake_up(WatchEvent.NEW_CALLER)

    def leave(self) -> None:
        """End the watch."""
        self._apply(WatchEvent.LEAVE)
        self.look_at = None

    def time_passed(self, now: float) -> None:
        """If the time ``look_at`` has come, mark the answer as late, or allow a new look."""
        if self.look_at is None or self.look_at > now:
            return
        self.look_at = None
        if self.state in _UNDER_WAY:
            self.late = True
        else:
            self._apply(WatchEvent.TIME)

    def _rouse(self, event: WatchEvent) -> None:
        self._pauses.reset()
        self._wake_up(event)

    def _wake_up(self, event: WatchEvent) -> None:
        before = self.state
        self._apply(event)
        if self.state is not before and self.state not in _UNDER_WAY:
            self.look_at = None

    def _apply(self, event: WatchEvent) -> None:
        self.state = TABLE.get((self.state, event), self.state)


def to_ask(watches: Sequence[Watch], together: int) -> list[int]:
    """Return the partitions to ask now. At most ``together`` calls are under way then; late calls do not count."""
    may_ask, room = list[int](), together
    for place, watch in enumerate(watches):
        if watch.state in _MAY_ASK:
            may_ask.append(place)
        elif watch.state in _UNDER_WAY and not watch.late:
            room -= 1
    return may_ask[: max(0, room)]
