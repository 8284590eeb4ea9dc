"""The operations of the model that give messages out or show them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from sbredis.engine import MAXIMUM_REPLY_BYTES, Peeked, Received
from tests.engine.model.sending import Sending
from tests.engine.model.values import LETTERS, MOST, ROOM, Call, Message, Mode
from tests.engine.terms import Event, Side, State


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
        session: str | None = None,
    ) -> Received:
        """Grant credit that ends with the reply.

        Give out the wanted messages that fit, at least one: the most urgent level first, and within a level the oldest
        message first. If a session is locked under the token, give out its next messages, up to the limit of held
        messages. A suspect is given alone.
        """

        def act() -> Received:
            found: list[Message] = []
            passed: list[int] = []
            wanted = most if session is None else self._most_of(session, most, call.now)
            for message in self._ready_in(session, side):
                suspect = message.suspect
                if len(found) == wanted or (found and suspect):
                    break
                if message.expires <= call.now:
                    assert self.more, "an expired message is left, but no due work"
                    passed.append(len(message.record))
                    if len(passed) == self.bounds.share or sum(passed) > self.bounds.weight:
                        break
                elif found and sum(one.size for one in found) + message.size > min(room, MAXIMUM_REPLY_BYTES):
                    break
                else:
                    found.append(message)
                    if suspect:
                        break
            event = Event.RECEIVE if mode == "lock" else Event.RECEIVE_AND_DELETE
            given = self._give_out(found, event, token, call.now)
            if session is not None and given.lock:
                given = given._replace(lock=self.leases[token].until - self.clk)
            return given

        return self._perform(
            call,
            act,
            sound=1 <= most <= MOST and room >= 1 and not call.lane and (session is None or side is Side.MAIN),
            late=lambda: (
                self._none_has_sessions(session)
                or (("LOST", "session") if session is not None and not self._has_lock(session, token, call) else None)
                or self._refusal_of_receive()
                or (("SESSIONS", "required") if session is None and self._needs_session(side) else None)
                or self._refusal_of_forwarding(side)
            ),
        )

    def _needs_session(self, side: Side) -> bool:
        return self.settings.sessions and side is Side.MAIN

    def _ready_in(self, session: str | None, side: Side) -> list[Message]:
        """Return the messages that are ready; those of a session are ordered by number, whatever their levels."""
        if session is None:
            return self._ready(side)
        mine = [message for message in self._ready(Side.MAIN) if message.session == session]
        return sorted(mine, key=lambda message: message.number)

    def _most_of(self, name: str, wanted: int, now: int) -> int:
        """Return how many messages of a session may be given out."""
        left = self.bounds.held - len(self._held(self.sessions[name].token)) if self._gives(name, now) else 0
        return min(wanted, left)

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
                return Received(self.more, 0, (), tuple(absent))
            if fit < len(found) and mode == "delete":
                fit = 0
            left = len(found) - fit
            given.extend(found[:fit])
            given_out = self._give_out(given, event, token, call.now)
            fence = given_out.fence
            return by_number(given_out)._replace(left=left)

        def again(later: Call) -> Received:
            if absent:
                return Received(False, 0, (), tuple(absent))
            return by_number(self._still(later, token, given, fence))._replace(left=left)

        def by_number(received: Received) -> Received:
            return received._replace(messages=tuple(one._replace(state="g") for one in received.messages))

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

    def _give_out(self, found: list[Message], event: Event, token: str, now: int) -> Received:
        if not found:
            return Received(self.more, 0, ())
        given = tuple(message.delivery() for message in found)
        for message in found:
            self._move(message, event, now)
        if found[0].state not in (State.LOCKED, State.HELD):
            return Received(self.more, 0, given)
        for message in found:
            message.token = token
        fence = 0
        if found[0].state is State.LOCKED:
            self._hold(token, self.clk + self.settings.lock_duration, found)
            self.granted = fence = self.granted + 1
        return Received(self.more, self.settings.lock_duration, given, fence=fence)

    def _still(self, call: Call, token: str, given: Sequence[Message], fence: int) -> Received:
        """Answer a repeated receive.

        Return the messages of the first answer that the token still holds, and the time left of the lock.
        """
        lease, now = self.leases.get(token), self._clock(call)[0]
        left = lease.until - now if lease else 0
        still = [message for message in given if message.token == token] if left > 0 else []
        if not still:
            return Received(False, 0, (), fence=fence)
        return Received(False, left, tuple(message.delivery() for message in still), fence=fence)

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
            call, sound=sound and (session is None or side is Side.MAIN), early=self._none_has_sessions(session)
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
