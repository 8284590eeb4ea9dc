"""The due work of a partition of the model: each event happens as if at its own time."""

from __future__ import annotations

from sbredis.engine import NEVER
from tests.engine.model.turns import Turns
from tests.engine.model.values import Message
from tests.engine.terms import LEVELS, Event, Side


class DueWork(Turns):
    """A partition that does its due work."""

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
            alone = len(text) > 12
            for message in looked:
                others = [each for each in self._holders(message) if each is not lease]
                # Of two leases the later one counts; if both end at the same time, the message's own.
                if message.token == text[1:12] and all(
                    each.until < lease.until or (alone and each.until == lease.until) for each in others
                ):
                    self._move(message, Event.LAPSE, time)
            if not lease.messages:
                del self.leases[text[1:]]
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
        session.token = ""
        session.barred = session.blocked is not None and session.blocked > now
