"""The operations of the model that give messages out or show them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate

from sbredis.engine._lifecycle import Event, Side, State
from tests.engine.model.sending import Sending
from tests.engine.model.values import (
    LETTERS,
    MOST,
    ROOM,
    Call,
    Looked,
    Message,
    Mode,
    Peeked,
    Received,
    Waiter,
)
from tests.engine.model.waiting import HOLDERS

WAITING = 3_000  # how long a waiter is remembered, in hundredths of a second


class Receiving(Sending):
    """A partition that gives messages to receivers."""

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
                elif found and sum(one.size for one in found) + message.size > room:
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

        An expired message counts as missing, and this call makes it expire, unless it does not fit.
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
            sizes = accumulate(message.size for message in found)
            fit = max(1, sum(size <= room for size in sizes))
            expired = [message for message in found[:fit] if message.expires <= call.now]
            there = {message.name for message in found if message not in expired}
            for message in expired:
                self._move(message, event, call.now)
            absent.extend(name for name in names if name not in there)
            if absent:
                return Received(missing=tuple(absent), more=self.more)
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
            if len(found) == wanted or (found and sum(one.size for one in found) + message.size > room):
                break
            found.append(message)
        return Peeked(tuple(message.delivery(message.state) for message in found), there.more)
