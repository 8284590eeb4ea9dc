"""The operations of the model that settle and move messages, and those of administration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from sbredis.engine import NEVER, Awoken, Lock, PartitionSettings, Purged, Redrive, Redriven, Renewed, Settled
from tests.engine.model.receiving import Receiving
from tests.engine.model.sending import session_of
from tests.engine.model.values import MOST, Call, Counts, Message, Plan, Together
from tests.engine.terms import BANDS, RESERVED, TRANSITIONS, Event, Side, State


class Model(Receiving):
    """One partition. Every operation is a method with the call as its first argument."""

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.COMPLETE)

    def abandon(self, call: Call, locks: Sequence[Lock], *, counted: bool = True, interrupted: bool = False) -> Settled:
        event = Event.ABANDON if counted and not interrupted else Event.RELEASE
        return self._settle(call, locks, event, interrupted=interrupted)

    def defer(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.DEFER)

    def dead_letter(self, call: Call, locks: Sequence[Lock]) -> Settled:
        return self._settle(call, locks, Event.DEAD_LETTER)

    def _settle(self, call: Call, locks: Sequence[Lock], event: Event, *, interrupted: bool = False) -> Settled:
        plan = self.plan_settle(call, Together(), locks, event, interrupted=interrupted)

        def answer(settled: Settled) -> Settled:
            return settled._replace(more=self.more)

        return self._carry_out(call, plan, answer)

    def plan_settle(
        self, call: Call, together: Together, locks: Sequence[Lock], event: Event, *, interrupted: bool = False
    ) -> Plan:
        def strict() -> tuple[str, str] | None:
            lost = self._unlocked(call, together, locks)
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
                    self._move(message, event, call.now, delay=lock.delay, interrupted=interrupted)
            self._forget_empty_leases()
            return Settled(False, tuple(lost), tuple(unfit))

        return Plan(act, 1 <= len(locks) <= MOST and all(0 <= lock.delay <= NEVER for lock in locks), strict=strict)

    def _unlocked(self, call: Call, together: Together, locks: Sequence[Lock]) -> list[str]:
        """Return the messages that a transaction cannot name, because it needs their locks, each for one operation."""
        logical, lost = self._clock(call)[0], []
        for lock in grouped(locks):
            if self._locked(lock, logical) is None or (id(self), lock.name) in together.settled:
                lost.append(lock.name)
            else:
                together.settled.add((id(self), lock.name))
        return lost

    def renew(self, call: Call, locks: Sequence[Lock], leases: Sequence[str] = ()) -> Renewed:
        """Renew locks. A lease is extended if all of its messages are named; if not, each of them gets its own lease.

        The ``leases`` are extended with all that they hold.
        """
        until: list[int] = []

        def act() -> Renewed:
            until.append(self.clk + self.settings.lock_duration)
            return self._renew(call, locks, leases)

        def again(later: Call) -> Renewed:
            return first._replace(lock=max(0, until[0] - self._clock(later)[0]), more=False)

        sound = 1 <= len(locks) + len(leases) <= MOST
        first = self._perform(call, act, sound=sound, again=again)
        return first

    def plan_renew(self, call: Call, together: Together, locks: Sequence[Lock]) -> Plan:
        def strict() -> tuple[str, str] | None:
            lost = self._unlocked(call, together, locks)
            return ("UNLOCKED", " ".join(lost)) if lost else None

        def act() -> Renewed:
            return self._renew(call, locks, ())

        return Plan(act, 1 <= len(locks) <= MOST, strict=strict)

    def _renew(self, call: Call, locks: Sequence[Lock], leases: Sequence[str]) -> Renewed:
        until = self.clk + self.settings.lock_duration
        named: dict[str, list[Message]] = {}
        lost: list[str] = []
        for lock in grouped(locks):
            message = self._locked(lock)
            if message is None or message in named.get(lock.token, []):
                lost.append(lock.name)
            else:
                named.setdefault(lock.token, []).append(message)
                self._move(message, Event.RENEW, call.now)
        apart: list[Message] = []
        for old, messages in named.items():
            lease = self.leases.get(old)
            live = lease is not None and lease.until > self.clk
            extends = (
                lease is not None and live and (lease.session is not None or len(messages) == len(self._held(old)))
            )
            if lease is not None and extends:
                self._hold(old, until, lease.messages, lease.session)
            else:
                apart += messages
            for message in messages:
                if not extends or message.alone:
                    message.alone = True
                    self._hold(message.own_key, until, [message])
        ended = []
        for old in leases:
            whole = self.leases.get(old)
            if whole is None or whole.until <= self.clk or (whole.session is None and not self._held(old)):
                ended.append(old)
            else:
                for message in [] if whole.session is not None else self._held(old):
                    self._move(message, Event.RENEW, call.now)
                self._hold(old, until, whole.messages, whole.session)
        names = tuple(message.name for message in apart)
        return Renewed(self.more, self.settings.lock_duration, tuple(lost), names, tuple(ended))

    def redrive(self, call: Call, messages: Sequence[Redrive]) -> Redriven:
        """Move dead letters that are not locked back to the main side, the first ones that fit, as new messages."""

        def find() -> tuple[list[Redrive], tuple[str, ...]]:
            dead = {one.name: one for one in self.messages[Side.DEAD].values() if one.state in redrivable}
            return [one for one in messages if one.name in dead], tuple(
                one.name for one in messages if one.name not in dead
            )

        def act() -> Redriven:
            there, missing = find()
            sizes = accumulate(self._dead(one.name).size for one in there)
            fit = max(min(1, len(there)), sum(size <= self.bounds.weight for size in sizes))
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
            return Redriven(self.more, first, missing, tuple(unfit), len(there) - fit, self.dead_seq)

        redrivable = {state for of, state, event in TRANSITIONS if event is Event.REDRIVE and of is Side.DEAD}
        names = [one.name for one in messages]
        dead = all(name.startswith("d") for name in names)
        # The model has no transfers, so it has no transfer dead letters either.
        sound = not names or (self._are_names(names) and (dead or all(name.startswith("t") for name in names)))
        sound = sound and (dead or all(one.changes for one in messages))
        sound = sound and all(one.time_to_live is None or one.time_to_live >= 0 for one in messages)
        status = self.settings.status
        return self._perform(
            call,
            act,
            sound=sound and not (self.settings.topic and names and dead),
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
            used_up = len(looked) == share or sum(one.size for one in looked) >= self.bounds.purged
            onwards = place(looked[-1]) + 1 if used_up else None
            for message in old:
                self._move(message, Event.PURGE, call.now)
            return Purged(self.more, len(old), onwards)

        purgeable = {state for of, state, event in TRANSITIONS if event is Event.PURGE and of is side}
        sound = 1 <= share <= MOST and before >= 0 and start >= 0 and (session is None or side is Side.MAIN)
        return self._perform(call, act, sound=sound, early=self._none_has_sessions(session), undecided=lambda: True)

    @staticmethod
    def _within(messages: Iterable[Message], room: int) -> Iterator[Message]:
        """Yield the first messages until no room is left; the last message may be larger than the remaining room."""
        for message in messages:
            if room <= 0:
                return
            room -= message.size
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
            return Awoken(self.more, self._next_due(call.now, self.offset))

        def again(later: Call) -> Awoken:
            return awoken._replace(due=self._next_due(later.now, self._clock(later)[0] - later.now))

        awoken = self._perform(call, act, share=5 * self.bounds.share, again=again)
        return awoken

    def configure(self, call: Call, settings: PartitionSettings, *, create: bool = False) -> int:
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
