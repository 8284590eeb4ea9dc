"""The operations of the model, each with the arguments of its request in ``sbredis.engine._partition``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from sbredis.engine import CodecError, decode
from sbredis.engine._lifecycle import BANDS, LEVELS, NEVER, RESERVED, TRANSITIONS, Event, Side, State
from tests.engine.model.mechanics import HOLDERS, Mechanics
from tests.engine.model.values import (
    LETTERS,
    MOST,
    ROOM,
    Awoken,
    Call,
    Counts,
    Lock,
    Looked,
    Message,
    Mode,
    Outgoing,
    Peeked,
    Plan,
    Purged,
    Received,
    Redrive,
    Redriven,
    Renewed,
    Sent,
    Settings,
    Settled,
    Stored,
    Together,
    Undone,
    Waiter,
)

WAITING = 3_000  # how long a waiter is remembered, in hundredths of a second


def session_of(payload: bytes) -> str | None:
    """Return the session that is named in a payload; None if the payload is no message."""
    try:
        return decode(payload).session_id
    except CodecError:
        return None


class Model(Mechanics):
    """One partition. Every operation is a method with the call as its first argument."""

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, call: Call, messages: Sequence[Outgoing], *, columns: str = "tlid") -> Sent:
        """Send messages, all active at once or all scheduled; a duplicate uses up its number and is dropped.

        ``columns`` are the columns of the request: only a request with message ids removes old ids.
        """
        plan = self.plan_send(call, Together(), messages, columns=columns)
        return self._carry_out(call, plan, lambda stored: Sent(stored.first, len(stored.dropped), self.more))

    def plan_send(self, call: Call, together: Together, messages: Sequence[Outgoing], *, columns: str = "tlid") -> Plan:
        now, window = call.now, self.settings.duplicate_window
        made = [self._made(out, now) for out in messages]
        pending = together.pending[id(self.store)]

        def act() -> Stored:
            dropped, first = [], self.seq + 1
            if "i" in columns:
                self._forget_old_ids(len(messages), now)
            for place, (out, message) in enumerate(zip(messages, made, strict=True)):
                self.seq += 1
                message.number = message.store_number = self.seq
                duplicate = window is not None and self.dedup.get(out.message_id, now - window) > now - window
                if window is not None and out.message_id and not duplicate:
                    self.dedup[out.message_id] = now
                event = Event.SEND if message.due is None else Event.SCHEDULE
                self._move(message, event, now, duplicate=duplicate)
                dropped += [place] if duplicate else []
            return Stored(first, tuple(dropped))

        def full() -> tuple[str, str] | None:
            return self._refusal_of_send(made, pending=pending)

        refusal = full()
        without = [place for place, message in enumerate(made) if message.session is None]
        if self.settings.sessions and without and not refusal:
            refusal = "SESSIONS", str(without[0])
        sound = self._is_outgoing(messages) and not self._takes_nothing
        return Plan(act, sound, refusal=refusal, full=full, growth=sum(len(message.payload) for message in made))

    def _forget_old_ids(self, messages: int, now: int) -> None:
        """Remove message ids from before the window of duplicate detection, but not too many in one call."""
        window = self.settings.duplicate_window
        old = sorted((seen, key) for key, seen in self.dedup.items() if window is not None and seen <= now - window)
        for _, key in old[: 2 * messages + 10]:
            del self.dedup[key]

    @property
    def _takes_nothing(self) -> bool:
        """Return whether the partition refuses ``send``: a topic takes its messages by ``publish``, and a subscription
        gets them from its topic.
        """
        return self.settings.shared or self.settings.topic

    @staticmethod
    def _is_outgoing(messages: Sequence[Outgoing]) -> bool:
        return 1 <= len(messages) <= MOST and all(
            0 <= out.level < LEVELS and (out.time_to_live is None or out.time_to_live >= 0) for out in messages
        )

    def _made(self, out: Outgoing, now: int) -> Message:
        """Make a message. A session has no levels: its messages are in the order of their numbers."""
        ttl = NEVER if out.time_to_live is None else min(out.time_to_live, NEVER)
        session = session_of(out.payload) if self.settings.sessions else None
        level = 0 if session is not None else out.level
        message = Message(0, 0, level, out.payload, ttl, b"s%d%013d%b" % (level, ttl, out.payload))
        message.session = session
        if out.due is not None and (out.due > now or self.settings.topic):
            # on a topic even if the due time has passed, because the client that publishes the message knows the rules
            message.due = out.due
        else:
            message.enqueue(now, self.settings.time_to_live)
        return message

    def _refusal_of_send(self, made: Sequence[Message], changes: int = 0, pending: int = 0) -> tuple[str, str] | None:
        """Return the refusal of messages. The operations of a transaction before this one will store ``pending``
        bytes.
        """
        settings = self.settings
        if settings.status in ("SendDisabled", "Disabled"):
            return "DISABLED", settings.status
        for place, message in enumerate(made):
            if len(message.payload) > settings.largest_message:
                return "TOOLARGE", str(place)
        growth = sum(len(message.payload) for message in made)
        if growth > 0 and self.bytes + pending + growth + changes > settings.quota:
            return "QUOTA", f"{self.bytes} {settings.quota}"
        return None

    def cancel(self, call: Call, names: Sequence[str]) -> Undone:
        """Cancel scheduled messages, all of them or none."""

        def act() -> Undone:
            found, missing = self._find(names, State.SCHEDULED)
            if not missing:
                for message in found:
                    self._move(message, Event.CANCEL, call.now)
            return Undone(missing, self.more)

        return self._perform(
            call,
            act,
            sound=self._are_names(names),
            undecided=lambda: self._some_not_to_come(call, names),
        )

    def _some_not_to_come(self, call: Call, names: Sequence[str]) -> bool:
        found, missing = self._find(names, State.SCHEDULED)
        return bool(missing) or any((message.due or 0) <= call.now for message in found)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(
        self,
        call: Call,
        token: str,
        most: int,
        *,
        side: Side = Side.MAIN,
        mode: Mode = "lock",
        room: int = ROOM,
        waiter: str = "",
        waiting_for: int = 1,
        session: str | None = None,
    ) -> Received:
        """Give out the wanted messages that fit, at least one: the most urgent level first, and within a level the
        oldest message first.

        If a session is locked under the token, give out its next messages, up to the limit of held messages.
        """
        waits_at = side.value if session is None else HOLDERS
        given: list[Message] = []
        fence = 0

        def act() -> Received:
            nonlocal fence
            self._wait_no_longer(waits_at, waiter)
            found = given
            late: list[int] = []
            full = emptied = False
            wanted = most if session is None else self._most_of(session, most, call.now)
            for message in self._ready_in(session, side):
                if len(found) == wanted or full:
                    break
                if message.expires <= call.now:
                    assert self.more, "an expired message is left, but no due work"
                    late.append(len(message.record))
                    full = len(late) == self.bounds.share or sum(late) > self.bounds.weight
                elif found and sum(len(one.record) for one in found) + len(message.record) > room:
                    break
                else:
                    found.append(message)
            else:
                emptied = len(found) < wanted and not late and session is None
            waits = bool(waiter) and waiting_for > len(found) and (emptied or not found)
            if waits:
                self._wait(waits_at, waiter, waiting_for - len(found), call.now // 10, session)
            event = Event.RECEIVE if mode == "lock" else Event.RECEIVE_AND_DELETE
            given_out = self._give_out(found, event, token, call.now, side)
            fence = given_out.fence
            if waits and found:
                self.sooner = None  # the receiver knows the end of its new locks, so no waiter needs to learn it
            due = self._next_due(call.now, self.offset, side)
            return replace(given_out, due=due, waits=True) if waits else given_out

        sound = 1 <= most <= MOST and room >= 1 and 0 <= waiting_for <= MOST
        return self._perform(
            call,
            act,
            sound=sound and (session is None or side is Side.MAIN),
            early=self._none_has_sessions(session),
            refusal=self._refusal_in_session(call, token, session, side)
            or self._refusal_of_token(token, session)
            or self._refusal_of_forwarding(side)
            or self._refusal_of_receive(),
            again=lambda later: self._still(later, token, given, fence, f"{waiter} {waits_at}", side),
        )

    def look(
        self,
        call: Call,
        *,
        side: Side = Side.MAIN,
        waiter: str = "",
        waiting_for: int = 1,
        session: str | None = None,
        token: str = "",
    ) -> Looked:
        """Return whether there is a message, even an expired one; if not, wait, and return the next due time."""
        waits_at = side.value if session is None else HOLDERS

        def act() -> Looked:
            self._wait_no_longer(waits_at, waiter)
            gives = session is None or self._most_of(session, 1, call.now) > 0
            if gives and self._ready_in(session, side):
                return Looked(found=True, more=self.more)
            if waiter and waiting_for:
                self._wait(waits_at, waiter, waiting_for, call.now // 10, session)
            return Looked(due=self._next_due(call.now, self.offset, side), more=self.more)

        return self._perform(
            call,
            act,
            sound=not call.lane and 0 <= waiting_for <= MOST and (session is None or side is Side.MAIN),
            early=self._none_has_sessions(session),
            refusal=self._refusal_in_session(call, token, session, side)
            or self._refusal_of_forwarding(side)
            or self._refusal_of_receive(),
        )

    def _ready_in(self, session: str | None, side: Side) -> list[Message]:
        """Return the messages that are ready; those of a session are ordered by number, whatever their levels."""
        if session is None:
            return self._ready(side)
        mine = [message for message in self._ready(Side.MAIN) if message.session == session]
        return sorted(mine, key=lambda message: message.number)

    def _most_of(self, name: str, wanted: int, now: int) -> int:
        """Return how many messages of a session may be given out, and end the waiting of its holder."""
        session = self.sessions[name]
        self._wait_no_longer(HOLDERS, session.waiter)
        session.waiter = ""
        left = self.bounds.held - len(self._held(session.token)) if self._gives(name, now) else 0
        return min(wanted, left)

    def _wait(self, side: str, waiter: str, waiting_for: int, now: int, session: str | None = None) -> None:
        """Let a receiver wait at one side or at both, and forget some of the waiters that are gone."""
        for gone in [name for name in self._asleep(side) if self.waiters[name].until < now][:10]:
            del self.waiters[gone]
        self.waiters[f"{waiter} {side}"] = Waiter(side, now + WAITING, min(waiting_for, 127))
        self.told = True
        if session is not None:
            self.sessions[session].waiter = waiter

    def receive_deferred(
        self,
        call: Call,
        token: str,
        names: Sequence[str],
        *,
        mode: Mode = "lock",
        room: int = ROOM,
        session: str | None = None,
        wide: bool = False,
    ) -> Received:
        """Give out deferred messages by name, or none if one is missing. With ``wide`` they may be active or delayed.

        An expired message counts as missing, and this call makes it expire.
        If none is missing, give out the first messages that fit, at least one; or delete all of them if all fit.
        """
        absent: list[str] = []  # the missing messages; a repetition of the call reports the same ones
        given: list[Message] = []
        left = fence = 0
        event = Event.RECEIVE_DEFERRED if mode == "lock" else Event.RECEIVE_DEFERRED_AND_DELETE

        def find() -> list[Message]:
            states = (State.DEFERRED, State.ACTIVE, State.KEPT, State.DELAYED) if wide else (State.DEFERRED,)
            there = {message.name: message for state in states for message in self._find(names, state)[0]}
            found = [there[name] for name in names if name in there]
            return [message for message in found if session is None or message.session == session]

        def act() -> Received:
            nonlocal left, fence
            found = find()
            there = {message.name for message in found if message.expires > call.now}
            for message in found:
                if message.expires <= call.now:
                    self._move(message, event, call.now)
            absent.extend(name for name in names if name not in there)
            if absent:
                return Received(missing=tuple(absent), more=self.more)
            weights = accumulate(len(message.record) for message in found)
            fit = max(1, sum(weight <= room for weight in weights))
            if fit < len(found) and mode == "delete":
                fit = 0
            left = len(found) - fit
            given.extend(found[:fit])
            given_out = self._give_out(given, event, token, call.now)
            fence = given_out.fence
            return replace(by_number(given_out), due=0, left=left)

        def again(later: Call) -> Received:
            if absent:
                return Received(missing=tuple(absent))
            return replace(by_number(self._still(later, token, given, fence)), due=0, left=left)

        def by_number(received: Received) -> Received:
            return replace(received, messages=tuple(replace(one, state="g") for one in received.messages))

        refusal = self._refusal_of_receive()
        if (not refusal and any(not name.startswith("d") for name in names)) or (not refusal and session is not None):
            refusal = self._refusal_in_session(call, token, session, Side.MAIN)
        if not refusal and session is not None and mode == "lock":
            full = len(self._held(token)) + len(names) > self.bounds.held
            refusal = ("HELD", str(self.bounds.held)) if full else None
        return self._perform(
            call,
            act,
            sound=self._are_names(names) and room >= 1 and not self._refusal_of_token(token, session),
            early=self._none_has_sessions(session),
            refusal=refusal,
            again=again,
            undecided=lambda: wide or len(find()) < len(names),
        )

    def _none_has_sessions(self, session: str | None = "") -> tuple[str, str] | None:
        return None if session is None or self.settings.sessions else ("SESSIONS", "none")

    def _refusal_in_session(self, call: Call, token: str, session: str | None, side: Side) -> tuple[str, str] | None:
        if session is None:
            return ("SESSIONS", "required") if self.settings.sessions and side is Side.MAIN else None
        return None if self._has_lock(session, token, call) else ("LOST", "session")

    def _refusal_of_token(self, token: str, session: str | None) -> tuple[str, str] | None:
        return ("BADCALL", "token") if session is None and token in self.leases else None

    def _refusal_of_forwarding(self, side: Side) -> tuple[str, str] | None:
        return ("FORWARDS", "receive") if self.settings.forwards and side is Side.MAIN else None

    def _refusal_of_receive(self) -> tuple[str, str] | None:
        status = self.settings.status
        return ("DISABLED", status) if status in ("ReceiveDisabled", "Disabled") else None

    def _give_out(self, found: list[Message], event: Event, token: str, now: int, side: Side = Side.MAIN) -> Received:
        if not found:
            return Received(due=self._next_due(now, self.offset, side), more=self.more)
        given = tuple(message.delivery() for message in found)
        for message in found:
            self._move(message, event, now)
        if found[0].state not in (State.LOCKED, State.HELD):
            return Received(given, more=self.more)
        for message in found:
            message.token = token
        fence = 0
        if found[0].state is State.LOCKED:
            self._hold(token, self.clk + self.settings.lock_duration, found)
            self.granted = fence = self.granted + 1
        return Received(given, lock=self.settings.lock_duration, more=self.more, fence=fence)

    def _still(  # noqa: PLR0917 -- a repetition of a receive
        self,
        call: Call,
        token: str,
        given: Sequence[Message],
        fence: int,
        waiter: str = "",
        side: Side = Side.MAIN,
    ) -> Received:
        """Answer a repeated receive.

        Return the messages of the first answer that the token still holds, the time left of the lock, and whether the
        receiver waits.
        """
        lease, now = self.leases.get(token), self._clock(call)[0]
        left = lease.until - now if lease else 0
        still = [message for message in given if message.token == token] if left > 0 else []
        waits = waiter in self.waiters
        due = self._next_due(call.now, now - call.now, side if waits else Side.MAIN)
        if not still:
            return Received(due=due, waits=waits, fence=fence)
        return Received(
            tuple(message.delivery() for message in still), lock=left, due=due if waits else 0, waits=waits, fence=fence
        )

    def peek(
        self,
        call: Call,
        start: int,
        wanted: int,
        *,
        side: Side = Side.MAIN,
        room: int = ROOM,
        states: Collection[State] = frozenset(LETTERS),
        session: str | None = None,
    ) -> Peeked:
        """Return messages from this number on, by number, in their states after all due work; change nothing."""
        sound = start >= 0 and 1 <= wanted <= MOST and room >= 1 and set(states) <= set(LETTERS)
        self._check_reading(
            call,
            sound=sound and (session is None or side is Side.MAIN),
            early=self._none_has_sessions(session),
        )
        found: list[Message] = []
        there = self._foreseen(call)
        for number, message in sorted(there.messages[side].items()):
            if number < start or message.state not in states or (session is not None and message.session != session):
                continue
            if len(found) == wanted or (found and sum(len(m.record) for m in found) + len(message.record) > room):
                break
            found.append(message)
        return Peeked(tuple(message.delivery(message.state) for message in found), there.more)

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.COMPLETE)

    def abandon(self, call: Call, locks: Sequence[Lock], *, counted: bool = True) -> Settled:
        return self._settle(call, locks, Event.ABANDON if counted else Event.RELEASE)

    def defer(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.DEFER)

    def dead_letter(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.DEAD_LETTER)

    def _settle(self, call: Call, locks: Sequence[Lock], event: Event) -> Settled:
        plan = self.plan_settle(call, Together(), locks, event)

        def answer(settled: Settled) -> Settled:
            return replace(settled, more=self.more)

        return self._carry_out(call, plan, answer)

    def plan_settle(self, call: Call, together: Together, locks: Sequence[Lock], event: Event) -> Plan:
        def strict() -> tuple[str, str] | None:
            """Return the refusal of a transaction, which needs the locks of all messages, each for one operation."""
            logical, lost = self._clock(call)[0], []
            for lock in grouped(locks):
                if self._locked(lock, logical) is None or (id(self), lock.name) in together.settled:
                    lost.append(lock.name)
                else:
                    together.settled.add((id(self), lock.name))
            dead = [lock.name for lock in grouped(locks) if event is Event.DEAD_LETTER and lock.name.startswith("d")]
            if dead:
                return "DEAD", dead[0]
            return ("UNLOCKED", " ".join(lost)) if lost else None

        def act() -> Settled:
            lost: list[str] = []
            unfit: list[str] = []
            for lock in grouped(locks):
                message = self._locked(lock)
                if message is None or lock.name in unfit:
                    lost.append(lock.name)
                elif (message.side, message.state, event) not in TRANSITIONS:
                    unfit.append(lock.name)
                else:
                    message.changes = lock.changes or message.changes
                    self._move(message, event, call.now, delay=lock.delay)
            self._forget_empty_leases()
            return Settled(tuple(lost), tuple(unfit))

        return Plan(act, 1 <= len(locks) <= MOST and all(0 <= lock.delay <= NEVER for lock in locks), strict=strict)

    def renew(self, call: Call, token: str, locks: Sequence[Lock]) -> Renewed:
        """Renew locks. A lease keeps its token if all of its messages are named; a named part gets a new lease."""
        until: list[int] = []

        def act() -> Renewed:
            until.append(self.clk + self.settings.lock_duration)
            named: dict[str, list[Message]] = {}
            lost: list[str] = []
            for lock in grouped(locks):
                message = self._locked(lock)
                if message is None or message in named.get(lock.token, []):
                    lost.append(lock.name)
                else:
                    named.setdefault(lock.token, []).append(message)
                    self._move(message, Event.RENEW, call.now)
            moved: list[Message] = []
            for old, messages in named.items():
                lease = self.leases[old]
                if lease.session is not None or len(messages) == len(self._held(old)):
                    self._hold(old, until[0], lease.messages, lease.session)
                else:
                    moved += messages
            for message in moved:
                message.token = token
            if moved:
                self._hold(token, until[0], moved)
            names = tuple(message.name for message in moved)
            return Renewed(self.settings.lock_duration, tuple(lost), names, self.more)

        def again(later: Call) -> Renewed:
            return replace(first, lock=max(0, until[0] - self._clock(later)[0]), more=False)

        sound = 1 <= len(locks) <= MOST and token not in self.leases
        first = self._perform(call, act, sound=sound, again=again)
        return first

    def redrive(self, call: Call, messages: Sequence[Redrive]) -> Redriven:
        """Move dead letters that are not locked back to the main side, the first ones that fit, as new messages."""

        def find() -> tuple[list[Redrive], tuple[str, ...]]:
            dead = {one.name: one for one in self.messages[Side.DEAD].values() if one.state in redrivable}
            return [one for one in messages if one.name in dead], tuple(
                one.name for one in messages if one.name not in dead
            )

        def act() -> Redriven:
            there, missing = find()
            weights = accumulate(len(self._dead(one.name).record) for one in there)
            fit = max(min(1, len(there)), sum(weight <= self.bounds.weight for weight in weights))
            first, unfit = self.seq + 1, []
            for one in there[:fit]:
                message = self._dead(one.name)
                session = session_of(message.payload) if self.settings.sessions else None
                if self.settings.sessions and session is None:
                    unfit.append(one.name)
                    continue
                message.session, message.changes = session, one.changes
                message.time_to_live = NEVER if one.time_to_live is None else min(one.time_to_live, NEVER)
                self._move(message, Event.REDRIVE, call.now)
                self.touched |= {session} if session is not None else set()
            return Redriven(first, missing, tuple(unfit), len(there) - fit, self.dead_seq, self.more)

        redrivable = {state for of, state, event in TRANSITIONS if event is Event.REDRIVE and of is Side.DEAD}
        names = [one.name for one in messages]
        sound = not names or (self._are_names(names) and all(name.startswith("d") for name in names))
        sound = sound and all(one.time_to_live is None or one.time_to_live >= 0 for one in messages)
        status = self.settings.status
        return self._perform(
            call,
            act,
            sound=sound and not self.settings.topic,
            refusal=("DISABLED", status) if status != "Active" else None,
            undecided=lambda: bool(find()[1]),
        )

    def _dead(self, name: str) -> Message:
        return self.messages[Side.DEAD][int(name[1:])]

    # -- administration ------------------------------------------------------------------------------------------------

    def purge(
        self,
        call: Call,
        before: int,
        *,
        side: Side = Side.MAIN,
        share: int = MOST,
        start: int = 0,
        session: str | None = None,
    ) -> Purged:
        """Look at ``share`` messages in the order of their scores, and delete those enqueued before the given time.

        The messages of one session are looked at in the order of their numbers, whatever their levels are.
        """

        def place(message: Message) -> int:
            return message.number if session is not None and message.state is State.ACTIVE else message.score

        def act() -> Purged:
            there = [message for message in self.messages[side].values() if message.state in purgeable]
            there = [message for message in there if session is None or message.session == session]
            there = sorted((message for message in there if place(message) >= start), key=place)
            looked = list(self._within(there[:share], self.bounds.purged))
            old = [one for one in looked if one.enqueued is not None and one.enqueued < before]
            used_up = len(looked) == share or sum(len(one.record) for one in looked) >= self.bounds.purged
            onwards = place(looked[-1]) + 1 if used_up else None
            for message in old:
                self._move(message, Event.PURGE, call.now)
            return Purged(len(old), onwards, self.more)

        purgeable = {state for of, state, event in TRANSITIONS if event is Event.PURGE and of is side}
        sound = 1 <= share <= MOST and before >= 0 and start >= 0 and (session is None or side is Side.MAIN)
        return self._perform(call, act, sound=sound, early=self._none_has_sessions(session), undecided=lambda: True)

    @staticmethod
    def _within(messages: Iterable[Message], room: int) -> Iterator[Message]:
        """Yield the first messages until no room is left; the last message may be larger than the remaining room."""
        for message in messages:
            if room <= 0:
                return
            room -= len(message.record)
            yield message

    def count(self, call: Call) -> Counts:
        """Return how many messages are in each state after all due work; change nothing."""
        self._check_reading(call)
        there = self._foreseen(call)
        states = Counter((side, message.state) for side in Side for message in there.messages[side].values())
        due = 1 if there.more else there._next_due(call.now, self._clock(call)[0] - call.now)
        # The topic removes the records that a subscription no longer needs.
        size = self.bytes if self.settings.shared else there.bytes
        return Counts(there.more, due, size, there.seq, {at: states[at] for at in BANDS if at not in RESERVED})

    def due(self, call: Call) -> Awoken:
        """Do only due work."""

        def act() -> Awoken:
            return Awoken(self._next_due(call.now, self.offset), self.more)

        def again(later: Call) -> Awoken:
            return replace(awoken, due=self._next_due(later.now, self._clock(later)[0] - later.now))

        awoken = self._perform(call, act, share=5 * self.bounds.share, again=again)
        return awoken

    def configure(self, call: Call, settings: Settings, *, create: bool = False) -> int:
        """Make the partition. If it exists already, do all due work, and then set the settings and the version of the
        call.
        """
        if not call.sound:
            self._refuse("BADCALL", "settings")
        if not self.exists and create:
            self._clear()
            self.exists, self.incarnation, self.run_id = True, call.incarnation, call.run_id
            self.version, self.settings = call.version, settings
        self._check_existence(call)
        if call.version < self.version:
            self._refuse("STALE", str(self.version))
        ours = self.settings
        for name, differs in (
            ("clock", settings.clock != ours.clock),
            ("window", (settings.duplicate_window is None) is not (ours.duplicate_window is None)),
            ("shared", settings.shared is not ours.shared),
            ("sessions", settings.sessions is not ours.sessions),
            ("topic", settings.topic is not ours.topic),
        ):
            if differs:
                self._refuse("FIXED", name)
        if call.version > self.version and self._overdue(call):
            self._put_off(call, lambda: True)
        self.settings, self.version = settings, call.version
        return self.version

    def destroy(self, call: Call) -> bool:
        """Remove everything. The answer says that no further step is needed, even if the partition does not exist."""
        if not call.sound:
            self._refuse("BADCALL", "share")
        if self.exists:
            self._check_existence(call)
        self._clear()
        return False


def grouped(locks: Sequence[Lock]) -> list[Lock]:
    """Return the locks in the order of a request: grouped by token, the tokens in the order of first appearance."""
    tokens = list(dict.fromkeys(lock.token for lock in locks))
    return sorted(locks, key=lambda lock: tokens.index(lock.token))
