"""The moves of a message of the model: the table of :mod:`sbredis.engine._lifecycle` decides each of them."""

from __future__ import annotations

from sbredis.engine import NEVER
from tests.engine.model.contents import Contents
from tests.engine.model.values import Message, MessageLease
from tests.engine.terms import COUNTED, ENDS, Condition, Event, Side, State, decide

MOST_LAPSES = 14
_UNTOUCHING = {State.DEFERRED}
_TAKING = {
    *(Event.RECEIVE, Event.RECEIVE_AND_DELETE, Event.RECEIVE_DEFERRED, Event.RECEIVE_DEFERRED_AND_DELETE),
    *(Event.RENEW, Event.CANCEL, Event.SCHEDULE),
}
"""Events of a message that make nothing available in its session."""


class Lives(Contents):
    """A partition whose messages change their states."""

    def _block(self, name: str, till: int) -> None:
        """Block a session until this time, or longer if it is already blocked for longer."""
        session = self.sessions[name]
        if session.blocked is None or session.blocked < till:
            session.blocked = till
            if till < self.next_due and not self.passing:
                self.next_due = till

    def _move(
        self,
        message: Message,
        event: Event,
        now: int,
        *,
        delay: int = 0,
        duplicate: bool = False,
        faulty: bool = False,
        interrupted: bool = False,
    ) -> None:
        """Apply an event to a message; the table decides the next state."""
        message.failures += (message.side, event) in COUNTED
        if event is Event.LAPSE:
            message.lapses = min(message.lapses + 1, MOST_LAPSES)
            message.suspect = message.suspect or message.lapses > 1 or self.settings.max_delivery_count <= 2
        elif event in (Event.ABANDON, Event.DEFER):
            message.lapses, message.suspect = 0, False
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
            message.died_as = message.number
            message.number, message.reason = self.dead_seq, outcome.reason
            message.ended = message.lapses
            message.level, message.home, message.expires, message.session = 0, "a", NEVER, None
        elif outcome.side is not side:
            self.seq += 1
            message.number = message.store_number = self.seq
            message.died_as = None
            message.failures, message.home, message.reason = 0, "a", outcome.reason
            message.level = 0 if message.session is not None else int(message.record[1:2])
            message.enqueue(now, self.settings.time_to_live)
        locked = (State.LOCKED, State.HELD)
        if outcome.side is not side:
            message.lapses, message.suspect = 0, False
        if outcome.side is not side or (state in locked and outcome.state not in locked):
            kept = event is Event.RELEASE and message.interrupted  # it was released unread
            message.interrupted = (interrupted or kept) and outcome.side is side
        if outcome.state not in ENDS:
            self.messages[outcome.side][message.number] = message
        self._arrive(message, event, now, delay)

    def _arrive(self, message: Message, event: Event, now: int, delay: int) -> None:
        """Apply the effects of a message's new state."""
        if message.state not in (State.LOCKED, State.HELD):
            message.token, message.alone = "", False
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
        elif message.state is State.ACTIVE:
            message.indexed = message.expires < NEVER
        time = message.expires if message.indexed else message.due
        if time is not None and time < self.next_due and not self.passing:
            self.next_due = time

    def _hold(self, token: str, until: int, messages: list[Message], session: str | None = None) -> None:
        """Lock these messages, or a session, under a token until a time on the logical clock."""
        self.leases[token] = MessageLease(until, messages, session)
        self.next_lock = min(self.next_lock, until)
