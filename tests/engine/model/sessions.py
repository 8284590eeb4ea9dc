"""The operations of the model on sessions, each with the arguments of its request in ``sbredis.engine._partition``."""

from __future__ import annotations

from collections.abc import Iterator

from sbredis.engine import Accepted, Purged, SessionsListed
from tests.engine.model.operations import Model
from tests.engine.model.values import MOST, Call, Message, Plan, Session, Together, Told
from tests.engine.terms import Event, Side, State

__all__ = ["SessionModel"]


class SessionModel(Model):
    """A partition whose messages may belong to sessions."""

    def accept_session(self, call: Call, token: str, name: str) -> Accepted:
        """Lock the named session, with or without messages."""
        found: list[Accepted] = []

        def act() -> Accepted:
            self._take_turns(call.now)
            found.append(self._accept(name, token))
            return found[0]

        def again(later: Call) -> Accepted:
            first, logical = found[0], self._clock(later)[0]
            if first.outcome == "taken" and self._has_lock(name, token, later):
                return Accepted(False, self.leases[token].until - logical, "taken", name, first.fence)
            return Accepted(False, 0, "none" if first.outcome == "taken" else first.outcome, name, 0)

        return self._perform(
            call,
            act,
            sound=token not in self.leases,
            early=self._none_has_sessions(),
            refusal=self._refusal_of_forwarding(Side.MAIN) or self._refusal_of_receive(),
            again=again,
        )

    def accept_next(self, call: Call, token: str) -> Accepted | None:
        """Lock the session that has been free for longest, with credit that ends with the reply."""

        def act() -> Accepted | None:
            self._take_turns(call.now)
            free = sorted((one.free, key) for key, one in self.sessions.items() if one.free is not None)
            return self._accept(free[0][1], token) if free else None

        return self._perform(
            call,
            act,
            sound=not call.lane,
            late=lambda: (
                self._refusal_of_receive() or self._none_has_sessions() or self._refusal_of_forwarding(Side.MAIN)
            ),
        )

    def _accept(self, name: str, token: str) -> Accepted:
        session = self.sessions.setdefault(name, Session())
        if session.token:
            lapsing = self.leases[session.token].until <= self.clk
            return Accepted(self.more, 0, "lapsing" if lapsing else "locked", name, 0)
        session.token, session.barred, session.free = token, False, None
        self._hold(token, self.clk + self.settings.lock_duration, [], name)
        self.granted += 1
        return Accepted(self.more, self.settings.lock_duration, "taken", name, self.granted)

    def _lost(self, call: Call, name: str, token: str) -> tuple[str, str] | None:
        return None if self._has_lock(name, token, call) else ("LOST", "session")

    def renew_session(self, call: Call, name: str, token: str) -> Told:
        until: list[int] = []

        def act() -> Told:
            until.append(self.clk + self.settings.lock_duration)
            self._hold(token, until[0], [], name)
            return Told(self.settings.lock_duration, self.more)

        return self._perform(
            call,
            act,
            early=self._none_has_sessions(),
            refusal=self._lost(call, name, token),
            again=lambda later: Told(max(0, until[0] - self._clock(later)[0])),
        )

    def release_session(self, call: Call, name: str, token: str) -> Told:
        """Give a session back with all its held messages; their delivery counts do not rise."""

        def act() -> Told:
            held = sorted(self._held(token), key=lambda message: message.number)
            for message in held:
                self._move(message, Event.RELEASE, call.now)
            self._unlock(name, call.now)
            return Told(len(held), self.more)

        return self._perform(call, act, early=self._none_has_sessions(), refusal=self._lost(call, name, token))

    def set_state(self, call: Call, name: str, token: str, state: bytes | None) -> Told:
        plan = self.plan_state(call, Together(), name, token, state)
        return self._carry_out(call, plan, lambda _: Told(self.more, self.more), Told(False))

    def plan_state(self, call: Call, together: Together, name: str, token: str, state: bytes | None) -> Plan:
        def act() -> None:
            session = self.sessions[name]
            session.state, session.stated = state, call.now if state is not None else 0

        owner, size = self.store.carriers[0].settings, len(state or b"")
        refusal, growth = self._lost(call, name, token), 0
        pending = together.pending[id(self.store)]

        def full() -> tuple[str, str] | None:
            over = growth > 0 and self.bytes + pending + growth > owner.quota
            return ("QUOTA", f"{self.bytes} {owner.quota}") if over else None

        if not refusal:
            before = len(self.sessions[name].state or b"")
            growth = size - together.states.get((id(self), name), before)
            together.states[id(self), name] = size
            refusal = ("TOOLARGE", "0") if size > owner.largest_message else full()
        return Plan(act, early=self._none_has_sessions(), refusal=refusal, full=full, growth=growth)

    def get_state(self, call: Call, name: str, token: str) -> bytes | None:
        self._check_reading(call, early=self._none_has_sessions(), refusal=self._lost(call, name, token))
        return self.sessions[name].state

    def peek_state(self, call: Call, name: str) -> bytes | None:
        self._check_reading(call, early=self._none_has_sessions())
        return self.sessions[name].state if name in self.sessions else None

    def list_sessions(self, call: Call, wanted: int, after: str | None = None) -> SessionsListed:
        """Return the sessions that have a state, or active or held messages, ordered by name."""
        self._check_reading(call, sound=1 <= wanted <= MOST, early=self._none_has_sessions())
        there = {key for key, one in self.sessions.items() if one.state is not None}
        listed = there | {one.session for one in self._of_sessions() if one.state in (State.ACTIVE, State.HELD)}
        stands = sorted({one.session or "" for one in self._of_sessions()} | there, key=_in_order)
        names: list[str] = []
        looked, last, more = 0, after, self._overdue(call)
        for name in stands:
            if after is not None and _in_order(name) <= _in_order(after):
                continue
            if len(names) == wanted or looked == 4 * wanted:
                return SessionsListed(tuple(names), (), last, more)
            looked, last = looked + 1, name
            names += [name] if name in listed else []
        full = len(names) == wanted or looked == 4 * wanted
        return SessionsListed(tuple(names), (), last if full else None, more)

    def list_sessions_since(self, call: Call, wanted: int, since: int, skip: int = 0) -> SessionsListed:
        """Return the sessions whose state was set at this time or later, ordered by the time of the state."""
        self._check_reading(call, sound=1 <= wanted <= MOST, early=self._none_has_sessions())
        found = sorted(
            (one.stated, name.encode())
            for name, one in self.sessions.items()
            if one.state is not None and one.stated >= since
        )[skip : skip + wanted]
        names, times = tuple(name.decode() for _, name in found), tuple(time for time, _ in found)
        return SessionsListed(names, times, None, self._overdue(call))

    def _of_sessions(self) -> Iterator[Message]:
        return (one for one in self.messages[Side.MAIN].values() if one.session is not None)

    def bury_session(self, call: Call, name: str, token: str, changes: bytes, *, share: int = 500) -> Purged:
        """Move a session's held, active and deferred messages, in this order, to the dead-letter side."""

        def act() -> Purged:
            moved, others = 0, False
            for state in (State.HELD, State.ACTIVE, State.DEFERRED):
                mine = [one for one in self._of_sessions() if one.session == name and one.state is state]
                mine = sorted(mine, key=lambda one: one.number)[: share - moved]
                fit = self._fitting(mine)
                for message in mine[:fit]:
                    both = message.changes[:-1] + changes[1:] if message.changes and changes else b""
                    message.changes = both or changes or message.changes
                    self._move(message, Event.BURY, call.now)
                moved += fit
                if fit < len(mine) or moved == share:
                    others = True
                    break
            self.touched.add(name)
            return Purged(self.more, moved, 0 if others else None)

        return self._perform(
            call,
            act,
            sound=1 <= share <= MOST,
            early=self._none_has_sessions(),
            refusal=self._lost(call, name, token),
            undecided=lambda: True,
        )

    def _fitting(self, messages: list[Message]) -> int:
        """Return how many of the messages may be read at once, at least one."""
        room = self.bounds.weight
        for place, message in enumerate(messages):
            room -= message.size
            if room < 0:
                return max(1, place)
        return len(messages)


def _in_order(name: str) -> bytes:
    """Return a sort key for names, as the partition orders them: the name and a byte that no name contains."""
    return name.encode() + b"\xff"
