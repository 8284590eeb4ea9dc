"""The operations of the model, each with the arguments of its request in ``sbredis.engine._partition``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from sbredis.engine._lifecycle import BANDS, LEVELS, NEVER, RESERVED, TRANSITIONS, Event, Side, State
from tests.engine.model.mechanics import Mechanics
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
    Purged,
    Received,
    Renewed,
    Sent,
    Settings,
    Settled,
    Undone,
    Waiter,
)

WAITING = 3_000  # hundredths of a second


class Model(Mechanics):
    """One partition. Every operation is a method that takes the call first."""

    # -- taking in -----------------------------------------------------------------------------------------------------

    def send(self, call: Call, messages: Sequence[Outgoing], *, columns: str = "tlid") -> Sent:
        """All active at once or scheduled; a duplicate uses up its number and is dropped.

        ``columns`` are those that the request has: only one with message ids clears away old ones.
        """
        now, window = call.now, self.settings.duplicate_window
        made = [self._made(out, now) for out in messages]

        def act() -> Sent:
            dropped, first = 0, self.seq + 1
            if window is not None and "i" in columns:
                old = sorted((seen, key) for key, seen in self.dedup.items() if seen <= now - window)
                for _, key in old[: 2 * len(messages) + 10]:
                    del self.dedup[key]
            for out, message in zip(messages, made, strict=True):
                self.seq += 1
                message.number = message.store_number = self.seq
                duplicate = window is not None and self.dedup.get(out.message_id, now - window) > now - window
                if window is not None and out.message_id and not duplicate:
                    self.dedup[out.message_id] = now
                event = Event.SEND if message.due is None else Event.SCHEDULE
                self._move(message, event, now, duplicate=duplicate)
                dropped += duplicate
            return Sent(first, dropped, self.more)

        sound = 1 <= len(messages) <= MOST and all(
            0 <= out.level < LEVELS and (out.time_to_live is None or out.time_to_live >= 0) for out in messages
        )
        return self._perform(call, act, sound=sound, refusal=self._refusal_of_send(made))

    def _made(self, out: Outgoing, now: int) -> Message:
        ttl = NEVER if out.time_to_live is None else min(out.time_to_live, NEVER)
        message = Message(0, 0, out.level, out.payload, ttl, b"s%d%013d%b" % (out.level, ttl, out.payload))
        if out.due is not None and out.due > now:
            message.due = out.due
        else:
            message.enqueue(now, self.settings.time_to_live)
        return message

    def _refusal_of_send(self, made: Sequence[Message]) -> tuple[str, str] | None:
        settings = self.settings
        if settings.status in ("SendDisabled", "Disabled"):
            return "DISABLED", settings.status
        for place, message in enumerate(made):
            if len(message.payload) > settings.largest_message:
                return "TOOLARGE", str(place)
        if self.bytes + sum(len(message.payload) for message in made) > settings.quota:
            return "QUOTA", f"{self.bytes} {settings.quota}"
        return None

    def cancel(self, call: Call, names: Sequence[str]) -> Undone:
        """Scheduled messages; all of them or none."""

        def act() -> Undone:
            found, missing = self._find(names, State.SCHEDULED)
            if not missing:
                for message in found:
                    self._move(message, Event.CANCEL, call.now)
            return Undone(missing, self.more)

        return self._perform(call, act, sound=self._are_names(names))

    # -- giving out ----------------------------------------------------------------------------------------------------

    def receive(
        self,
        call: Call,
        token: str,
        wanted: int,
        *,
        side: Side = Side.MAIN,
        mode: Mode = "lock",
        room: int = ROOM,
        waiter: str = "",
        waiting_for: int = 1,
    ) -> Received:
        """The oldest of the most urgent level first, as many as are wanted and have room, at least one."""

        def act() -> Received:
            self._wait_no_longer(side, waiter)
            found: list[Message] = []
            late: list[int] = []
            full = False
            for message in self._ready(side):
                if len(found) == wanted or full:
                    break
                if message.expires <= call.now:
                    self._move(message, Event.EXPIRE, call.now)
                    late.append(len(message.record))
                    full = len(late) == self.bounds.share or sum(late) > self.bounds.weight
                elif found and sum(len(one.record) for one in found) + len(message.record) > room:
                    break
                else:
                    found.append(message)
            self.more = self.more or full
            if not found and waiter and waiting_for:
                self._wait(side, waiter, waiting_for, call.now // 10)
            event = Event.RECEIVE if mode == "lock" else Event.RECEIVE_AND_DELETE
            return self._give_out(found, event, token, call.now)

        sound = 1 <= wanted <= MOST and room >= 1 and 0 <= waiting_for <= MOST and token not in self.leases
        return self._perform(
            call, act, sound=sound, refusal=self._refusal_of_receive(), again=lambda later: self._still(later, token)
        )

    def look(self, call: Call, *, side: Side = Side.MAIN, waiter: str = "", waiting_for: int = 1) -> Looked:
        """Whether there is something to be received, expired or not; who finds nothing waits, and hears what is due."""

        def act() -> Looked:
            self._wait_no_longer(side, waiter)
            if self._ready(side):
                return Looked(found=True, more=self.more)
            if waiter and waiting_for:
                self._wait(side, waiter, waiting_for, call.now // 10)
            return Looked(due=self._next_due(call.now, self.offset), more=self.more)

        sound = not call.lane and 0 <= waiting_for <= MOST
        return self._perform(call, act, sound=sound, refusal=self._refusal_of_receive())

    def _wait_no_longer(self, side: Side, waiter: str) -> None:
        self.waiters.pop(f"{waiter} {side.value}", None)

    def _wait(self, side: Side, waiter: str, waiting_for: int, now: int) -> None:
        """Wait at one of the sides, or at both; some of those who have gone are forgotten."""
        for gone in [name for name in self._asleep(side) if self.waiters[name].until < now][:10]:
            del self.waiters[gone]
        self.waiters[f"{waiter} {side.value}"] = Waiter(side, now + WAITING, min(waiting_for, 127))

    def receive_deferred(self, call: Call, token: str, names: Sequence[str], *, mode: Mode = "lock") -> Received:
        """Deferred messages by name; all of them or none."""
        absent: list[str] = []  # as the first time found it

        def act() -> Received:
            found, missing = self._find(names, State.DEFERRED)
            absent.extend(missing)
            if missing:
                return Received(missing=missing, more=self.more)
            event = Event.RECEIVE_DEFERRED if mode == "lock" else Event.RECEIVE_DEFERRED_AND_DELETE
            return self._give_out(found, event, token, call.now)

        def again(later: Call) -> Received:
            return Received(missing=tuple(absent)) if absent else self._still(later, token)

        sound = self._are_names(names) and token not in self.leases
        return self._perform(call, act, sound=sound, refusal=self._refusal_of_receive(), again=again)

    def _refusal_of_receive(self) -> tuple[str, str] | None:
        status = self.settings.status
        return ("DISABLED", status) if status in ("ReceiveDisabled", "Disabled") else None

    def _give_out(self, found: list[Message], event: Event, token: str, now: int) -> Received:
        if not found:
            return Received(due=self._next_due(now, self.offset), more=self.more)
        given = tuple(message.delivery() for message in found)
        for message in found:
            self._move(message, event, now)
        if found[0].state is not State.LOCKED:
            return Received(given, more=self.more)
        for message in found:
            message.token = token
        self._hold(token, self.clk + self.settings.lock_duration, found)
        return Received(given, lock=self.settings.lock_duration, more=self.more)

    def _still(self, call: Call, token: str) -> Received:
        """What a repeated receive answers: what is held under its token, with what is left of the lock."""
        lease, now = self.leases.get(token), self._clock(call)[0]
        left = lease.until - now if lease else 0
        if left <= 0:
            return Received(due=self._next_due(call.now, now - call.now))
        return Received(tuple(message.delivery() for message in self._held(token)), lock=left)

    def peek(
        self,
        call: Call,
        start: int,
        wanted: int,
        *,
        side: Side = Side.MAIN,
        room: int = ROOM,
        states: Collection[State] = frozenset(LETTERS),
    ) -> Peeked:
        """Messages from a number on, by number; nothing is touched, not even what is due."""
        self._check_reading(
            call, sound=start >= 0 and 1 <= wanted <= MOST and room >= 1 and set(states) <= set(LETTERS)
        )
        found: list[Message] = []
        for number, message in sorted(self.messages[side].items()):
            if number < start or message.state not in states:
                continue
            if len(found) == wanted or (found and sum(len(m.record) for m in found) + len(message.record) > room):
                break
            found.append(message)
        return Peeked(tuple(message.delivery(message.state) for message in found))

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
            return Settled(tuple(lost), tuple(unfit), self.more)

        sound = 1 <= len(locks) <= MOST and all(0 <= lock.delay <= NEVER for lock in locks)
        return self._perform(call, act, sound=sound)

    def renew(self, call: Call, token: str, locks: Sequence[Lock]) -> Renewed:
        """A lease that is named whole keeps its token; what is named of another moves to a lease of its own."""
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
                if len(messages) == len(self._held(old)):
                    self._hold(old, until[0], self.leases[old].messages)
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

    # -- looking after -------------------------------------------------------------------------------------------------

    def purge(self, call: Call, before: int, *, side: Side = Side.MAIN, share: int = MOST, start: int = 0) -> Purged:
        """Look at so many messages in order of their scores, and delete what was enqueued before."""

        def act() -> Purged:
            there = [message for message in self.messages[side].values() if message.state in purgeable]
            there = sorted((message for message in there if message.score >= start), key=lambda one: one.score)
            looked = list(self._within(there[:share], self.bounds.purged))
            old = [one for one in looked if one.enqueued is not None and one.enqueued < before]
            used_up = len(looked) == share or sum(len(one.record) for one in looked) >= self.bounds.purged
            onwards = looked[-1].score + 1 if used_up else None
            for message in old:
                self._move(message, Event.PURGE, call.now)
            return Purged(len(old), onwards, self.more)

        purgeable = {state for of, state, event in TRANSITIONS if event is Event.PURGE and of is side}
        return self._perform(call, act, sound=1 <= share <= MOST and before >= 0 and start >= 0)

    @staticmethod
    def _within(messages: Iterable[Message], room: int) -> Iterator[Message]:
        """The first of them, until there is no room left; the last one may take more than there is."""
        for message in messages:
            if room <= 0:
                return
            room -= len(message.record)
            yield message

    def count(self, call: Call) -> Counts:
        """How many messages stand where; nothing is touched."""
        self._check_reading(call)
        states = Counter((side, message.state) for side in Side for message in self.messages[side].values())
        due = self._next_due(call.now, self._clock(call)[0] - call.now)
        return Counts(due, self.bytes, self.seq, {at: states[at] for at in BANDS if at[1] not in RESERVED})

    def due(self, call: Call) -> Awoken:
        """Nothing but what is due."""

        def act() -> Awoken:
            return Awoken(self._next_due(call.now, self.offset), self.more)

        def again(later: Call) -> Awoken:
            return replace(awoken, due=self._next_due(later.now, self._clock(later)[0] - later.now))

        awoken = self._perform(call, act, share=10 * self.bounds.share, again=again)
        return awoken

    def configure(self, call: Call, settings: Settings, *, create: bool = False) -> int:
        """Make the partition, or give it the settings of the version of the call. Does no due work."""
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
        ):
            if differs:
                self._refuse("FIXED", name)
        self.settings, self.version = settings, call.version
        return self.version

    def destroy(self, call: Call) -> bool:
        """Take everything away; the answer says that no other step is needed. What is not there is gone already."""
        if not call.sound:
            self._refuse("BADCALL", "share")
        if self.exists:
            self._check_existence(call)
        self._clear()
        return False


def grouped(locks: Sequence[Lock]) -> list[Lock]:
    """By token, in the order in which the tokens appear first, as a call is sent."""
    tokens = list(dict.fromkeys(lock.token for lock in locks))
    return sorted(locks, key=lambda lock: tokens.index(lock.token))
