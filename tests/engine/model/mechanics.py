"""The base of all operations of the model: the checks of a call, the clocks, due work, and the moves of a message."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Self, TypeVar

from sbredis.engine._lifecycle import (
    COUNTED,
    ENDS,
    EPOCH_LEAP,
    LEVELS,
    NEVER,
    Condition,
    Event,
    Reason,
    Side,
    State,
    decide,
    split_member,
)
from tests.engine.model.values import (
    MOST,
    REAL_BOUNDS,
    Bounds,
    Call,
    Lane,
    Lock,
    Message,
    MessageLease,
    Plan,
    Refused,
    Session,
    SessionRow,
    Settings,
    Snapshot,
    Waiter,
    row,
)

R = TypeVar("R")

_UNTOUCHING = {State.DEFERRED}
_TAKING = {
    *(Event.RECEIVE, Event.RECEIVE_AND_DELETE, Event.RECEIVE_DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE),
    *(Event.RENEW, Event.CANCEL, Event.SCHEDULE),
}
"""Events of a message that make nothing available in its session."""

IDLE = 900_000
WOKEN = 100  # the time in which a woken waiter must make a call, in hundredths of a second
SESSIONS, HOLDERS = "s", "h"  # the side of a waiter for a session, and the side of a holder that waits in its session
SEATS = {State.ACTIVE: "a", State.HELD: "h", State.DEFERRED: "p", State.SCHEDULED: "s"}


@dataclass(eq=False)
class Store:
    """The data that the partitions of a topic and of its subscriptions share."""

    seq: int = 0
    carriers: list[Mechanics] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The stored bytes: each record once, changed properties, and session states."""
        records: dict[int, int] = {}
        beside = 0
        for carrier in self.carriers:
            for message in carrier.everything():
                records[message.store_number] = len(message.record)
                beside += len(message.changes)
            beside += carrier.kept
        return sum(records.values()) + beside


@dataclass
class Mechanics:
    """The state of one partition, and how it changes."""

    settings: Settings = field(default_factory=Settings)
    bounds: Bounds = REAL_BOUNDS
    layout: str = "1"
    exists: bool = False
    incarnation: str = ""
    version: int = 0
    run_id: str = "?"
    clk: int = 0
    offset: int = 0
    store: Store = field(default_factory=Store)
    dead_seq: int = 0
    horizon: int = 0
    # Three times: the first expiry of an active message that is not indexed, the first end of a lease, and the next
    # other event, which follows the plain clock. Each is a lower bound: it may be too early, but never too late.
    # Waiters were told these times.
    head: int = NEVER
    next_lock: int = NEVER
    next_due: int = NEVER
    sooner: int | None = None  # the earliest time (by the plain clock) to which the running call has lowered a bound
    epoch: bool = False  # whether the running call begins an epoch
    passing: bool = False  # whether the running call is doing due work
    left: bool = False  # whether a waiter has left since the running call began
    # whether the running call is a call of this partition, and not a publish of its topic, which knows less about it
    own: bool = False
    told: bool = False  # whether a waiter learned in the running call when something will be due
    more: bool = False  # whether the running call has used up its share
    waiting: bool = False
    messages: dict[Side, dict[int, Message]] = field(default_factory=lambda: {side: {} for side in Side})
    leases: dict[str, MessageLease] = field(default_factory=dict)
    dedup: dict[bytes, int] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiters: dict[str, Waiter] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  # the sessions in which the running call has moved a message
    once: dict[bytes, int] = field(default_factory=dict)  # the ends of the windows of remembered keys
    route_fence: int = 0  # of the last holder of the routing role that has published
    granted: int = 0  # the fence of the last lock
    announced: int = NEVER  # the due time that was announced last

    taken: Counter[tuple[Side, State, Event, Condition]] = field(default_factory=Counter)
    transacted: Counter[tuple[Side, State, Event, Condition]] = field(default_factory=Counter)  # in transactions
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    woken: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.carriers.append(self)

    def _clear(self) -> None:
        fresh = type(self)(
            bounds=self.bounds,
            taken=self.taken,
            transacted=self.transacted,
            refused=self.refused,
            repeated=self.repeated,
            woken=self.woken,
        )
        store = self.store
        self.__dict__.update(fresh.__dict__)
        self.store = store
        if store.carriers[0] is self:
            self.store.seq = 0

    @property
    def seq(self) -> int:
        return self.store.seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self.store.seq = seq

    @property
    def bytes(self) -> int:
        return self.store.bytes

    @property
    def kept(self) -> int:
        """The bytes of all session states of the partition."""
        return sum(len(session.state or b"") for session in self.sessions.values())

    def everything(self) -> Iterator[Message]:
        return (message for side in Side for message in self.messages[side].values())

    # -- every call ----------------------------------------------------------------------------------------------------

    def _perform(
        self,
        call: Call,
        act: Callable[[], R],
        *,
        sound: bool = True,
        early: tuple[str, str] | None = None,
        refusal: tuple[str, str] | None = None,
        again: Callable[[Call], R] | None = None,
        full: Callable[[], tuple[str, str] | None] = lambda: None,
        share: int | None = None,
        undecided: Callable[[], bool] = lambda: False,
    ) -> R:
        """Check the call, do due work, then do the operation, then wake waiters.

        The refusal ``early`` takes precedence over the check of the arguments.
        If due work is left and the answer is ``undecided`` without it, the call is put off.
        Due work may make room. So a call is refused for lack of room only if ``full`` still says so after all due work.
        """
        known = self._admit(call)
        if known:
            self.repeated += 1
            known.used = call.now
            repeated: R = known.again(call)
            return repeated
        self._check_knowledge(call, sound=sound or bool(early))
        refusal = early or refusal
        if refusal:
            if refusal[0] == "QUOTA" and self._overdue(call):
                self._put_off(call, lambda: full() is not None)
                refusal = full() or refusal
            self._refuse(*refusal)
        self._begin(call)
        self.more = self._do_due(call.now, share or self.bounds.share)
        if self.more and undecided():
            self._put_off(call)
        result = act()
        if call.lane:
            self._note(call, again or (lambda _: replace(result, more=False)))  # type: ignore[type-var]
        self._end(call.now)
        return result

    def _carry_out(self, call: Call, plan: Plan, answer: Callable[[Any], R], again: R | None = None) -> R:
        """Carry out a single operation that was checked; ``answer`` makes the answer of its result."""
        return self._perform(
            call,
            lambda: answer(plan.act()),
            sound=plan.sound,
            early=plan.early,
            refusal=plan.refusal,
            full=plan.full,
            again=None if again is None else lambda _: again,
        )

    def _overdue(self, call: Call) -> bool:
        """Return whether something may be due."""
        logical, epoch = self._clock(call)
        return epoch or self.next_lock <= logical or self.next_due <= call.now or self.head <= call.now

    def _foreseen(self, call: Call) -> Self:
        """Return the partition as it will be after all due work."""
        if not self._overdue(call):
            self.more = False
            return self
        there = copy.deepcopy(self)
        there._begin(call)
        there.more = there._do_due(call.now, 5 * self.bounds.share)
        return there

    def _put_off(self, call: Call, still: Callable[[], bool] = lambda: False) -> None:
        """Do more due work, and put the call off unless no due work is left and the call is ``still`` refused."""
        self._begin(call)
        more = self._do_due(call.now, 5 * self.bounds.share)
        self._end(call.now)
        if more or not still():
            self._refuse("DUE", "more")

    def _end(self, now: int) -> None:
        """Update the sessions, announce the next due time, and wake waiters."""
        self._take_turns(now)
        self._announce(now)
        if self.waiting and self.waiters:
            if self.left and not self.told:
                self._hand_on(now)
            self._wake(now // 10)
        else:
            # A new waiter can be woken from the next call on. If it is gone already, the next call notices this.
            self.waiting = bool(self.waiters) or (self.told and not self.waiting)
        self.left = self.told = self.own = False

    def _announce(self, now: int) -> None:
        """Announce the next due time if it is before the announced time, or if the announced time has passed."""
        if self.settings.topic:
            return
        first = min(self.head, self.next_due)
        if self.next_lock < NEVER:
            first = min(first, max(0, self.next_lock - self.offset))
        if first < self.announced or self.announced <= now < first:
            self.announced = first

    def _check_reading(
        self,
        call: Call,
        *,
        sound: bool = True,
        early: tuple[str, str] | None = None,
        refusal: tuple[str, str] | None = None,
    ) -> None:
        """Check a call without a lane."""
        self._admit(call)
        self._check_knowledge(call, sound=bool(early) or (sound and not call.lane))
        if early or refusal:
            self._refuse(*(early or refusal or ("", "")))

    def _admit(self, call: Call) -> Lane | None:
        """Check that the partition exists and takes this call; return its lane if this repeats the lane's last call."""
        self._check_existence(call)
        lane = self.lanes.get(call.lane)
        if lane and call.number < lane.number:
            self._refuse("REPEATED", str(lane.number))
        if call.lane and not lane and call.number > 1:
            self._refuse("LANE", call.lane)
        return lane if lane and call.number == lane.number else None

    def _check_existence(self, call: Call) -> None:
        if self.exists and self.layout != "1":
            self._refuse("LAYOUT", self.layout)
        if not self.exists or call.incarnation != self.incarnation:
            self._refuse("GONE", "partition")

    def _check_knowledge(self, call: Call, *, sound: bool) -> None:
        if call.version < self.version:
            self._refuse("STALE", str(self.version))
        if call.version > self.version:
            self._refuse("CONFIG", str(self.version))
        if not (sound and call.sound):
            self._refuse("BADCALL")

    def _refuse(self, code: str, detail: str = "") -> NoReturn:
        self.refused[code] += 1
        raise Refused(code, detail)

    def _note(self, call: Call, again: Callable[[Call], Any]) -> None:
        """Remember the call in its lane. A new lane removes idle lanes."""
        new = call.lane not in self.lanes
        self.lanes[call.lane] = Lane(call.number, call.now, again)
        if new:
            assert len(self.lanes) <= 10, "the model does not choose by chance among more lanes"
            self.lanes = {name: lane for name, lane in self.lanes.items() if lane.used >= call.now - IDLE}

    @staticmethod
    def _are_names(names: Sequence[str]) -> bool:
        try:
            told = [split_member(name) for name in names]
        except ValueError:
            return False
        return 1 <= len(told) <= MOST and len(set(told)) == len(told)

    def _clock(self, call: Call) -> tuple[int, bool]:
        """Return the logical time of a call, and whether it begins an epoch."""
        epoch = "?" not in (call.run_id, self.run_id) and call.run_id != self.run_id
        grace = self.settings.lock_duration if epoch else 0
        return max(self.clk, call.now + self.offset - grace), epoch

    def _begin(self, call: Call) -> None:
        logical, epoch = self._clock(call)
        self.epoch = epoch
        if epoch:
            self.seq += EPOCH_LEAP
            self.dead_seq += EPOCH_LEAP
            self.granted += EPOCH_LEAP
        if call.run_id != "?":
            self.run_id = call.run_id
        self.clk, self.offset, self.sooner = logical, logical - call.now, None
        self.own = True

    # -- due work ------------------------------------------------------------------------------------------------------

    def _do_due(self, now: int, share: int, weight: int | None = None) -> bool:
        """Do due work, at most one share, and read at most this many bytes of messages for it.

        The events happen in the order of their times, each as if at its own time. Return whether due work is left.
        """
        if self.settings.topic:
            # A message scheduled on a topic waits for a client that knows the rules.
            if self._bound_passed(now):
                self.next_due = min((time for time in self._due().values() if time > now), default=NEVER)
            return False
        if not self._bound_passed(now):
            return False
        room, unindexed = self.bounds.weight if weight is None else weight, self.head <= now
        before = set(self._ready(Side.MAIN))
        begun: list[Message] = []
        self.passing = True
        while (event := self._first_event(now)) and share > 0 and room > 0:
            time, text = event
            used, read = self._happen(text, time, share)
            share -= used
            room -= read
            if text[0] == "a":
                begun.append(self.messages[Side.MAIN][self.seq])
            self._see_free(time)
        self.passing = False
        self.epoch = False

        self.next_lock = min((lease.until for lease in self.leases.values()), default=NEVER)
        self.next_due = min(self._due().values(), default=NEVER)
        ready = self._ready(Side.MAIN)
        if event is None and unindexed:
            # Of the messages that a level had before, the first gives a lower bound: the later ones expire no sooner.
            left = [next((m for m in ready if m.level == level and m in before), None) for level in range(LEVELS)]
            self.head = min((message.expires for message in left if message), default=NEVER)
        fresh = [message.expires for message in begun if message in ready and not message.indexed]
        self.head = min([self.head, *fresh])
        return event is not None

    def _bound_passed(self, now: int) -> bool:
        return self.epoch or self.next_lock <= self.clk or self.next_due <= now or self.head <= now

    def _first_event(self, now: int) -> tuple[int, str] | None:
        """Return the first due event: its time, and its name as in the keys (`L` and the token for a lock)."""
        events = [(time, name) for name, time in self._due().items() if time <= now]
        events += [
            (min(now, lease.until - self.offset), "L" + token)
            for token, lease in self.leases.items()
            if lease.until <= self.clk
        ]
        late = (message for message in self._ready(Side.MAIN) if message.expires <= now)
        events += [(message.expires, message.event("e")) for message in late]
        return min(events, key=lambda event: (event[0], event[1].encode()), default=None)

    def _happen(self, text: str, time: int, share: int) -> tuple[int, int]:
        """Do an event. Return how much of the share it uses, and how many bytes were read for it."""
        if text[0] == "L":
            lease = self.leases[text[1:]]
            if lease.session is not None:
                return self._lapse_session(lease.session, share, time), 0
            looked, lease.messages = lease.messages[:share], lease.messages[share:]
            for message in looked:
                if message.token == text[1:]:
                    self._move(message, Event.LAPSE, time)
            self._forget_empty_leases()
            return len(looked), 0
        if text[0] == "b":
            session = self.sessions[text[1:]]
            session.blocked, session.barred = None, False
            self.touched.add(text[1:])
            return 1, 0
        side = Side.DEAD if len(text) == 14 else Side.MAIN
        message = self.messages[side][int(text[-12:], 16)]
        if text[0] == "a":
            del self.messages[Side.MAIN][message.number]
            self.seq += 1
            message.number = message.store_number = self.seq
            self.messages[Side.MAIN][message.number] = message
            message.enqueue(time, self.settings.time_to_live)
            self._move(message, Event.ACTIVATE, time)
            return 1, len(message.record)
        self._move(message, Event.WAKE if text[0] == "d" else Event.EXPIRE, time)
        return 1, len(message.record) if text[0] == "e" else 0

    def _lapse_session(self, name: str, share: int, now: int) -> int:
        """Lapse a lock on a session; return what it uses of the share: the number of released messages, at least 1.

        No receiver can accept the session until all of its messages are released.
        """
        held = sorted(self._held(self.sessions[name].token), key=lambda message: message.number)
        for message in held[:share]:
            self._move(message, Event.LAPSE, now)
        if len(held) < share:
            self._unlock(name, now)
        return max(1, len(held[:share]))

    def _unlock(self, name: str, now: int) -> None:
        """End the lock on a session that no longer holds any message."""
        session = self.sessions[name]
        del self.leases[session.token]
        self._wait_no_longer(HOLDERS, session.waiter)
        session.token = session.waiter = ""
        session.barred = session.blocked is not None and session.blocked > now

    def _wake(self, now: int) -> None:
        """Wake waiters for the available messages or sessions, the longest waiting first.

        Also wake one waiter if something will be due before its waiting time ends. Times are in hundredths of a second.
        """
        sides = (SESSIONS if self.settings.sessions else Side.MAIN, Side.DEAD)
        for side in sides:
            there = self._work(side)
            for name, waiter in list(self.waiters.items()) if there else ():
                if waiter.side == side and waiter.woken:
                    if abs(waiter.until - now) > WOKEN:
                        del self.waiters[name]
                    else:
                        there -= waiter.wanted
            while there > 0 and (wanted := self._wake_first(side, now, 0)):
                there -= wanted
        if self.sooner is not None:
            for side in (SESSIONS, HOLDERS, Side.DEAD) if self.settings.sessions else sides:
                if self._wake_first(side, now, self.sooner):
                    break

    def _wait_no_longer(self, side: str, waiter: str) -> None:
        self.left = self.waiters.pop(f"{waiter} {side}", None) is not None or self.left

    def _hand_on(self, now: int) -> None:
        """Let another waiter learn the next due time, because the waiter that left may have been the only one that knew
        it.
        """
        if not self.own:
            self._put_forward(min(self.head, self.next_due, self.next_lock - self.offset))
            return
        leases = [lease.until - self.offset for lease in self.leases.values()]
        first = min([self.head, *self._due().values(), *leases])
        if first < NEVER:
            self._put_forward(max(now + 1, first))

    def _work(self, side: str) -> int:
        """Return the number of messages or sessions that are available to the waiters of a side."""
        if side == SESSIONS:
            return sum(session.free is not None for session in self.sessions.values())
        return len(self._ready(Side(side)))

    def _asleep(self, side: str) -> list[str]:
        """Return the waiters that have not been woken, the longest waiting first."""
        asleep = [(waiter, name) for name, waiter in self.waiters.items() if waiter.side == side and not waiter.woken]
        return [name for _, name in sorted(asleep)]

    def _wake_first(self, side: str, now: int, till: int) -> int:
        """Wake the first waiter that is not gone, if it waits longer than ``till``; return the number it wants."""
        for name in self._asleep(side):
            waiter = self.waiters[name]
            if waiter.until >= now:
                if waiter.until * 10 <= till:
                    return 0
                self.waiters[name] = waiter._replace(until=now, woken=True)
                self.woken.append((side, name))
                return waiter.wanted
        return 0

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _take_turns(self, now: int) -> None:
        """Update the sessions that can be accepted. Wake each holder that waits in its session if there is a message
        for it.
        """
        ready = self._see_free(now)
        for name, session in self.sessions.items():
            waits = session.token and session.waiter
            if waits and name in self.touched and name in ready and self._gives(name, now):
                self._wait_no_longer(HOLDERS, session.waiter)
                self.woken.append((HOLDERS, session.waiter))
                session.waiter = ""
        self.sessions = {name: session for name, session in self.sessions.items() if session.trace}
        self.touched.clear()

    def _see_free(self, now: int) -> set[str]:
        """Update which sessions are free, and since when. Return all sessions with a ready message."""
        ready = {one.session for one in self._ready(Side.MAIN) if one.session is not None}
        for name in ready:
            self.sessions.setdefault(name, Session())
        for name, session in self.sessions.items():
            if not session.token and not session.barred:
                session.free = None if name not in ready else now if session.free is None else session.free
        return ready

    def _gives(self, name: str, now: int) -> bool:
        """Return whether a locked session gives out a message, if it has one."""
        session = self.sessions[name]
        full = len(self._held(session.token)) >= self.bounds.held
        return not full and (session.blocked is None or session.blocked <= now)

    def _has_lock(self, name: str | None, token: str, call: Call) -> bool:
        """Return whether a token has the lock on a session when a call begins."""
        lease = self.leases.get(token)
        return lease is not None and lease.session == name is not None and lease.until > self._clock(call)[0]

    def _block(self, name: str, till: int) -> None:
        """Block a session until this time, or longer if it is already blocked for longer."""
        session = self.sessions[name]
        if session.blocked is None or session.blocked < till:
            session.blocked = till
            if till < self.next_due and not self.passing:
                self.next_due = till
                self._put_forward(till)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _move(
        self,
        message: Message,
        event: Event,
        now: int,
        *,
        delay: int = 0,
        duplicate: bool = False,
        faulty: bool = False,
    ) -> None:
        """Apply an event to a message; the table decides the next state."""
        message.failures += (message.side, event) in COUNTED
        expired = message.expires <= now
        facts = {
            Condition.DUPLICATE: duplicate,
            Condition.LIMIT: message.failures >= self.settings.max_delivery_count,
            Condition.HOME_DEFERRED: message.home == "f",
            Condition.EXPIRED_KEPT: expired and self.settings.dead_letter_expired,
            Condition.EXPIRED: expired,
            Condition.DELAY: delay > 0,
            Condition.FAULTY: faulty,
            Condition.NO_SESSION: self.settings.sessions and message.session is None,
            Condition.SESSION: message.session is not None,
        }
        side, state = message.side, message.state
        condition, outcome = decide(side, state, event, {fact for fact, holds in facts.items() if holds})
        self.taken[side, state, event, condition] += 1
        if message.session is not None and state not in _UNTOUCHING and event not in _TAKING:
            self.touched.add(message.session)
        if (state, outcome.state) == (State.HELD, State.ACTIVE) and outcome.side is side and delay > 0:
            self._block(message.session or "", min(now + delay, message.expires))

        self.messages[side].pop(message.number, None)
        message.side, message.state = outcome.side, outcome.state
        if outcome.side is Side.DEAD and side is Side.MAIN:
            self.dead_seq += 1
            message.number, message.reason = self.dead_seq, outcome.reason
            message.level, message.home, message.expires, message.session = 0, "a", NEVER, None
        elif outcome.side is not side:
            self.seq += 1
            message.number = message.store_number = self.seq
            message.failures, message.home, message.reason = 0, "a", outcome.reason
            message.level = 0 if message.session is not None else int(message.record[1:2])
            message.enqueue(now, self.settings.time_to_live)
        if outcome.state not in ENDS:
            self.messages[outcome.side][message.number] = message
        self._arrive(message, event, now, delay)

    def _arrive(self, message: Message, event: Event, now: int, delay: int) -> None:
        """Apply the effects of a message's new state."""
        if message.state not in (State.LOCKED, State.HELD):
            message.token = ""
        if message.state is not State.SCHEDULED:
            message.due = min(now + delay, message.expires) if message.state is State.DELAYED else None
        if message.state is State.DEFERRED:
            message.home = "f"
        message.indexed = False
        begins = event in (Event.SEND, Event.ACTIVATE, Event.COPY, Event.REDRIVE) and message.side is Side.MAIN
        if message.state is State.ACTIVE and begins:
            message.indexed = message.expires < self.horizon
            if not message.indexed:
                self.horizon = message.expires
                if message.expires < self.head and not self.passing:
                    self.head = message.expires
                    self._put_forward(message.expires)
        elif message.state is State.ACTIVE:
            message.indexed = message.expires < NEVER
        time = message.expires if message.indexed else message.due
        if time is not None and time < self.next_due and not self.passing:
            self.next_due = time
            self._put_forward(time)

    def _hold(self, token: str, until: int, messages: list[Message], session: str | None = None) -> None:
        """Lock these messages, or a session, under a token until a time on the logical clock."""
        self.leases[token] = MessageLease(until, messages, session)
        if until < self.next_lock:
            self.next_lock = until
            self._put_forward(until - self.offset)

    def _put_forward(self, time: int) -> None:
        self.sooner = time if self.sooner is None else min(self.sooner, time)

    def _ready(self, side: Side) -> list[Message]:
        active = (message for message in self.messages[side].values() if message.state is State.ACTIVE)
        return sorted(active, key=lambda message: (message.level, message.number))

    def _find(self, names: Iterable[str], state: State) -> tuple[list[Message], tuple[str, ...]]:
        """Return the messages of these names that are in a state, and the names of the others."""
        there = {message.name: message for side in Side for message in self.messages[side].values()}
        found = {name: there[name] for name in names if name in there and there[name].state is state}
        return list(found.values()), tuple(name for name in names if name not in found)

    def _locked(self, lock: Lock, logical: int | None = None) -> Message | None:
        """Return the message if this token locks it, now or at a logical time. An ended lease locks nothing, even
        before it lapses.
        """
        try:
            side, number = split_member(lock.name)
        except ValueError:
            return None
        message = self.messages[side].get(number)
        if message is None or message.state not in (State.LOCKED, State.HELD) or message.token != lock.token:
            return None
        return message if self.leases[lock.token].until > (self.clk if logical is None else logical) else None

    def _held(self, token: str) -> list[Message]:
        """Return the messages that a lease still holds, in the order in which they were locked."""
        lease = self.leases[token]
        return [
            one for one in (self.everything() if lease.session is not None else lease.messages) if one.token == token
        ]

    def _forget_empty_leases(self) -> None:
        self.leases = {
            token: lease for token, lease in self.leases.items() if lease.session is not None or self._held(token)
        }

    def _due(self) -> dict[str, int]:
        """Return the times of the events that follow the plain clock, by the name of the event in ``due``."""
        due = {"b" + name: session.blocked for name, session in self.sessions.items() if session.blocked is not None}
        for message in (message for side in Side for message in self.messages[side].values()):
            if message.due is not None:
                due[message.event("a" if message.state is State.SCHEDULED else "d")] = message.due
            elif message.indexed:
                due[message.event("e")] = message.expires
        return due

    def _next_due(self, now: int, offset: int, side: Side = Side.MAIN) -> int:
        """Return the exact time until the next event, in ms of the plain clock; 0 for never.

        A receiver of a topic's dead letters does not wait for the messages that are scheduled on the topic.
        """
        due = {} if self.settings.topic and side is not Side.MAIN else self._due()
        expiries = [message.expires for message in self._ready(Side.MAIN)]
        leases = [lease.until - offset for lease in self.leases.values()]
        first = min([*due.values(), *expiries, *leases], default=NEVER)
        return max(1, first - now) if first < NEVER else 0

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the whole state, in a form that can be compared."""
        return Snapshot(
            exists=self.exists,
            version=self.version,
            settings=self._told_settings(),
            main={number: row(message) for number, message in sorted(self.messages[Side.MAIN].items())},
            dead={number: row(message) for number, message in sorted(self.messages[Side.DEAD].items())},
            leases={
                token: (lease.until, frozenset(message.name for message in self._held(token)))
                for token, lease in self.leases.items()
            },
            due=self._due(),
            dedup=dict(self.dedup),
            lanes={name: (lane.number, lane.used) for name, lane in self.lanes.items()},
            bytes=self.bytes,
            seq=self.seq,
            dead_seq=self.dead_seq,
            clk=self.clk,
            offset=self.offset,
            run_id=self.run_id,
            waiting=self.waiting,
            waiters=dict(self.waiters),
            sessions={
                name: SessionRow(one.token, one.waiter, one.state, one.stated, one.blocked, one.barred, one.free)
                for name, one in self.sessions.items()
            },
            seats=frozenset(
                (one.session, SEATS[one.state], one.number)
                for one in self.messages[Side.MAIN].values()
                if one.session is not None
            ),
            kept=self.kept,
            once=dict(self.once),
            route_fence=self.route_fence,
            granted=self.granted,
            announced=self.announced,
        )

    def _told_settings(self) -> Settings:
        """Return the settings; the limits of the store are those of the store's owner."""
        owner = self.store.carriers[0].settings
        if not self.exists:
            return self.settings
        return replace(self.settings, quota=owner.quota, largest_message=owner.largest_message)

    def describe(self) -> str:
        """Return the snapshot as text for a reader."""
        lines = [
            f"clk {self.clk} offset {self.offset} seq {self.seq} dead {self.dead_seq} bytes {self.bytes}"
            f" horizon {self.horizon} head {self.head} version {self.version}" + ("" if self.exists else " GONE")
        ]
        for message in (self.messages[side][number] for side in Side for number in sorted(self.messages[side])):
            facts = [message.name, message.state.value, f"level {message.level}", f"failures {message.failures}"]
            facts += [f"token {message.token}"] if message.token else []
            facts += [f"due {message.due}"] if message.due is not None else []
            facts += [f"expires {message.expires}"] if message.expires < NEVER else []
            facts += [f"home {message.home}"] if message.home != "a" else []
            facts += [f"reason {message.reason.value}"] if message.reason is not Reason.NONE else []
            facts += [f"stored as {message.store_number}"] if message.side is Side.DEAD else []
            lines.append("  " + ", ".join(facts))
        lines += [f"  lease {token} until {lease.until}" for token, lease in self.leases.items()]
        return "\n".join(lines)
