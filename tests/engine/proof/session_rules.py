"""The machine for partitions whose messages belong to sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sbredis.engine import NEVER, Content, Lock, Outgoing, PartitionSettings, SessionLock, encode
from tests.engine import model as m
from tests.engine.proof import draws
from tests.engine.proof.both import PLAIN
from tests.engine.proof.comparison import How, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.machine import AGAIN, Machine, every
from tests.engine.proof.scenes import UNHELD
from tests.engine.proof.town import Town
from tests.engine.terms import Side, State

ANY: dict[str, Callable[[Town, How], Any]] = {
    **UNHELD,
    "send": lambda both, how: both.send(how, [Outgoing(b"none")]),
}

DEFECTS = ("incarnation", "layout", "older", "unknown", "stale", "newer", "malformed", "", AGAIN)
WRONG = tuple((operation, defect) for operation in ANY for defect in DEFECTS)


class SessionMachine(Machine):
    """A partition with sessions, from its creation on."""

    what = "sessions"

    @initialize(settings=draws.settings, seq=some(draws.SEQUENCES), first=st.lists(draws.in_sessions, max_size=6))
    def begin(self, settings: PartitionSettings, seq: int, first: list[bytes]) -> None:
        settings = replace(settings, sessions=True)
        self.both = Town(self.host, settings, tally=self.tally, bounds=self.bounds)
        self.both.create(settings)
        self.both.number_from(seq)
        if first:
            self.both.send(PLAIN, [Outgoing(payload) for payload in first])

    # -- sending -------------------------------------------------------------------------------------------------------

    @rule(how=hows, messages=draws.session_messages)
    def send(self, how: How, messages: list[tuple[Outgoing, int | None]]) -> None:
        now = self.both.now
        made = [one if wait is None else one._replace(due=moment(now + wait)) for one, wait in messages]
        self.both.send(how, made)

    @rule(how=hows, payloads=st.lists(draws.in_sessions, min_size=1, max_size=5))
    def send_plain(self, how: How, payloads: list[bytes]) -> None:
        self.both.send(how, [Outgoing(payload) for payload in payloads])

    # -- the lock on a session -----------------------------------------------------------------------------------------

    @rule(how=hows, name=some([None, None, None, *draws.SESSIONS]), old=rarely[20], again=rarely[8])
    def accept(self, how: How, name: str | None, old: bool, again: bool) -> None:
        if name is None:
            self.both.accept_next(how, self.both.token())
            return
        self.both.accept_session(how, self.token(old), name)
        if again and how.lane in self.both.frozen:
            self.both.again(how.lane)

    @rule(how=hows, name=some([None, None, *draws.SESSIONS]), wanted=some([1, 2, 5]))
    def accept_and_receive(self, how: How, name: str | None, wanted: int) -> None:
        token = self.both.token()
        self.both.accept(token, name)
        lease = self.model.leases.get(token)
        if lease and lease.session is not None:
            self.both.receive(how, token, wanted, session=lease.session)

    @precondition(lambda self: self.holders())
    @rule(data=st.data(), how=hows)
    def renew_session(self, data: st.DataObject, how: How) -> None:
        self.both.renew_session(how, self.holder(data))

    @precondition(lambda self: self.holders())
    @rule(data=st.data(), how=hows)
    def release_session(self, data: st.DataObject, how: How) -> None:
        self.both.release_session(how, self.holder(data))

    # -- receiving -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), how=hows, side=draws.sides, mode=draws.modes, wanted=some([1, 1, 2, 3, 10]), room=draws.rooms)
    def receive(self, *, data: st.DataObject, how: How, side: Side, mode: m.Mode, wanted: int, room: int) -> None:
        if side is Side.MAIN and self.holders():
            lock = self.holder(data)
            self.both.receive(how, lock.token, wanted, session=lock.name, room=room, mode=mode)
        else:
            self.both.receive(how, self.both.token(), wanted, side=side, room=room, mode=mode)

    @precondition(lambda self: self.holders())
    @rule(data=st.data(), wanted=some([1, 2, 10]))
    def receive_and_complete(self, data: st.DataObject, wanted: int) -> None:
        lock = self.holder(data)
        given = self.both.receive(PLAIN, lock.token, wanted, session=lock.name)
        if not isinstance(given, m.Refused) and given.messages:
            self.both.complete(PLAIN, [Lock(lock.token, one.name) for one in given.messages])

    @precondition(lambda self: self.those(State.DEFERRED))
    @rule(data=st.data(), how=hows, mode=draws.modes)
    def receive_deferred(self, data: st.DataObject, how: How, mode: m.Mode) -> None:
        names = self.names(data, State.DEFERRED)
        under_a_lock: bool = data.draw(st.booleans())
        if self.holders() and under_a_lock:
            lock = self.holder(data)
            self.both.receive_deferred(how, lock.token, names, mode, lock.name)
        else:
            self.both.receive_deferred(how, self.both.token(), names, mode)

    @precondition(lambda self: self.holders() and self.messages_of(Side.MAIN))
    @rule(data=st.data(), how=hows, mode=draws.modes)
    def receive_by_number_in_a_session(self, data: st.DataObject, how: How, mode: m.Mode) -> None:
        lock = self.holder(data)
        mine = [one.name for one in self.messages_of(Side.MAIN) if one.session == lock.name] or ["77777"]
        names = data.draw(st.lists(some([*mine, self.messages_of(Side.MAIN)[0].name]), min_size=1, unique=True))
        self.both.receive_deferred(how, lock.token, names, mode, lock.name, wide=True)

    @precondition(lambda self: self.deferred_of_holders())
    @rule(data=st.data(), how=hows, mode=draws.modes, room=draws.rooms, late=rarely[4])
    def receive_own_deferred(self, data: st.DataObject, how: How, mode: m.Mode, room: int, late: bool) -> None:
        """Receive one or all of the deferred messages of a session; some may have expired."""
        there = self.deferred_of_holders()
        one, lock = data.draw(some(there))
        names = data.draw(some([[one.name], [other.name for other, theirs in there if theirs == lock]]))
        if late and one.expires < NEVER - 1:
            self.both.now = max(self.both.now, one.expires)
        self.both.receive_deferred(how, lock.token, names, mode, lock.name, room=room)

    @every(6, 1)
    @rule(
        how=hows,
        start=some([0, 1, 3]),
        session=some(draws.SESSIONS),
        wanted=some([1, 3, 50]),
        states=some(["alwfs", "af", "ls"]),
    )
    def peek(self, how: How, start: int, session: str, wanted: int, states: str) -> None:
        self.both.peek(how, start, wanted, session=session, states=states)

    @every(3, 1)
    @rule(data=st.data(), how=hows, share=some([1, 2, 1_000]), early=rarely[2], onwards=rarely[4])
    def purge_session(self, *, data: st.DataObject, how: How, share: int, early: bool, onwards: bool) -> None:
        """Purge one session, preferably one with deferred messages."""
        there = list(self.model.messages[Side.MAIN].values())
        deferred = sorted({one.session for one in there if one.session is not None and one.state is State.DEFERRED})
        session = data.draw(some([*draws.SESSIONS, *2 * deferred]))
        before = data.draw(some(sorted({message.enqueued or 0 for message in there} or {0})))
        before = before if early else self.both.now + 1
        start = data.draw(some([message.score for message in there])) if onwards and there else 0
        self.both.purge(how, before, share=share, start=start, session=session)

    # -- state, listing, burying ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.holders())
    @rule(data=st.data(), how=hows, state=draws.states)
    def set_state(self, data: st.DataObject, how: How, state: bytes | None) -> None:
        lock = self.holder(data)
        self.both.set_state(how, lock, state)
        self.both.get_state(PLAIN, lock)
        self.both.peek_state(how, lock.name)

    @every(4, 3)
    @rule(how=hows, state=draws.states, then=some([None, b"other"]))
    def keep_the_state_of_one_without_messages(self, how: How, state: bytes | None, then: bytes | None) -> None:
        token = self.both.token()
        self.both.accept_session(PLAIN, token, "never sent to")
        for kept in (state, then):
            self.both.set_state(how, SessionLock("never sent to", token), kept)
            self.both.list_sessions(PLAIN, 10)
        self.both.release_session(PLAIN, SessionLock("never sent to", token))

    @every(4, 1)
    @rule(how=hows, wanted=some([1, 2, 10]), after=some([None, *draws.SESSIONS]), skip=some([0, 1]))
    def list_sessions(self, how: How, wanted: int, after: str | None, skip: int) -> None:
        self.both.list_sessions(how, wanted, after)
        times = [0, *(one.stated for one in self.model.sessions.values() if one.state is not None)]
        self.both.list_sessions_since(how, wanted, max(times), skip)
        self.both.list_sessions_since(how, wanted, 0, skip)

    @precondition(lambda self: self.holders())
    @every(3, 0)
    @rule(data=st.data(), how=hows, changed=some([b"", b"\x01\x02\x01r\x00"]), share=some([1, 2, 500]))
    def bury_session(self, data: st.DataObject, how: How, changed: bytes, share: int) -> None:
        self.both.bury_session(how, self.holder(data), changed, share)

    # -- aimed at rare situations --------------------------------------------------------------------------------------

    @rule(data=st.data())
    def call_wrongly(self, data: st.DataObject) -> None:
        self.make_wrong_calls(data, WRONG, ANY)

    @precondition(lambda self: not self.both.settings.sessions)
    @rule(operations=st.lists(some(sorted(ANY)), min_size=3, max_size=6))
    def ask_for_sessions_where_there_are_none(self, operations: list[str]) -> None:
        for operation in operations:
            ANY[operation](self.both, PLAIN)

    @precondition(lambda self: self.holders())
    @rule(
        data=st.data(),
        how=hows,
        delay=some([0, 800, 30_000, NEVER]),
        counted=st.booleans(),
        then=some(["", "release", "wait", "lapse"]),
        lives=some([None, None, 900]),
    )
    def give_back_the_first(  # noqa: PLR0917 -- the values to choose from
        self, data: st.DataObject, how: How, delay: int, counted: bool, then: str, lives: int | None
    ) -> None:
        """Receive the next message of a session and give it back; later messages must then wait for it."""
        lock = self.holder(data)
        if not any(one.session == lock.name for one in self.those(State.ACTIVE, Side.MAIN)):
            payload = encode(Content(b"first", session_id=lock.name))
            self.deliver([Outgoing(payload, time_to_live=lives), Outgoing(payload)])
        given = self.both.receive(PLAIN, lock.token, 1, session=lock.name)
        if isinstance(given, m.Refused) or not given.messages:
            return
        self.both.abandon(how, [Lock(lock.token, given.messages[0].name, b"", delay)], counted=counted)
        if then == "release":
            self.both.release_session(PLAIN, lock)
            self.both.accept_next(PLAIN, self.both.token())
        elif then == "wait":
            self.both.receive(PLAIN, lock.token, 2, session=lock.name)
        elif then == "lapse":
            self.both.now = max(self.both.now, self.model.leases[lock.token].until - self.model.offset)
            self.both.accept_session(PLAIN, self.both.token(), lock.name)

    @precondition(lambda self: self.holders())
    @rule(
        data=st.data(),
        payloads=st.lists(draws.in_sessions, min_size=1, max_size=3),
        later=some([0, 0, 1_010, 29_999, 30_010]),
        due=some([None, None, 500]),
    )
    def stand_in_line(self, data: st.DataObject, payloads: list[bytes], later: int, due: int | None) -> None:
        """Let receivers find nothing in a session, and no free session, then send messages."""
        lock = self.holder(data)
        self.both.receive(PLAIN, lock.token, 1, session=lock.name)
        for _ in range(2):
            self.both.accept_next(PLAIN, self.both.token())
            self.both.now += 10
        self.both.now += later
        due = None if due is None else moment(self.both.now + due)
        self.deliver([Outgoing(payload, due=due) for payload in payloads])
        self.both.now += later
        self.both.due()

    @precondition(lambda self: self.both.settings.sessions)
    @every(2, 1)
    @rule(
        how=hows,
        deferring=st.booleans(),
        late=st.booleans(),
        then=some(["abandon", "abandon", "release", "lapse", "bury", "renew", "full"]),
    )
    def end_what_is_held(self, how: How, deferring: bool, late: bool, then: str) -> None:
        """End or renew the hold on a message, which may have been deferred before or may have expired."""
        lock = SessionLock("held", self.both.token())
        payload = encode(Content(b"m", session_id=lock.name))
        self.both.accept_session(PLAIN, lock.token, lock.name)
        self.deliver([Outgoing(payload, time_to_live=50)])
        given = self.both.receive(PLAIN, lock.token, 1, session=lock.name)
        if isinstance(given, m.Refused) or not given.messages:
            return
        locks = [Lock(lock.token, given.messages[0].name)]
        if deferring:
            self.both.defer(PLAIN, locks)
            if then == "full":
                self.deliver([Outgoing(payload)] * min(self.bounds.held, 10))
                self.both.receive(PLAIN, lock.token, 10, session=lock.name)
            self.both.receive_deferred(PLAIN, lock.token, [locks[0].name], "lock", lock.name)
        self.both.now += 60 if late else 0
        if then == "abandon":
            self.both.abandon(how, locks)
        elif then == "bury":
            self.both.bury_session(how, lock, b"", 5)
        elif then == "renew":
            self.both.renew(how, locks)
        elif then == "lapse" and lock.token in self.model.leases:
            self.both.now = max(self.both.now, self.model.leases[lock.token].until - self.model.offset)
            self.both.due()
        self.both.release_session(how, lock)

    @precondition(lambda self: self.holders() and self.bounds.held < 10)
    @every(2, 1)
    @rule(data=st.data(), then=some(["complete", "abandon", "defer", "nothing"]))
    def take_all_that_may_be_out(self, data: st.DataObject, then: str) -> None:
        """Receive as many messages as may be held, and wait for more. These come only after one is settled."""
        lock = data.draw(some(self.holders()))
        payload = encode(Content(b"more", session_id=lock.name))
        self.deliver([Outgoing(payload)] * (self.bounds.held + 1))
        self.both.receive(PLAIN, lock.token, 10, session=lock.name)
        self.both.receive(PLAIN, lock.token, 10, session=lock.name)
        self.deliver([Outgoing(payload)])
        mine = [Lock(token, name) for token, name in self.held() if token == lock.token]
        if then != "nothing" and mine:
            getattr(self.both, then)(PLAIN, mine[:1])

    @every(2, 0)
    @rule(session=some(draws.SESSIONS), ttl=some([0, 0, 5]), purging=st.booleans())
    def come_and_go(self, session: str, ttl: int, purging: bool) -> None:
        """Activate a message and remove it in the same call."""
        due = moment(self.both.now + 20)
        self.deliver([Outgoing(encode(Content(b"brief", session_id=session)), None if purging else ttl, due=due)])
        self.both.now = due
        if purging:
            self.both.purge(PLAIN, self.both.now + 1)
        else:
            self.both.due()

    @precondition(lambda self: self.model.leases)
    @rule(long=rarely[4], off=some([-1, 0, 0]))
    def lapse(self, long: bool, off: int) -> None:
        """Let the first lock end, or all of them."""
        ends = [lease.until - self.model.offset for lease in self.model.leases.values()]
        ends = [end for end in ends if self.both.now < end < NEVER - 1] or [self.both.now]
        self.both.now = (max(ends) if long else min(ends)) + off
        self.both.due()

    @precondition(lambda self: any(one.blocked for one in self.model.sessions.values()))
    @rule(off=some([-1, 0, 0, 1]))
    def unblock(self, off: int) -> None:
        ends = [one.blocked for one in self.model.sessions.values() if one.blocked]
        self.both.now = min(ends) + off
        self.both.due()

    @every(6, 3)
    @rule(fixed=some(["sessions", "topic", "shared"]))
    def change_what_is_fixed(self, fixed: str) -> None:
        ours = self.both.settings
        changed = {
            "sessions": replace(ours, sessions=not ours.sessions, topic=False),
            "shared": replace(ours, shared=not ours.shared, topic=False),
            "topic": replace(ours, shared=False, sessions=False, topic=not ours.topic),
        }
        self.both.configure(PLAIN, changed[fixed])

    # -- choices -------------------------------------------------------------------------------------------------------

    def holders(self) -> list[SessionLock]:
        """Return the locks on sessions, including ended locks that have not lapsed yet."""
        leases = self.model.leases.items()
        return [SessionLock(lease.session, token) for token, lease in leases if lease.session is not None]

    def holder(self, data: st.DataObject) -> SessionLock:
        """Draw a lock on a session, or a lock with a mistake in it."""
        lock = data.draw(some(self.holders()))
        kind = data.draw(some([""] * 20 + ["name", "token"]))
        if kind == "name":
            return lock._replace(name=data.draw(some(draws.SESSIONS)))
        return lock._replace(token="x" * 11) if kind else lock

    def deferred_of_holders(self) -> list[tuple[m.Message, SessionLock]]:
        holders = {lock.name: lock for lock in self.holders()}
        there = self.those(State.DEFERRED, Side.MAIN)
        return [(one, holders[one.session]) for one in there if one.session in holders]
