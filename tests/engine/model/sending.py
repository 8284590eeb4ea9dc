"""The operations of the model that store messages and cancel scheduled ones."""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.engine import NEVER, Outgoing, Sent, Undone, decode
from sbredis.exceptions import DataLayoutError
from tests.engine.model.mechanics import Mechanics
from tests.engine.model.values import MOST, Call, Message, Plan, Stored, Together
from tests.engine.terms import LEVELS, Event, State


def session_of(payload: bytes) -> str | None:
    """Return the session that is named in a payload; None if the payload is no message."""
    try:
        return decode(payload).session_id
    except DataLayoutError:
        return None


class Sending(Mechanics):
    """A partition that takes messages."""

    def send(self, call: Call, messages: Sequence[Outgoing], *, columns: str = "tlid") -> Sent:
        """Send messages, all active at once or all scheduled; a duplicate uses up its number and is dropped.

        ``columns`` are the columns of the request: only a request with message ids removes old ids.
        """
        plan = self.plan_send(call, Together(), messages, columns=columns)
        return self._carry_out(call, plan, lambda stored: Sent(self.more, stored.first, len(stored.dropped)))

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
            return self._refusal_of_send(made, pending=pending) or self._refusal_of_ids(messages, now, columns)

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

    def _refusal_of_ids(self, messages: Sequence[Outgoing], now: int, columns: str) -> tuple[str, str] | None:
        """Return the refusal of messages with more new ids than duplicate detection may remember."""
        window, most = self.settings.duplicate_window, self.settings.most_ids
        if window is None or not most or "i" not in columns:
            return None
        known = {key for key, seen in self.dedup.items() if seen > now - window}
        new = {out.message_id for out in messages if out.message_id and out.origin is None} - known
        return ("QUOTA", f"ids {len(known)} {most}") if new and len(known) + len(new) > most else None

    def cancel(self, call: Call, names: Sequence[str]) -> Undone:
        """Cancel scheduled messages, all of them or none."""

        def act() -> Undone:
            found, missing = self._cancellable(names)
            if not missing:
                for message in found:
                    self._move(message, Event.CANCEL, call.now)
            return Undone(self.more, missing)

        return self._perform(
            call, act, sound=self._are_names(names), undecided=lambda: self._some_not_to_come(call, names)
        )

    def _cancellable(self, names: Sequence[str]) -> tuple[list[Message], tuple[str, ...]]:
        """Return the scheduled messages of these names that are not being spread, and the names of the others."""
        found, _ = self._find(names, State.SCHEDULED)
        fit = {message.name for message in found if not message.reached}
        return found, tuple(name for name in names if name not in fit)

    def _some_not_to_come(self, call: Call, names: Sequence[str]) -> bool:
        found, missing = self._cancellable(names)
        return bool(missing) or any((message.due or 0) <= call.now for message in found)
