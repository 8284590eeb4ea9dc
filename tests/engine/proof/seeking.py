"""Brings a given transition about: makes a message with the state and the properties that it needs, then the event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sbredis.engine import NEVER, Content, Lock, Outgoing, PartitionSettings, Redrive, SessionLock, encode
from tests.engine import model as m
from tests.engine.proof.both import EVENTS, PLAIN, Settlement
from tests.engine.proof.comparison import How, Transition
from tests.engine.proof.town import Town
from tests.engine.terms import Condition, Event, Side, State, band, score

__all__ = ["Seeker"]

BRIEF, LATER = 700, 2_000
"""A short time to live, and a delay that is longer."""
_EXPIRING = {Condition.EXPIRED, Condition.EXPIRED_KEPT}
_SETTLING: dict[Event, Settlement] = {**{event: what for what, event in EVENTS.items()}, Event.RELEASE: "abandon"}
_OF_TIME = {Event.LAPSE, Event.ACTIVATE, Event.WAKE, Event.EXPIRE}

Settle = Callable[[Settlement, Sequence[Lock], bool], None]


class Seeker:
    """Brings transitions about on one partition.

    ``deliver`` stores messages there, and ``settle`` settles the locked one, alone or in a transaction.
    """

    def __init__(self, town: Town, deliver: Callable[[list[Outgoing]], object], settle: Settle, how: How) -> None:
        self.town = town
        self.deliver = deliver
        self.settle = settle
        self.how = how

    @staticmethod
    def fits(ours: PartitionSettings, way: Transition) -> bool:
        """Return whether messages of such a partition can make this transition, after their first one."""
        side, state, event, condition = way
        if ours.topic or state is State.NEW or event is Event.PUBLISH:
            return False
        if side is Side.DEAD:
            return True
        if event in (Event.CANCEL, Event.ACTIVATE):
            return not ours.shared
        only_in_sessions = state is State.HELD or condition is Condition.SESSION or event is Event.BURY
        locks = event in (Event.RECEIVE, Event.RECEIVE_DEFERRED) and condition is Condition.OTHERWISE
        never_in_sessions = state in (State.LOCKED, State.DELAYED) or locks
        return not (never_in_sessions if ours.sessions else only_in_sessions)

    def bring_about(self, way: Transition) -> None:
        side, state, event, condition = way
        with self._settings(self._fitting(condition)):
            message = self._made(side, state, condition)
            if message is not None:
                self._let(event, message, condition)

    # -- settings ------------------------------------------------------------------------------------------------------

    def _fitting(self, condition: Condition) -> PartitionSettings:
        """Return the settings of the partition, changed only where they prevent the transition."""
        ours = self.town.settings
        brief = condition in _EXPIRING
        return replace(
            ours,
            status="Active",
            forwards=False,
            quota=max(ours.quota, 1 << 20),
            largest_message=max(ours.largest_message, 100),
            most_ids=0,
            lock_duration=max(ours.lock_duration, 5_000),
            max_delivery_count=1 if condition is Condition.LIMIT else max(ours.max_delivery_count, 10),
            time_to_live=max(ours.time_to_live, 500) if brief else NEVER,
            dead_letter_expired=condition is Condition.EXPIRED_KEPT if brief else ours.dead_letter_expired,
        )

    @contextmanager
    def _settings(self, fitting: PartitionSettings) -> Iterator[None]:
        before = self.town.settings
        if fitting != before:
            self.town.change(fitting)
        yield
        if fitting != before:
            self.town.change(before)

    # -- a message in a state ------------------------------------------------------------------------------------------

    def _made(self, side: Side, state: State, condition: Condition) -> m.Message | None:
        """Return a new message in this state; None if the entity has refused it."""
        town = self.town
        brief = condition in _EXPIRING and side is Side.MAIN
        due = town.now + LATER if state is State.SCHEDULED else None
        message = self._sent(Outgoing(self._payload(), BRIEF if brief else None, due=due))
        if message is None or state is State.SCHEDULED:
            return message
        if side is Side.DEAD:
            town.dead_letter(PLAIN, [self._locked(message)])
        if condition is Condition.HOME_DEFERRED:
            town.defer(PLAIN, [self._locked(message)])
        if state in (State.LOCKED, State.HELD):
            self._locked(message)
        elif state is State.DELAYED:
            town.abandon(PLAIN, [self._locked(message)._replace(delay=LATER)])
        elif state is State.DEFERRED:
            town.defer(PLAIN, [self._locked(message)])
        return message if (message.side, message.state) == (side, state) else None

    def _payload(self) -> bytes:
        self.town.world.tokens += 1
        return encode(Content(b"sought", session_id=f"s{self.town.world.tokens}"))

    def _sent(self, one: Outgoing) -> m.Message | None:
        before = {id(message) for message in self.town.model.everything()}
        self.deliver([one])
        there = (message for message in self.town.model.everything() if message.payload == one.payload)
        return next((message for message in there if id(message) not in before), None)

    def _locked(self, message: m.Message) -> Lock:
        """Lock exactly this message. If that fails, the lock has a token that nobody holds."""
        town = self.town
        if message.state not in (State.LOCKED, State.HELD):
            if message.side is Side.MAIN and message.session is not None:
                lock = self._session(message)
                town.receive_deferred(PLAIN, lock.token, [message.name], "lock", lock.name, wide=True)
            else:
                town.receive_deferred(PLAIN, town.token(), [message.name], wide=True)
        return Lock(message.token or "x" * 11, message.name)

    def _session(self, message: m.Message) -> SessionLock:
        """Return the lock on the session of a message, and accept the session if it is not locked."""
        town, name = self.town, message.session or ""
        held = [token for token, lease in town.model.leases.items() if lease.session == name]
        if held:
            return SessionLock(name, held[0])
        token = town.token()
        town.accept_session(PLAIN, token, name)
        return SessionLock(name, token)

    # -- the event -----------------------------------------------------------------------------------------------------

    def _let(self, event: Event, message: m.Message, condition: Condition) -> None:
        """Let the event happen to the message."""
        town, how = self.town, self.how
        if event in _OF_TIME:
            self._let_time_pass(event, message)
            return
        if condition in _EXPIRING:
            town.now = max(town.now, message.expires)
        if event in _SETTLING:
            delay = LATER if condition is Condition.DELAY else 0
            self.settle(_SETTLING[event], [self._locked(message)._replace(delay=delay)], event is not Event.RELEASE)
        elif event in (Event.RECEIVE, Event.RECEIVE_AND_DELETE):
            self._receive(message, "lock" if event is Event.RECEIVE else "delete")
        elif event in (Event.RECEIVE_DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE):
            mode: m.Mode = "lock" if event is Event.RECEIVE_DEFERRED else "delete"
            self._receive_by_number(message, mode)
        elif event is Event.RENEW:
            town.renew(how, [self._locked(message)])
        elif event is Event.PURGE:
            start = score(band(message.side, message.state, message.level), message.number)
            town.purge(how, town.now + 1, side=message.side, share=1, start=start)
        elif event is Event.BURY:
            town.bury_session(how, self._session(message), b"", 5)
        elif event is Event.REDRIVE:
            town.redrive(how, [Redrive(message.name)])
        elif event is Event.CANCEL:
            town.cancel(how, [message.name])

    def _receive(self, message: m.Message, mode: m.Mode) -> None:
        town = self.town
        if message.side is Side.MAIN and message.session is not None:
            lock = self._session(message)
            town.receive(self.how, lock.token, 1, session=lock.name, mode=mode)
        else:
            town.receive(self.how, town.token(), 10, side=message.side, mode=mode)

    def _receive_by_number(self, message: m.Message, mode: m.Mode) -> None:
        town, wide = self.town, message.state is not State.DEFERRED
        if message.side is Side.MAIN and message.session is not None:
            lock = self._session(message)
            town.receive_deferred(self.how, lock.token, [message.name], mode, lock.name, wide=wide)
        else:
            town.receive_deferred(self.how, town.token(), [message.name], mode, wide=wide)

    def _let_time_pass(self, event: Event, message: m.Message) -> None:
        town = self.town
        if event is Event.LAPSE:
            until = town.model.locked_until(message) - town.model.offset
        else:
            until = message.expires if event is Event.EXPIRE else message.due or 0
        town.now = max(town.now, until)
        state, left = message.state, 20
        while message.state is state and left:
            town.due()
            left -= 1
