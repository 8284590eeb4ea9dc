"""The model of a partition whose receivers grant credit: words, gifts, interest, due times, ends, epochs, sessions.

It is the specification for the scripts, as far as credit is concerned. It has no records and no dead letters: a message
is a number and a size. ``sbredis/receiving/_credit.py`` has the theory of counting, and ``credit.md`` beside it says
what the partition stores. A call does these steps in this order:

1. A call of another server process begins an epoch, which closes all words.
2. Due work is done: scheduled messages become ready, leases lapse, words are forgotten.
3. The call settles messages, and its grant is taken, if it is a newer one and the partition knows its prefix.
4. The caller gets a gift in the reply. If other grants wait too, it gets a fair portion.
5. All other grants get gifts in pushes, and interest in what is left.
6. The caller may become the keeper of the next due time, or its deputy.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sbredis.engine import lease_token
from sbredis.engine._bands import EPOCH_LEAP
from sbredis.receiving._credit import (
    CreditAnswer,
    CreditGift,
    CreditGrant,
    CreditPush,
    CreditReply,
    GiftPlace,
)

__all__ = [
    "DELIVERY_CALLS",
    "MOST_BYTES",
    "MOST_PUSHES",
    "NEXT_SESSION",
    "PUSHED_RECORD",
    "WORD_LIFE",
    "CreditCall",
    "CreditPartition",
    "Item",
    "Lease",
    "Word",
]

MOST_PUSHES = 16
"""The largest number of pushes of a call, and of unseen gifts of a grant."""
MOST_BYTES = 65_536
"""The largest number of bytes in the pushes of a call, and in the unseen pushes of a grant."""
PUSHED_RECORD = 16_384
"""The largest record that is pushed."""
PATIENCE = 1_000
"""The milliseconds in which a receiver must answer interest, and report what it has seen."""
GRANT_LIFE = 300_000
DELIVERY_CALLS = 60_000
"""The milliseconds in which a call may be repeated."""
WORD_LIFE = DELIVERY_CALLS + 10_000
DEPUTY_LATER = 5_000
NEXT_SESSION = "next"
"""The source that gives out sessions. The source of the messages of a session is ``=`` and its name."""

NEVER = 1 << 62
NOTHING = GiftPlace(0, 0, 0)


def _text(token: tuple[str, int]) -> str:
    """Return a token as the scripts have it. Leases that end at the same time lapse in the order of these texts."""
    prefix, serial = token
    return lease_token(f"{prefix:-<8}", serial)


Publish = Callable[[str, str, CreditPush[int]], int]
"""Pushes to the listeners of a channel, for the receiver with this word. Returns the number of listeners."""


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
    """The lock on the messages of a gift, or on a session."""

    word: str
    prefix: str
    place: GiftPlace
    until: int
    """The logical time at which it ends."""
    names: list[int]
    source: str


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


class CreditCall(NamedTuple):
    """A call: a grant, a settlement, or a settlement with a grant."""

    receiver: str
    channel: str
    source: str
    grant: CreditGrant | None = None
    token: tuple[str, int] | None = None
    """The lease of the settlement; for a grant at a session, the lock of the session."""
    completed: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    """The messages, or with an empty name the session, to release uncounted."""


class CreditPartition:
    """A partition. Each method that a client calls is one script, and takes the clock of the server in milliseconds."""

    def __init__(self, run: str, now: int, publish: Publish, *, lock: int, seen: Counter[str], sessions: bool) -> None:
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
        self.leases: dict[tuple[str, int], Lease] = {}
        self.holders: dict[str, tuple[str, int]] = {}
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
                self._make_ready(self.number)
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

    def execute(self, run: str, now: int, call: CreditCall) -> CreditReply[int] | bool:
        """Run a call. Return the answer to its grant, or whether the settlement was done if there is none."""
        self._begin(run, now)
        gave_back: list[int] = []
        settled = True
        if call.token is not None and (call.completed or call.released or call.grant is None):
            settled, gave_back = self._settle(call.token, call.completed, call.released)
        if call.grant is None:
            self._distribute()
            self._tell_keepers()
            return settled
        answer, word, again = self._take(call, call.grant)
        gifts = [] if word is None or (not call.grant.again and not again) else self._gifts_again(word, call.grant)
        answers_again = word is not None and (call.grant.again or again)
        asked = word is not None and word.wants and not call.grant.now
        if word is not None and answer is CreditAnswer.TAKEN:
            if gave_back and not call.grant.now:
                self._distribute(word)  # what the caller has given back goes to others first
            gifts += self._reply_gift(word)
            if call.grant.now:
                self._stop(word)
        last = word.last if word else NOTHING  # pushes of this call come after it
        there = word is not None and bool(self._there(word))
        suspects = word is not None and not word.suspects and self._suspect_first(word.source)
        if word is not None and there and not word.credit:
            word.announced = False  # the reply says it
        self._distribute()
        due = self._appoint(word, asked)
        self._tell_keepers()
        return CreditReply(
            run=run,
            clock=now,
            answer=answer,
            prefix=word.prefix if word else "",
            last=last,
            limit=word.limit if word else 0,
            gifts=gifts,
            again=answers_again,
            there=there,
            suspects=suspects,
            due=due,
        )

    # -- 1. time -------------------------------------------------------------------------------------------------------

    def _begin(self, run: str, now: int) -> None:
        logical = now + self.offset
        self.pushes, self.room = MOST_PUSHES, MOST_BYTES
        epoch = run != self.run
        if epoch:
            logical = max(self.clock, logical - self.lock)
            self.run = run
            self._close_words()
        logical = max(logical, self.clock)
        self.clock, self.offset, self.now = logical, logical - now, now
        while self.scheduled and self.scheduled[0][0] <= now:
            item = self.items.pop(self.scheduled.pop(0)[1])
            self.number += 1
            self.items[self.number] = dataclasses.replace(item, name=self.number)
            self._make_ready(self.number)
            self.cases["due: scheduled"] += 1
        for token, lease in sorted(self.leases.items(), key=lambda entry: (entry[1].until, _text(entry[0]))):
            if lease.until <= logical and token in self.leases:
                self._lapse(token, lease)
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
            if word.forget_at <= now and not word.wants and word.key not in self.untold:
                del self.words[word.key]
                self.cases["word forgotten"] += 1

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

    def _lapse(self, token: tuple[str, int], lease: Lease) -> None:
        """End a lease whose time is over. A delivery counts as far as the holder has begun, and its hands reach."""
        del self.leases[token]
        self.cases["lapse"] += 1
        if lease.source == NEXT_SESSION:
            for name in lease.names:
                self._free_session(self._session_of(name))
            return
        for name in lease.names[: self._begun(token, lease)]:
            item = self.items[name]
            item.lapses += 1
            self.suspected = self.suspected or item.suspect
            self.cases["suspect"] += item.lapses == 2
        self._put_back(lease.names)

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

    def _settle(
        self, token: tuple[str, int], completed: Sequence[int], released: Sequence[int]
    ) -> tuple[bool, list[int]]:
        lease = self.leases.get(token)
        held = [] if lease is None else lease.names
        lost = {*completed, *released}.difference(held)
        self.cases["settlement: lost"] += bool(lost)
        if lease is None:
            return False, []
        completed = [name for name in completed if name in held]
        released = [name for name in released if name in held]
        lease.names = [name for name in lease.names if name not in completed and name not in released]
        if not lease.names:
            del self.leases[token]
        if lease.source == NEXT_SESSION:
            for name in (*completed, *released):
                self._free_session(self._session_of(name))
        else:
            for name in completed:
                del self.items[name]
            self._put_back(released)
        self.cases["settlement: released" if released else "settlement: completed"] += 1
        return not lost, list(released)

    def _put_back(self, names: Iterable[int]) -> None:
        for name in names:
            self._make_ready(name)

    def _make_ready(self, name: int) -> None:
        item = self.items[name]
        bisect.insort(self.ready.setdefault(f"={item.session}" if self.sessions else "", []), name)

    def _session_of(self, name: int) -> str:
        """Return the session with a negative number as its name."""
        return f"s{-name}"

    def _free_session(self, session: str) -> None:
        """Let go of a session: all gifts of its messages end, and so does the credit for them."""
        self.holders.pop(session, None)
        source = f"={session}"
        for token, lease in [*self.leases.items()]:
            if lease.source == source:
                del self.leases[token]
                self._put_back(lease.names)
        for word in self.words.values():
            if word.source == source:
                self._end_credit(word)
        self.cases["session: free"] += 1

    def _end_credit(self, word: Word) -> None:
        """End the credit of a receiver, and tell it, so that its next call learns why."""
        if word.wants:
            self._stop(word)
            if not word.passed and not word.late:  # the others learn it by the call that they owe
                self.untold.append(word.key)

    def _stop(self, word: Word) -> None:
        word.limit, word.announced = min(word.limit, word.last.messages), False

    # -- 3. grants -----------------------------------------------------------------------------------------------------

    def _take(self, call: CreditCall, grant: CreditGrant) -> tuple[CreditAnswer, Word | None, bool]:
        """Take a grant. Return what was done with it, the receiver's word, and whether it is a repetition."""
        key = f"{call.receiver} {call.source}"
        word = self.words.get(key)
        if grant.run != self.run:
            self.cases["grant: of another process"] += 1
            return CreditAnswer.FORGOTTEN, None, False
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
            before, word = word, Word(key, call.channel, call.source)
            self.words[key] = word
            if before is not None:
                self.earlier[before.prefix] = Begun(before.begun, before.hands)
            self.cases["word begun"] += 1
        if grant.prefix != word.prefix:
            self._count_anew(word, grant)
        self._set_limits(word, grant)
        if self.closed or (call.source.startswith("=") and self.holders.get(call.source[1:]) != call.token):
            self._stop(word)
            self.cases["grant: refused" if self.closed else "grant: session lost"] += 1
            return CreditAnswer.REFUSED, word, True
        self.cases["grant: taken"] += 1
        return CreditAnswer.TAKEN, word, False

    def _count_anew(self, word: Word, grant: CreditGrant) -> None:
        """Begin a prefix. What its receiver has counted, and what it will be given again, counts as given."""
        self.cases["grant: new prefix"] += 1
        names = [
            name
            for prefix, seen, _ in grant.retired
            for (of, serial), lease in self.leases.items()
            if of == prefix and serial > seen
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
        for serial in [serial for serial in word.unseen if serial <= word.seen]:
            del word.unseen[serial]
        word.late = False

    def _set_limits(self, word: Word, grant: CreditGrant) -> None:
        if grant.limit < word.limit:
            self.cases["grant: withdrawn"] += word.credit > 0
        word.number, word.callers = grant.number, grant.callers
        word.limit, word.size_limit = grant.limit, grant.size_limit
        word.once, word.announced, word.suspects, word.hands = grant.once, grant.announced, grant.suspects, grant.hands
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
                lease = self.leases.get((prefix, serial))
                if lease is not None and lease.word == word.key:
                    found.append(self._gift(lease))
                    self.cases["again: a gift"] += 1
        return found

    # -- 4. gifts ------------------------------------------------------------------------------------------------------

    def _there(self, word: Word) -> list[int]:
        """Return what a word may be given, the first one first."""
        if word.source == NEXT_SESSION:
            free = [source for source, names in self.ready.items() if names and source[1:] not in self.holders]
            return [-int(source[2:]) for source in sorted(free, key=lambda source: self.ready[source][0])]
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

    def _others(self, word: Word | None) -> list[Word]:
        return [other for other in self.words.values() if other is not word]

    def _rank(self, word: Word) -> tuple[bool, bool, int, str]:
        return bool(word.unseen), not word.waits, word.turn, word.key

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

    def _reply_gift(self, word: Word) -> list[CreditGift[int]]:
        """Give the caller its part of what is there. The first message is given whatever its size."""
        there = self._there(word)
        if self.closed or not word.credit or not there or word.last.serial - word.seen > MOST_PUSHES:
            self.cases["reply: too much unseen"] += bool(there and word.credit and not self.closed)
            return []
        rivals = [other for other in self._others(word) if other.source == word.source and self._eligible(other)]
        most = min(word.credit, max(1, self._left(word) // (1 + len(rivals))))
        room = max(word.size_limit - word.last.size, self._size(there[0]))
        lease = self._give(word, self._choose(word, most, room), 0)
        self.cases["gift: reply"] += 1
        return [self._gift(lease)]

    def _give(self, word: Word, names: list[int], pushed: int) -> Lease:
        serial, messages, size = word.last
        word.last = GiftPlace(serial + 1, messages + len(names), size + sum(map(self._size, names)))
        token = word.prefix, serial + 1
        assert token not in self.leases, f"the token of a live lease again: {token}"
        until = self.clock + self.lock
        if word.source.startswith("="):
            until = self.leases[self.holders[word.source[1:]]].until
        lease = self.leases[token] = Lease(word.key, word.prefix, word.last, until, list(names), word.source)
        for name in names:
            if word.source == NEXT_SESSION:
                self.holders[self._session_of(name)] = token
            else:
                self.ready[word.source].remove(name)
        self.next_lock = min(self.next_lock, until)
        self.turns += 1
        word.turn = self.turns
        word.forget_at = max(word.forget_at, self.now + 2 * self.lock + 10_000)
        word.unseen[serial + 1] = self.now, pushed
        if word.once:
            word.limit = word.last.messages
            self.cases["once"] += 1
        return lease

    def _gift(self, lease: Lease) -> CreditGift[int]:
        until = lease.until - self.offset  # by the clock of the server
        return CreditGift(lease.prefix, lease.place, until, tuple(lease.names))

    # -- 5. pushes -----------------------------------------------------------------------------------------------------

    def _distribute(self, caller: Word | None = None) -> None:
        """Give ready messages to open grants in pushes, and announce interest in what is left.

        With ``caller``, only the other grants get something, and the caller's reply and its pushes come after that.
        """
        for key in self.untold[:MOST_PUSHES]:
            self.untold.remove(key)
            if (word := self.words.get(key)) is not None:
                self._tell(word)
        announced: set[str] = set()
        served: set[str] = set()
        while self.pushes:
            able = [
                word
                for word in self.words.values()
                if self._eligible(word) and word.key not in announced and word is not caller
            ]
            able = [word for word in able if self._there(word)]
            if not able:
                break
            word = min(able, key=self._rank)
            rivals = sum(other.source == word.source and other.key not in served for other in able)
            most = min(word.credit, MOST_PUSHES, max(1, self._left(word) // max(1, rivals)))
            names = self._pushable(word, most, self.room)
            if not names:
                announced.add(word.key)
                continue
            if not self._publish_gift(word, names):
                continue
            served.add(word.key)
            self.pushes -= 1
            self.room -= sum(map(self._size, names))
        self.cases["bound of a call"] += not self.pushes
        if caller is None:
            self._announce()
            self.suspected = False

    def _pushable(self, word: Word, most: int, room: int) -> list[int]:
        """Return the messages to push to a word; none if it gets only interest."""
        if word.announced or word.last.serial - word.seen >= MOST_PUSHES:
            self.cases["interest: announced" if word.announced else "interest: unseen gifts"] += 1
            return []
        unseen = sum(size for _, size in word.unseen.values())
        left = min(room, MOST_BYTES - unseen, word.size_limit - word.last.size)
        names: list[int] = []
        for name in self._choose(word, most, left):
            if self._size(name) > PUSHED_RECORD:
                break
            names.append(name)
        self.cases["interest: size"] += not names
        return names

    def _publish_gift(self, word: Word, names: list[int]) -> bool:
        """Push a gift. Without a listener the grant ends, and nothing is given."""
        before, turn, next_lock, forget_at = word.last, word.turn, self.next_lock, word.forget_at
        held = {name: self.holders.get(self._session_of(name)) for name in names if name < 0}
        lease = self._give(word, names, sum(map(self._size, names)))
        if self._publish(word, self._gift(lease)):
            self.cases["gift: push"] += 1
            return True
        del self.leases[word.prefix, lease.place.serial], word.unseen[lease.place.serial]
        word.last, word.limit, word.turn = before, before.messages, turn
        self.turns, self.next_lock, word.forget_at = self.turns - 1, next_lock, forget_at
        for name in names:
            if name in held:
                del self.holders[self._session_of(name)]
            else:
                self._make_ready(name)
        return False

    def _publish(self, word: Word, gift: CreditGift[int] | None) -> bool:
        heard = self.publish(word.channel, word.key, CreditPush(self.run, self.now, word.prefix, gift)) > 0
        if not heard:
            self._stop(word)
            self.cases["no listener"] += 1
        return heard

    def _announce(self) -> None:
        """Announce what stays ready: one interest for each portion. One that was not answered is passed on."""
        for source in {word.source for word in self.words.values()}:
            able = [word for word in self.words.values() if word.source == source and self._eligible(word)]
            if self.suspected and self._suspect_first(source) and not any(word.suspects for word in able):
                self._tell_of_suspects(able)
            able = [word for word in able if self._eligible(word) and self._there(word)]
            left = max((self._left(word) for word in able), default=0)
            rivals = len(able) or 1
            order = sorted(able, key=lambda word: (not word.credit, word.told_at is None, self._rank(word)))
            for told, word in enumerate(order):
                if left <= 0 or told >= MOST_PUSHES:
                    break
                if word.told_at is None and not self._tell(word):
                    continue
                left -= max(1, min(word.credit, MOST_PUSHES, left // rivals))
                self.cases["interest: without credit"] += not word.credit

    def _tell_of_suspects(self, able: list[Word]) -> None:
        """Tell the first of these receivers, which take no suspects, that there is one: its reply says so."""
        for word in sorted(able, key=lambda word: (word.told_at is None, self._rank(word))):
            if word.told_at is not None or self._tell(word):
                self.cases["interest: a suspect"] += 1
                return

    def _tell(self, word: Word) -> bool:
        self.cases["interest"] += 1
        if not self._publish(word, None):
            return False
        word.told_at = self.now
        return True

    # -- 6. due times --------------------------------------------------------------------------------------------------

    def _next_due(self) -> int:
        """Return when the next call is needed, by the clock of the server. What is due may have gone since.

        A lock that is given from now on ends at least one lock duration later, so a keeper who calls as often as that
        need not be told of new locks.
        """
        return max(self.now, min(self.next_lock - self.offset, self.next_scheduled, self.now + self.lock))

    def _appoint(self, word: Word | None, asked: bool) -> float | None:
        """Return in how many seconds the caller must call, if it keeps the due time or is the deputy."""
        self.keeper, self.deputy = self._kept(self.keeper), self._kept(self.deputy)
        if word is None:
            return None
        if not asked or not self._listens(word):
            self.asked_at = -PATIENCE - 1
            self.keeper = None if self.keeper and self.keeper.word == word.key else self.keeper
            self.deputy = None if self.deputy and self.deputy.word == word.key else self.deputy
            return None
        at = self._next_due()
        if self.keeper is None or self.keeper.word == word.key:
            self.keeper = DueKeeper(word.key, at, word.open_until)
            self.deputy = None if self.deputy and self.deputy.word == word.key else self.deputy
            self.asked_at = -PATIENCE - 1
            self.cases["due: keeper"] += 1
        elif self.deputy is None or self.deputy.word == word.key:
            at += DEPUTY_LATER
            self.deputy = DueKeeper(word.key, at, word.open_until)
            self.cases["due: deputy"] += 1
        else:
            return None
        return (at - self.now) / 1000

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
        able = [word for word in self.words.values() if self._eligible(word)]
        if self.deputy is not None:
            able = [word for word in self.words.values() if word.key == self.deputy.word]
        for word in sorted(able, key=self._rank):
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
