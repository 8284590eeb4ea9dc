"""The model of a partition whose receivers grant credit: words, gifts, interest, due times, ends, epochs, sessions.

It is the specification for the scripts, as far as credit is concerned. It has no records and no dead letters: a message
is a number and a size. ``sbredis/receiving/_credit.py`` has the theory of counting, and ``credit.md`` beside it says
what the partition stores. A call does these steps in this order:

1. A call of another server process begins an epoch, which closes all words.
2. Due work is done: scheduled messages become ready, leases lapse, words are forgotten.
3. The call settles messages, and its grants are taken, if they are newer and the partition knows their prefixes.
4. The caller gets gifts in the reply. If other grants wait too, it gets a fair portion.
5. All other grants get gifts in pushes, and interest in what is left.
6. The caller may become the keeper of the next due time, or its deputy.

The name of a session is ``s`` and a number. As a gift of the source ``next``, it is the negative of this number. The
receiver of a held session is the token of its lock as a text (:func:`holder`).
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sbredis.engine import (
    NEXT_SESSION,
    CreditAnswer,
    CreditGift,
    CreditGrant,
    CreditPush,
    CreditReply,
    GiftPlace,
    SessionGift,
    lease_token,
)
from tests.engine.terms import EPOCH_LEAP

__all__ = [
    "DELIVERY_CALLS",
    "MOST_BYTES",
    "MOST_PUSHES",
    "NEXT_SESSION",
    "PUSHED_RECORD",
    "WORD_LIFE",
    "CallGrant",
    "CreditCall",
    "CreditPartition",
    "Item",
    "Lease",
    "Word",
    "holder",
]

MOST_PUSHES = 16
"""The largest number of pushes of a call, and of unseen gifts of a grant."""
MOST_BYTES = 65_536
"""The largest number of bytes in the pushes of a call, and in the unseen pushes of a grant."""
PUSHED_RECORD = 16_384
"""The largest record that is pushed."""
MOST_KNOWN = 32
"""The most open grants of a source that a call looks at. One that does not listen makes room for the next."""
PATIENCE = 1_000
"""The milliseconds in which a receiver must answer interest, and report what it has seen."""
GRANT_LIFE = 300_000
DELIVERY_CALLS = 60_000
"""The milliseconds in which a call may be repeated."""
WORD_LIFE = DELIVERY_CALLS + 10_000
DEPUTY_LATER = 5_000
OTHERS_LATER = 10_000
OTHERS_PAUSE = 50_000
OTHERS_WITHIN = 110_000
SOURCES = ("", "d", "t", NEXT_SESSION)
"""The order of the sources. After these come the held sessions: ``=`` and the name of the session."""

NEVER = 1 << 62
NOTHING = GiftPlace(0, 0, 0)

Token = tuple[str, int]


def holder(token: Token) -> str:
    """Return the receiver of the messages of a session, by the token of its lock."""
    return f"{token[0]}.{token[1]}"


def _text(token: Token) -> str:
    """Return a token as the scripts have it. Leases that end at the same time lapse in the order of these texts."""
    prefix, serial = token
    return lease_token(f"{prefix:-<8}", serial)


Publish = Callable[[str, str, CreditPush[int]], None]
"""Pushes to the listeners of a channel, for the receiver with this word."""


@dataclass
class Item:
    """A message."""

    name: int
    size: int
    session: str = ""
    lapses: int = 0
    """The number of counted deliveries that ended with the end of a lock."""

    @property
    def suspect(self) -> bool:
        return self.lapses >= 2


@dataclass
class Lease:
    """The lock on the messages of a gift, or on a session.

    The messages of a session are under the lock of the session. What is said here of their gifts serves to show them
    again, and ends with that lock.
    """

    word: str
    prefix: str
    place: GiftPlace
    until: int
    """The logical time at which it ends."""
    names: list[int]
    source: str
    seen: bool = False


@dataclass
class Word:
    """What a partition knows of a receiver."""

    key: str
    channel: str
    source: str
    number: int = 0
    prefix: str = ""
    last: GiftPlace = NOTHING
    seen: int = 0
    begun: int = 0
    hands: int = 1
    callers: int = 0
    limit: int = 0
    size_limit: int = 0
    once: bool = False
    announced: bool = False
    suspects: bool = True
    careful: bool = False
    """Whether its receiver gets the suspects of its session, but begins none."""
    alive: bool = True
    """Whether the prefix is known. An epoch ends this."""
    open_until: int = 0
    forget_at: int = 0
    turn: int = 0
    """When the grant was last served; a smaller number is longer ago."""
    unseen: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The time and the pushed bytes of each unseen gift."""
    told_at: int | None = None
    """Since when an interest is unanswered."""
    passed: bool = False
    """Whether it has not answered an interest in time."""
    late: bool = False
    """Whether it has not reported a gift in time."""
    first: int = 0
    first_size: int = 0
    yields: bool = False
    marked: bool = False
    """Whether it knows that other sessions wait, and has not got messages since then."""

    def token(self, prefix: str, serial: int) -> Token:
        """Return the token of a gift; for a gift of a session's messages, a name in place of it."""
        return (f"{self.key.split()[0]}/{prefix}" if self.source.startswith("=") else prefix), serial

    @property
    def credit(self) -> int:
        return max(0, self.limit - self.last.messages)

    @property
    def wants(self) -> bool:
        """Whether its receiver wants messages, or only news of them."""
        return self.credit > 0 or self.announced

    @property
    def waits(self) -> bool:
        return self.last.messages < self.callers


@dataclass
class Begun:
    """How far a receiver has begun: all gifts up to a serial, and for how many messages of later gifts it has hands."""

    serial: int
    hands: int


class DueKeeper(NamedTuple):
    """A receiver that calls when something is due."""

    word: str
    calls_at: int
    open_until: int
    channel: str
    """The channel of its client."""


class CallGrant(NamedTuple):
    """A grant as a call carries it."""

    receiver: str
    source: str
    grant: CreditGrant


class CreditCall(NamedTuple):
    """A call: grants, a settlement, or a settlement with grants."""

    channel: str
    grants: tuple[CallGrant, ...] = ()
    token: Token | None = None
    """The lock of the settlement: a lease, or the lock of the session."""
    completed: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    """The messages, or the session, to release uncounted."""


class Answered(NamedTuple):
    """A grant of a call whose answer is not complete yet."""

    reply: CreditReply[int]
    word: Word | None
    asked: bool
    """Whether the receiver may become the keeper of the due time."""


class CreditPartition:
    """A partition. Each method that a client calls is one script, and takes the clock of the server in milliseconds."""

    def __init__(
        self,
        run: str,
        now: int,
        publish: Publish,
        *,
        hears: Callable[[str], bool],
        lock: int,
        seen: Counter[str],
        sessions: bool,
    ) -> None:
        """``publish`` is called for a channel only if ``hears`` says that somebody listens."""
        self.hears, self.calling, self.callers_told = hears, list[Word](), set[str]()
        self.waiting: int | None = None
        """The number of sessions that nobody can take, if a grant of the call leaves its session only for others."""
        self.publish, self.lock, self.cases, self.sessions = publish, lock, seen, sessions
        self.pushes, self.room = MOST_PUSHES, MOST_BYTES
        """The pushes, and their bytes, that the present call may still make."""
        self.next_lock, self.next_scheduled = NEVER, NEVER
        """Lower bounds of the next end of a lease, by the logical clock, and of the next scheduled message."""
        self.run = run
        self.clock, self.offset = now, 0
        self.ready: dict[str, list[int]] = {}
        self.items: dict[int, Item] = {}
        self.scheduled: list[tuple[int, int]] = []
        self.leases: dict[Token, Lease] = {}
        self.holders: dict[str, Token] = {}
        self.free: dict[str, int] = {}
        """Since when each session is free and has messages."""
        self.told_ends = 0
        """The holders that the present call has told that their session is not theirs any more."""
        self.ended: list[Word] = []
        self.words: dict[str, Word] = {}
        self.earlier: dict[str, Begun] = {}
        """For each earlier prefix of a word how far its receiver had begun."""
        self.suspected = False
        """Whether a message has become ready as a suspect in the present call."""
        self.keeper: DueKeeper | None = None
        self.deputy: DueKeeper | None = None
        self.asked_at = -PATIENCE - 1
        """When a receiver was last asked to become the keeper."""
        self.closed = ""
        """Why nobody may receive now."""
        self.untold: list[str] = []
        """The words that have not been told yet that their credit has ended."""
        self.number = self.turns = 0
        self.now = now

    # -- calls ---------------------------------------------------------------------------------------------------------

    def send(self, run: str, now: int, sizes: Iterable[int], *, session: str = "", at: int | None = None) -> list[int]:
        """Store messages, for now or for later."""
        self._begin(run, now)
        names = []
        for size in sizes:
            self.number += 1
            self.items[self.number] = Item(self.number, size, session)
            names.append(self.number)
            if at is not None and at > now:
                bisect.insort(self.scheduled, (at, self.number))
                self.next_scheduled = min(self.next_scheduled, at)
            else:
                self._make_ready(self.number, now)
        self._distribute()
        self._tell_keepers()
        return names

    def configure(self, run: str, now: int, closed: str) -> None:
        """Change whether anybody may receive. This ends all credit."""
        self._begin(run, now)
        self.closed = closed
        for word in self.words.values():
            self._end_credit(word)
        self.keeper = self.deputy = None
        self.cases["settings end credit"] += 1
        self._distribute()

    def touch(self, run: str, now: int) -> None:
        """Make any other call, of a client that does not receive."""
        self._begin(run, now)
        self._distribute()
        self._tell_keepers()

    def execute(self, run: str, now: int, call: CreditCall) -> tuple[bool, list[CreditReply[int]]]:
        """Run a call. Return whether the settlement was done, and the answers to the grants.

        If the release of a session is refused, the grants are not read.
        """
        session = any(name < 0 for name in call.released)
        if session and call.token is not None and not self._lives(call.token, run, now):
            self.cases["session: release refused"] += 1
            return False, []
        self._begin(run, now)
        gave_back: list[int] = []
        settled = True
        if call.token is not None:
            settled, gave_back = self._settle(call.token, call.completed, call.released)
        self.waiting = None
        answered = [self._answer(call, given, bool(gave_back)) for given in self._given(call.grants)]
        self.calling = [one.word for one in answered if one.word is not None]
        self._distribute()
        tasks = [self._appoint(one.word, one.asked) for one in answered]
        self._tell_keepers()
        replies = [one.reply._replace(due=due, keeps=keeps) for one, (due, keeps) in zip(answered, tasks, strict=True)]
        others = self.callers_told
        return settled, [
            reply._replace(limit=one.word.limit, others_wait=one.word.key in others) if one.word is not None else reply
            for one, reply in zip(answered, replies, strict=True)
        ]

    def _given(self, grants: Iterable[CallGrant]) -> Iterable[CallGrant]:
        """Yield the grants of a call. One session less is given for each held session that the caller keeps."""
        kept = 0
        for receiver, source, grant in grants:
            limit = max(grant.seen.messages, grant.limit - kept) if source == NEXT_SESSION else grant.limit
            yield CallGrant(receiver, source, grant._replace(limit=limit, callers=min(grant.callers, limit)))
            kept += grant.leaves and self._holds(receiver, source)

    def _answer(self, call: CreditCall, given: CallGrant, gave_back: bool) -> Answered:
        grant = given.grant
        if grant.leaves and grant.yields and self.waiting is None:
            self.waiting = self._waiting_sessions()
        answer, word, again = self._take(call.channel, given)
        stays = grant.yields and not self.waiting
        if answer is CreditAnswer.TAKEN and grant.leaves and word is not None and not self._in_use(word) and stays:
            self.cases["session: not left, because nobody waits"] += 1
        elif answer is CreditAnswer.TAKEN and grant.leaves and word is not None and not self._in_use(word):
            self.cases["session: left"] += 1
            self.waiting = self.waiting - 1 if self.waiting else self.waiting
            self._stop(word)  # the reply tells it of the end
            self._free_session(word.source[1:], self.now)
            answer, word = CreditAnswer.REFUSED, None
        gifts = [] if word is None or (not grant.again and not again) else self._gifts_again(word, grant)
        answers_again = word is not None and (grant.again or again)
        asked = word is not None and word.wants and not grant.now
        if word is not None and answer is CreditAnswer.TAKEN:
            if gave_back and not grant.now:
                self._distribute(word)  # what the caller has given back goes to others first
            gifts += self._reply_gifts(word)
            if grant.now:
                self._stop(word)
        there = word is not None and bool(self._there(word))
        suspects = word is not None and not word.suspects and self._suspect_first(word.source)
        if word is not None and there and not word.credit:
            word.announced = False  # the reply says it
        reply = CreditReply(
            run=self.run,
            clock=self.now,
            answer=answer,
            prefix=word.prefix if word else "",
            last=word.last if word else NOTHING,  # pushes of this call come after it
            limit=0,
            gifts=gifts,
            again=answers_again,
            there=there,
            suspects=suspects,
            due=None,
        )
        return Answered(reply, word, asked)

    def _holds(self, receiver: str, source: str) -> bool:
        """Return whether a receiver is the token of the lock on a session."""
        token = self.holders.get(source[1:])
        return token is not None and holder(token) == receiver

    def _in_use(self, word: Word) -> bool:
        """Return whether the session of a word has ready messages, or messages with its holder."""
        held = any(lease.word == word.key and lease.names for lease in self.leases.values())
        return held or bool(self.ready.get(word.source))

    # -- 1. time -------------------------------------------------------------------------------------------------------

    def _begin(self, run: str, now: int) -> None:
        logical = self._logical(run, now)
        self.pushes, self.room = MOST_PUSHES, MOST_BYTES
        self.told_ends = 0
        self.calling, self.callers_told = [], set()
        epoch = run != self.run
        if epoch:
            self.run = run
            self._close_words()
        self.clock, self.offset, self.now = logical, logical - now, now
        self._let_time_pass(logical, now)
        if epoch or self.next_lock <= logical or self.next_scheduled <= now:
            self.next_lock = min((lease.until for lease in self.leases.values()), default=NEVER)
            self.next_scheduled = min((at for at, _ in self.scheduled), default=NEVER)
        for word in [*self.words.values()]:
            if word.told_at is not None and word.told_at < now - PATIENCE:
                word.told_at, word.passed = None, True
                self.cases["interest: passed on"] += 1
            word.late = word.late or any(at < now - PATIENCE for at, _ in word.unseen.values())
            if word.wants and word.open_until <= now:
                self._stop(word)
                self.cases["grant expired"] += 1
            if word.source.startswith("="):
                continue  # it lives as long as the lock of its session
            if word.forget_at <= now and not word.wants and word.key not in self.untold:
                del self.words[word.key]
                self.cases["word forgotten"] += 1
        for word in self.ended:
            self._tell_end(word)
        self.ended.clear()

    def _let_time_pass(self, logical: int, now: int) -> None:
        """Let what is due happen, in the order of the times: locks end, and scheduled messages become ready."""
        while True:
            locks = [token for token, lease in self.leases.items() if not lease.source.startswith("=")]
            token = min(locks, key=lambda one: (self.leases[one].until, _text(one)), default=None)
            until = NEVER if token is None else self.leases[token].until
            ends = min(now, until - self.offset)
            at = self.scheduled[0][0] if self.scheduled else NEVER
            if until <= logical and token is not None and ends <= at:
                self._lapse(token, self.leases[token], ends)
            elif at <= now:
                item = self.items.pop(self.scheduled.pop(0)[1])
                self.number += 1
                self.items[self.number] = dataclasses.replace(item, name=self.number)
                self._make_ready(self.number, at)
                self.cases["due: scheduled"] += 1
            else:
                return

    def _logical(self, run: str, now: int) -> int:
        """Return the time of the logical clock at a call."""
        return max(self.clock, now + self.offset - (self.lock if run != self.run else 0))

    def _lives(self, token: Token, run: str, now: int) -> bool:
        """Return whether the lock of a session is live at a call."""
        lease = self.leases.get(token)
        return lease is not None and lease.until > self._logical(run, now)

    def _close_words(self) -> None:
        """End all words, but keep number and prefix of the latest grant: a late call must not begin with them again."""
        self.cases["epoch"] += 1
        self.keeper = self.deputy = None
        self.number += EPOCH_LEAP
        self.untold.clear()
        for word in self.words.values():
            self._stop(word)
            word.alive, word.told_at = False, None
            word.unseen.clear()

    def _lapse(self, token: Token, lease: Lease, at: int) -> None:
        """End a lease whose time is over. A delivery counts as far as the holder has begun, and its hands reach."""
        self.cases["lapse"] += 1
        if lease.source == NEXT_SESSION:
            self._free_session(self._session_of(lease.names[0]), at, lapsed=True)
            return
        self._end_lapsed(token, lease, lease.names[: self._begun(token, lease)], at)

    def _end_lapsed(self, token: Token, lease: Lease, begun: Collection[int], at: int) -> None:
        """Return the messages of a lapsed lease, of which some have begun."""
        del self.leases[token]
        for name in (name for name in lease.names if name in begun):
            item = self.items[name]
            item.lapses += 1
            self.suspected = self.suspected or item.suspect
            self.cases["suspect"] += item.lapses == 2
        for name in lease.names:
            self._make_ready(name, at)

    def _begun(self, token: tuple[str, int], lease: Lease) -> int:
        """Return how many messages of a lapsing lease its holder may have begun: they are the first ones.

        Its hands are taken by the earlier gifts.
        """
        prefix, serial = token
        count, word = len(lease.names), self.words.get(lease.word)
        known: Word | Begun | None = word if word is not None and word.prefix == prefix else self.earlier.get(prefix)
        if known is None or serial <= (known.begun if isinstance(known, Word) else known.serial):
            self.cases["lapse: begun"] += 1
            return count
        taken = min(known.hands, count)
        known.hands -= taken
        self.cases["lapse: not begun"] += taken < count
        return taken

    # -- 2. settlements ------------------------------------------------------------------------------------------------

    def _settle(self, token: Token, completed: Sequence[int], released: Sequence[int]) -> tuple[bool, list[int]]:
        """Settle messages under a lock, or release the session of the lock."""
        lock = self.leases.get(token)
        leases = [lock] if lock is not None else []
        if lock is not None and lock.source == NEXT_SESSION and not any(name < 0 for name in released):
            source = f"={self._session_of(lock.names[0])}"
            leases = [lease for lease in self.leases.values() if lease.source == source]
        held = {name for lease in leases for name in lease.names}
        lost = {*completed, *released}.difference(held)
        self.cases["settlement: lost"] += bool(lost)
        if lock is None:
            return False, []
        completed = [name for name in completed if name in held]
        released = [name for name in released if name in held]
        self.cases["settlement: released" if released else "settlement: completed"] += 1
        if any(name < 0 for name in released):
            self._free_session(self._session_of(lock.names[0]), self.now)
            return True, list(released)
        for lease in leases:
            lease.names = [name for name in lease.names if name not in completed and name not in released]
        self.leases = {token: lease for token, lease in self.leases.items() if lease.names}
        for name in completed:
            del self.items[name]
        for name in released:
            self._make_ready(name, self.now)
        return not lost, list(released)

    def _make_ready(self, name: int, at: int) -> None:
        session = self.items[name].session
        bisect.insort(self.ready.setdefault(f"={session}" if self.sessions else "", []), name)
        if self.sessions and session not in self.holders:
            self.free.setdefault(session, at)

    def _session_of(self, name: int) -> str:
        """Return the session with a negative number as its name."""
        return f"s{-name}"

    def _free_session(self, session: str, at: int, *, lapsed: bool = False) -> None:
        """End the lock on a session: its messages return, and the word of its holder ends with it."""
        token = self.holders.pop(session)
        del self.leases[token]
        source = f"={session}"
        word = self.words.get(f"{holder(token)} {source}")
        held = sorted(name for lease in self.leases.values() if lease.source == source for name in lease.names)
        begun = {*(held if word is None else held[: word.hands])}
        if word is not None and word.careful and (suspects := [name for name in held if self.items[name].suspect]):
            begun = {name for name in begun if name < suspects[0]}
            self.cases["lapse: a careful holder has not begun a suspect"] += lapsed
        for of, lease in [*self.leases.items()]:
            if lease.source == source and lapsed:
                self._end_lapsed(of, lease, begun, at)
            elif lease.source == source:
                del self.leases[of]
                for name in lease.names:
                    self._make_ready(name, at)
        self.cases["lapse: not begun in a session"] += lapsed and len(begun) < len(held)
        if self.ready.get(source):
            self.free[session] = at
        if word is not None and lapsed:
            self.ended.append(word)
        elif word is not None:
            self._tell_end(word)
        self.cases["session: free"] += 1

    def _tell_end(self, word: Word) -> None:
        """Forget the holder of a session whose lock has ended, and tell it if it has credit."""
        if word.wants and not (word.passed or word.late) and self.told_ends < MOST_PUSHES:
            self.cases["session: its holder is told of the end"] += 1
            self.told_ends += 1
            self._publish(word, None)
        del self.words[word.key]
        if word.key in self.untold:
            self.untold.remove(word.key)
        self.keeper = None if self.keeper and self.keeper.word == word.key else self.keeper
        self.deputy = None if self.deputy and self.deputy.word == word.key else self.deputy

    def _end_credit(self, word: Word) -> None:
        """End the credit of a receiver, and tell it, so that its next call learns why."""
        if word.wants:
            self._stop(word)
            self.untold.append(word.key)

    def _stop(self, word: Word) -> None:
        word.limit, word.announced = min(word.limit, word.last.messages), False

    # -- 3. grants -----------------------------------------------------------------------------------------------------

    def _take(self, channel: str, given: CallGrant) -> tuple[CreditAnswer, Word | None, bool]:
        """Take a grant. Return what was done with it, the receiver's word, and whether it is a repetition."""
        receiver, source, grant = given
        key = f"{receiver} {source}"
        word = self.words.get(key)
        if grant.run != self.run:
            self.cases["grant: of another process"] += 1
            return CreditAnswer.FORGOTTEN, None, False
        if source.startswith("=") and not self._holds(receiver, source):
            self.cases["grant: session lost"] += 1
            return CreditAnswer.REFUSED, None, False
        if word is not None and word.alive:
            self._report(word, grant)
            if key in self.untold:
                self.untold.remove(key)  # the reply tells it
            if grant.number <= word.number:
                if grant.number == word.number and not (grant.now or self.closed):
                    word.announced = grant.announced  # the news may have been in a reply that was lost
                self.cases["grant: repeated" if grant.number == word.number else "grant: older"] += 1
                return CreditAnswer.KNOWN, word, True
            if grant.prefix != word.prefix and not grant.begins:
                self.cases["grant: prefix unknown"] += 1
                return CreditAnswer.FORGOTTEN, None, False
        elif not grant.begins or (word is not None and (grant.number <= word.number or grant.prefix == word.prefix)):
            self.cases["grant: forgotten" if word is None else "grant: before the epoch"] += 1
            return CreditAnswer.FORGOTTEN, None, False
        else:
            before, word = word, Word(key, channel, source)
            self.words[key] = word
            if before is not None:
                self.earlier[before.prefix] = Begun(before.begun, before.hands)
            self.cases["word begun"] += 1
        if grant.prefix != word.prefix:
            self._count_anew(word, grant)
        self._set_limits(word, grant)
        if self.closed:
            self._stop(word)
            self.cases["grant: refused"] += 1
            return CreditAnswer.REFUSED, word, True
        self.cases["grant: taken"] += 1
        return CreditAnswer.TAKEN, word, False

    def _count_anew(self, word: Word, grant: CreditGrant) -> None:
        """Begin a prefix. What its receiver has counted, and what it will be given again, counts as given."""
        self.cases["grant: new prefix"] += 1
        names = [
            name
            for prefix, seen, _ in grant.retired
            for lease in self.leases.values()
            if (lease.word, lease.prefix) == (word.key, prefix) and lease.place.serial > seen
            for name in lease.names
        ]
        size = sum(map(self._size, names))
        if word.prefix:
            self.earlier[word.prefix] = Begun(word.begun, word.hands)
        word.prefix, word.seen, word.begun = grant.prefix, 0, 0
        word.last = GiftPlace(0, grant.seen.messages + len(names), grant.seen.size + size)
        word.unseen.clear()

    def _report(self, word: Word, grant: CreditGrant) -> None:
        """Note what a receiver has seen and begun."""
        for prefix, seen, begun in ((grant.prefix, grant.seen.serial, grant.begun), *grant.retired):
            if prefix == word.prefix:
                word.seen, word.begun = max(word.seen, seen), max(word.begun, begun)
            for lease in self.leases.values():
                if (lease.word, lease.prefix) == (word.key, prefix):
                    lease.seen = lease.seen or lease.place.serial <= seen
        for serial in [serial for serial in word.unseen if serial <= word.seen]:
            del word.unseen[serial]
        word.late = False

    def _set_limits(self, word: Word, grant: CreditGrant) -> None:
        if grant.limit < word.limit:
            self.cases["grant: withdrawn"] += word.credit > 0
        word.number, word.callers = grant.number, grant.callers
        word.limit, word.size_limit = grant.limit, grant.size_limit
        word.once, word.announced, word.hands = grant.once, grant.announced, grant.hands
        word.suspects = grant.suspects or self.sessions  # a session keeps its order
        word.careful = self.sessions and not grant.suspects
        word.first, word.first_size, word.yields = grant.first, grant.first_size, grant.yields
        word.told_at, word.passed = None, False
        word.open_until, word.forget_at = self.now + GRANT_LIFE, max(word.forget_at, self.now + WORD_LIFE)
        self._report(word, grant)

    def _gifts_again(self, word: Word, grant: CreditGrant) -> list[CreditGift[int]]:
        """Return all that the receiver may not have seen and that is still locked for it."""
        self.cases["again"] += 1
        found = []
        for prefix, seen in ((grant.prefix, grant.seen.serial), *((prefix, seen) for prefix, seen, _ in grant.retired)):
            seen = max(seen, word.seen) if prefix == word.prefix else seen
            for serial in range(seen + 1, seen + MOST_PUSHES + 2):
                lease = self.leases.get(word.token(prefix, serial))
                forgotten = (
                    lease is not None and lease.seen and word.source.startswith("=")
                )  # a word keeps unseen gifts
                if lease is not None and lease.word == word.key and not forgotten:
                    found.append(self._gift(lease))
                    self.cases["again: a gift"] += 1
        return found

    # -- 4. gifts ------------------------------------------------------------------------------------------------------

    def _there(self, word: Word) -> list[int]:
        """Return what a word may be given, the first one first."""
        if word.source == NEXT_SESSION:
            return [-int(session[1:]) for session in sorted(self.free, key=lambda one: (self.free[one], one))]
        ready = self.ready.get(word.source, [])
        return ready if word.suspects else [name for name in ready if not self.items[name].suspect]

    def _size(self, name: int) -> int:
        return self.items[name].size if name > 0 else 0

    def _suspect_first(self, source: str) -> bool:
        """Return whether the first ready message is a suspect."""
        return any(map(self._suspect, self.ready.get(source, [])[:1]))

    def _left(self, word: Word) -> int:
        """Return how much is ready, suspects that the receiver does not take included. Portions are parts of it."""
        return len(self._there(word) if word.source == NEXT_SESSION else self.ready.get(word.source, []))

    def _suspect(self, name: int) -> bool:
        return name > 0 and self.items[name].suspect

    def _listens(self, word: Word) -> bool:
        return word.alive and word.open_until > self.now

    def _eligible(self, word: Word) -> bool:
        """Return whether a receiver wants messages, or news of them, and answers."""
        return word.wants and self._listens(word) and not (word.passed or word.late or self.closed)

    def _able(self) -> list[Word]:
        """Return the receivers that want something, in the order in which they are served."""
        able = filter(self._eligible, self.words.values())
        return sorted(able, key=lambda word: (self._order(word), self._rank(word)))

    def _order(self, word: Word) -> int:
        """Return the place of a word: sources are served one after the other. Holders that may let go come first."""
        if word.source in SOURCES:
            return SOURCES.index(word.source)
        return len(SOURCES) + (not self.may_let_go(word))

    def may_let_go(self, word: Word) -> bool:
        """Return whether the holder of an empty session can be told that others wait, or has not answered this yet."""
        return word.yields and not self._in_use(word) and word.marked == (word.told_at is not None)

    def _others(self, word: Word | None) -> list[Word]:
        return [other for other in self.words.values() if other is not word]

    def _rank(self, word: Word) -> tuple[bool, bool, int, str]:
        """Return the rank of a word at its source."""
        return bool(word.unseen), not word.waits, word.turn, self._name(word)

    def _name(self, word: Word) -> str:
        """Return the key of a word as the scripts have it."""
        receiver, _, source = word.key.partition(" ")
        if source.startswith("="):
            prefix, _, serial = receiver.rpartition(".")
            receiver = _text((prefix, int(serial)))
        return f"{receiver} {source}"

    def _looked_at(self, source: str, known: set[str], caller: Word | None) -> list[Word]:
        """Return the receivers of a source that a call looks at, by their ranks. ``known`` are those before."""
        able = [word for word in self._able() if word.source == source and word is not caller]
        room = MOST_KNOWN - sum(word.key in known for word in able)
        known.update([word.key for word in able if word.key not in known][:room])
        self.cases["more receivers than a call looks at"] += len(able) > MOST_KNOWN
        return [word for word in able if word.key in known]

    def _choose(self, word: Word, most: int, room: int) -> list[int]:
        """Return what to give: at most this many messages and bytes. A suspect is given alone."""
        chosen: list[int] = []
        for name in self._there(word)[:most]:
            size = self._size(name)
            if size > room or (chosen and self._suspect(name)):
                break
            chosen.append(name)
            room -= size
            if self._suspect(name):
                break
        return chosen

    def _reply_gifts(self, word: Word) -> list[CreditGift[int]]:
        """Give the caller its part of what is there. The first message is given whatever its size."""
        there = self._there(word)
        if self.closed or not word.credit or not there or word.last.serial - word.seen > MOST_PUSHES:
            self.cases["reply: too much unseen"] += bool(there and word.credit and not self.closed)
            return []
        rivals = [other for other in self._others(word) if other.source == word.source and self._eligible(other)]
        most = min(word.credit, max(1, self._left(word) // (1 + min(len(rivals), MOST_KNOWN))))
        self.cases["gift: reply"] += 1
        if word.source != NEXT_SESSION:
            room = max(word.size_limit - word.last.size, self._size(there[0]))
            return [self._gift(self._give(word, self._choose(word, most, room), 0))]
        gifts = []
        for name in there[:most]:
            if word.credit and word.last.serial - word.seen <= MOST_PUSHES:
                first = self.ready[f"={self._session_of(name)}"][0]
                names = self._first(word, name, max(word.first_size, self._size(first)), pushed=False)
                gifts.append(self._gift(self._give_session(word, name, names, 0)))
        self.cases["gift: several sessions"] += len(gifts) > 1
        return gifts

    def _first(self, word: Word, name: int, room: int, *, pushed: bool) -> list[int]:
        """Return the first messages that come with a session: in a push, none that is too large for one."""
        names: list[int] = []
        for each in self.ready[f"={self._session_of(name)}"][: word.first]:
            size = self._size(each)
            if size > room or (pushed and size > PUSHED_RECORD) or (names and self._suspect(each)):
                break
            names.append(each)
            room -= size
            if self._suspect(each):
                break
        return names

    def _give_session(self, word: Word, name: int, first: list[int], pushed: int) -> Lease:
        """Give a session. The word of its messages begins with its first messages."""
        lease = self._give(word, [name], pushed)
        session = self._session_of(name)
        token = word.prefix, word.last.serial
        self.holders[session] = token
        del self.free[session]
        key, source = f"{holder(token)} ={session}", f"={session}"
        held = Word(key, word.channel, source, prefix=word.prefix, hands=word.hands, careful=word.careful)
        self.words[held.key] = held
        if first:
            held.limit = held.callers = len(first)
            self._give(held, first, 0)
            self.cases["session: with first messages"] += 1
        return lease

    def _give(self, word: Word, names: list[int], pushed: int) -> Lease:
        """Give messages, or a session, to a receiver under a lock."""
        serial, messages, size = word.last
        word.last = GiftPlace(serial + 1, messages + len(names), size + sum(map(self._size, names)))
        token = word.token(word.prefix, serial + 1)
        assert token not in self.leases, f"the token of a live lease again: {token}"
        until = self.clock + self.lock
        if word.source.startswith("="):
            until = self.leases[self.holders[word.source[1:]]].until
        lease = self.leases[token] = Lease(word.key, word.prefix, word.last, until, list(names), word.source)
        for name in names:
            if word.source != NEXT_SESSION:
                self.ready[word.source].remove(name)
        self.next_lock = min(self.next_lock, until)
        self.turns += 1
        word.turn = self.turns
        word.forget_at = max(word.forget_at, self.now + 2 * self.lock + 10_000)
        word.unseen[serial + 1] = self.now, pushed
        word.marked = False
        if word.once:
            word.limit = word.last.messages
            self.cases["once"] += 1
        return lease

    def _gift(self, lease: Lease) -> CreditGift[int]:
        until = lease.until - self.offset  # by the clock of the server
        gift = CreditGift(lease.prefix, lease.place, until, tuple(lease.names))
        if lease.source != NEXT_SESSION:
            return gift
        session = self._session_of(lease.names[0])
        firsts = [self._gift(each) for each in self.leases.values() if each.source == f"={session}" and not each.seen]
        return gift._replace(session=SessionGift(session, firsts))

    # -- 5. pushes -----------------------------------------------------------------------------------------------------

    def _distribute(self, caller: Word | None = None) -> None:
        """Give ready messages to open grants in pushes, and announce interest in what is left.

        With ``caller``, only the other grants get something, and the caller's reply and its pushes come after that.
        """
        told = 0
        for word in sorted((self.words[key] for key in self.untold), key=self._name):
            if told < MOST_PUSHES:
                self.untold.remove(word.key)
                answers = not word.passed and not word.late  # the others learn it by the call that they owe
                told += answers and (self._tell(word) or True)
        for source in SOURCES:
            known = partial(self._looked_at, source, set[str](), caller)
            self._push(known)
            while caller is None and self._announce(source, known()):
                pass
        holders = [word for word in self._able() if word.source.startswith("=") and word is not caller]
        self._push(lambda: sorted(filter(self._eligible, holders), key=self._rank))
        self.cases["bound of a call"] += not self.pushes
        if caller is None:
            for word in filter(self._eligible, holders):
                self._announce(word.source, [word])
            self._tell_holders()
            self.suspected = False

    def _push(self, receivers: Callable[[], list[Word]]) -> None:
        """Push gifts to receivers, the first one by rank first, until the call may make no more pushes."""
        announced: set[str] = set()
        served: set[str] = set()
        while self.pushes:
            able = [word for word in receivers() if word.key not in announced and self._there(word)]
            if not able:
                break
            word = able[0]
            rivals = sum(other.source == word.source and other.key not in served for other in able)
            most = min(word.credit, MOST_PUSHES, max(1, self._left(word) // max(1, rivals)))
            names = self._pushable(word, most, self.room)
            if not names:
                announced.add(word.key)
                continue
            size = self._publish_gift(word, names)
            if size is None:
                continue
            served.add(word.key)
            self.pushes -= 1
            self.room -= size

    def _pushable(self, word: Word, most: int, room: int) -> list[int]:
        """Return the messages to push to a word; none if it gets only interest."""
        if word.announced or word.last.serial - word.seen >= MOST_PUSHES:
            self.cases["interest: announced" if word.announced else "interest: unseen gifts"] += 1
            return []
        left = min(room, MOST_BYTES - self._pushed(word))
        if word.source == NEXT_SESSION:
            self.cases["interest: size"] += left <= 0
            return self._there(word)[:1] if left > 0 else []
        left = min(left, word.size_limit - word.last.size)
        names: list[int] = []
        for name in self._choose(word, most, left):
            if self._size(name) > PUSHED_RECORD:
                break
            names.append(name)
        self.cases["interest: size"] += not names
        return names

    def _pushed(self, word: Word) -> int:
        """Return the bytes of the unseen pushes to a receiver."""
        return sum(size for _, size in word.unseen.values())

    def _publish_gift(self, word: Word, names: list[int]) -> int | None:
        """Push a gift. Without a listener the grant ends, and nothing is given. Return the number of its bytes."""
        if not self.hears(word.channel):
            self._not_heard(word)
            return None
        if word.source == NEXT_SESSION:
            room = min(self.room, MOST_BYTES - self._pushed(word), word.first_size)
            first = self._first(word, names[0], room, pushed=True)
            size = sum(map(self._size, first))
            lease = self._give_session(word, names[0], first, size)
        else:
            size = sum(map(self._size, names))
            lease = self._give(word, names, size)
        self.cases["gift: push"] += 1
        self._publish(word, self._gift(lease))
        return size

    def _publish(self, word: Word, gift: CreditGift[int] | None, *, others_wait: bool = False) -> bool:
        if not self.hears(word.channel):
            self._not_heard(word)
            return False
        self.publish(word.channel, word.key, CreditPush(self.run, self.now, word.prefix, gift, others_wait))
        return True

    def _not_heard(self, word: Word) -> None:
        self._stop(word)
        self.cases["no listener"] += 1

    def _announce(self, source: str, able: list[Word]) -> bool:
        """Announce what stays ready: one interest for each portion. One that was not answered is passed on.

        If none of the receivers takes suspects, the first one is told of a new suspect: its reply says so. Return
        whether one of them does not listen.
        """
        deaf = False
        order = sorted(able, key=lambda word: (not word.credit, word.told_at is None, self._rank(word)))
        if self.suspected and self._suspect_first(source) and not any(word.suspects for word in able):
            for word in order:
                if word.told_at is not None or self._tell(word):
                    self.cases["interest: a suspect"] += 1
                    break
                deaf = True
        order = [word for word in order if self._there(word) and not deaf]
        left = max((self._left(word) for word in order), default=0)
        for word in order[:MOST_PUSHES]:
            if left <= 0:
                break
            if word.told_at is None and not self._tell(word):
                deaf = True
                continue
            left -= max(1, min(word.credit, MOST_PUSHES, left // len(order)))
            self.cases["interest: without credit"] += not word.credit
        return deaf

    def _tell(self, word: Word, *, others_wait: bool = False) -> bool:
        self.cases["interest"] += 1
        if not self._publish(word, None, others_wait=others_wait):
            return False
        word.told_at = self.now
        return True

    def _waiting_sessions(self) -> int:
        """Return the number of free sessions that nobody can take."""
        return 0 if any(word.source == NEXT_SESSION for word in self._able()) else len(self.free)

    def _tell_holders(self) -> None:
        """Tell the holders of empty sessions that yield, if other sessions wait and nobody can take them.

        One holder is told for each of these sessions: the caller in the reply, the others in a push, and only once.
        Those that can be told, or have not answered, come first: the call looks at some of them.
        """
        left = self._waiting_sessions()
        able = [word for word in self._able() if word.source.startswith("=")] if left else []
        for word in able:
            if word in self.calling and word.yields and not self._in_use(word):
                self.callers_told.add(word.key)
                left -= not word.marked
                word.marked = True
                self.cases["others wait: in a reply"] += 1
        others = sum(map(self._eligible, able)) - len(able := [*filter(self.may_let_go, able)])
        self.cases["more holders than a call looks at"] += len(able) > MOST_KNOWN
        known = [word for word in able[:MOST_KNOWN] if word not in self.calling]
        left -= sum(word.told_at is not None for word in known)
        for word in known:
            if left > 0 and word.told_at is None and self._tell(word, others_wait=True):
                word.marked = True
                left -= 1
                self.cases["others wait: in a push"] += 1
                self.cases["others wait: in a push, behind a crowd"] += others > MOST_KNOWN

    # -- 6. due times --------------------------------------------------------------------------------------------------

    def _next_due(self) -> int:
        """Return when the next call is needed, by the clock of the server. What is due may have gone since.

        A lock that is given from now on ends at least one lock duration later, so a keeper who calls as often as that
        need not be told of new locks.
        """
        return max(self.now, min(self._known_due(), self.now + self.lock))

    def _known_due(self) -> int:
        """Return when something is due, as far as it is known now."""
        return min(self.next_lock - self.offset, self.next_scheduled)

    def _appoint(self, word: Word | None, asked: bool) -> tuple[float | None, bool]:
        """Return in how many seconds the caller must call, and whether it keeps the due time or is the deputy."""
        self.keeper, self.deputy = self._kept(self.keeper), self._kept(self.deputy)
        if word is None:
            return None, False
        if not asked or not self._listens(word):
            self.asked_at = -PATIENCE - 1
            self.keeper = None if self.keeper and self.keeper.word == word.key else self.keeper
            self.deputy = None if self.deputy and self.deputy.word == word.key else self.deputy
            return None, False
        at = self._next_due()
        if self.keeper is None or self.keeper.word == word.key:
            self.keeper = DueKeeper(word.key, at, word.open_until, word.channel)
            self.deputy = None if self.deputy and self.deputy.word == word.key else self.deputy
            self.asked_at = -PATIENCE - 1
            self.cases["due: keeper"] += 1
        elif self.deputy is None or self.deputy.word == word.key or self._is_apart(word, self.keeper, self.deputy):
            self.cases["due: deputy of another client"] += self.deputy is not None and self.deputy.word != word.key
            at += DEPUTY_LATER
            self.deputy = DueKeeper(word.key, at, word.open_until, word.channel)
            self.cases["due: deputy"] += 1
        elif self._known_due() < self.now + OTHERS_WITHIN and not word.source.startswith("="):
            self.cases["due: another receiver"] += 1
            return (max(self._known_due() - self.now, OTHERS_PAUSE) + OTHERS_LATER) / 1000, False
        else:
            return None, False
        return (at - self.now) / 1000, True

    def _is_apart(self, word: Word, keeper: DueKeeper, deputy: DueKeeper) -> bool:
        """Return whether a receiver is to take the place of a deputy that would die with the keeper's client."""
        return deputy.channel == keeper.channel != word.channel

    @property
    def keepers(self) -> tuple[str, str]:
        """The words of the keeper and of its deputy, empty if there are none."""
        return self.keeper.word if self.keeper else "", self.deputy.word if self.deputy else ""

    def _kept(self, one: DueKeeper | None) -> DueKeeper | None:
        """Return a keeper or a deputy, unless its grant has ended or it has missed its time."""
        if one is None or one.open_until <= self.now or one.calls_at + PATIENCE < self.now:
            return None
        return one

    def _tell_keepers(self) -> None:
        """Tell a keeper that its time comes forward, or the next one that the keeper has left."""
        due = self._next_due()
        self.keeper = self._kept(self._forward(self._kept(self.keeper), due))
        self.deputy = self._kept(self._forward(self._kept(self.deputy), due + DEPUTY_LATER))
        if self.keeper is not None or abs(self.now - self.asked_at) <= PATIENCE:
            return
        able = self._able()
        if self.deputy is not None:
            able = [word for word in self.words.values() if word.key == self.deputy.word]
        for word in able:
            if word.told_at is not None or self._tell(word):
                self.asked_at = self.now if self.deputy is None else word.told_at or 0
                self.cases["due: next keeper"] += 1
                return

    def _forward(self, one: DueKeeper | None, due: int) -> DueKeeper | None:
        """Tell a keeper that something is due earlier, unless it was told already."""
        if one is None or one.calls_at <= due:
            return one
        self.cases["due: comes forward"] += 1
        word = self.words.get(one.word)
        if word is None or (word.told_at is None and not self._tell(word)):
            return None
        return one._replace(calls_at=word.told_at or self.now)
