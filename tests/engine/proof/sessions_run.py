"""The long run of sessions: receivers compete for sessions, and give messages back or let locks lapse at random.

python -m tests.engine.proof.sessions_run [--messages N] [--sessions N] [--receivers N] [--seed N]

An observer sees all calls but does not know the scripts. It checks the answers against the rules of ordering:
- In a session, a message is given out only if each earlier message is finished or held by the same receiver.
- Messages are completed in the order of their numbers.
- A session has one receiver at a time.
- Failed deliveries are counted.
- In the end every message is accounted for, and nothing is left of any session.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sbredis.engine import (
    CallId,
    Content,
    Delivery,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    SessionLock,
    encode,
)
from sbredis.servers import LocalServer
from tests.engine.model import Refused
from tests.engine.proof.hosts import USUAL, Host, host
from tests.engine.taking import accepting, first_token, receiving

LOCK = 2_000
LIMIT = 3
T0 = 1_700_000_000_000
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=LIMIT, sessions=True)

_entities = itertools.count(1)


@dataclass
class Known:
    """The observer's knowledge of a session."""

    sent: list[int] = field(default_factory=list)
    first_open: int = 0  # the index in `sent` of the first unfinished message
    done: set[int] = field(default_factory=set)  # completed, deferred or dead
    completed: int = 0  # the last number that was completed in order
    failures: Counter[int] = field(default_factory=Counter)
    holder: Receiver | None = None
    until: int = 0
    blocked: int = 0  # the time until which a delay blocks the session


@dataclass
class Receiver:
    """A receiver that works through sessions, one message after the other."""

    name: str
    session: str | None = None
    token: str = ""
    held: list[Delivery] = field(default_factory=list)
    sleeps_until: int = 0
    calls: int = 0


class Run:
    """A partition, its receivers, and their observer."""

    def __init__(self, on: Host, *, sessions: int, receivers: int, seed: int) -> None:
        self.on = on
        self.chance = random.Random(seed)
        self.partition = Partition("run", "abc", f"e{next(_entities)}", "i1", 1, SETTINGS)
        self.now = T0
        self.names = [f"s{number}" for number in range(sessions)]
        self.known = {name: Known() for name in self.names}
        self.receivers = [Receiver(f"r{number}") for number in range(receivers)]
        self.tally: Counter[str] = Counter()
        self.tokens = itertools.count(1)
        self.deferred: dict[str, list[int]] = {}
        self.sending = 0
        self._tell(self.partition.configure(create=True))

    # -- calling

    def _tell(self, request: Request[Any]) -> Any:
        self.tally["calls"] += 1
        assert self.tally["calls"] < 20 * self.tally["sent"] + 10_000, "some message is never given out"
        return self.on.run(request)

    def _turn(self, receiver: Receiver) -> CallId:
        receiver.calls += 1
        return CallId(receiver.name, receiver.calls, self.now)

    # -- events

    def send(self, count: int) -> None:
        chosen = [self.chance.choice(self.names) for _ in range(count)]
        messages = [Outgoing(encode(Content(b"x" * 20, session_id=name))) for name in chosen]
        self.sending += 1
        first = self._tell(self.partition.send(CallId("sender", self.sending, self.now), messages)).first
        for number, name in enumerate(chosen, first):
            self.known[name].sent.append(number)
        self.tally["sent"] += count

    def step(self, *, calm: bool = False) -> None:
        """Let some time pass, and then let a receiver make a call. With ``calm``, the receiver only works through
        sessions.
        """
        self.now += self.chance.randrange(1, 12)
        self._notice_lapses()
        receiver = self.chance.choice(self.receivers)
        if receiver.sleeps_until > self.now and not calm:
            return
        luck = 1.0 if calm else self.chance.random()
        if receiver.session is None:
            self._accept(receiver, by_name=luck < 0.05)
        elif luck < 0.008:
            receiver.sleeps_until = self.now + self.chance.randrange(LOCK // 2, 3 * LOCK)
            self.tally["fell asleep"] += 1
        elif luck < 0.02 or (calm and not receiver.held and self.chance.random() < 0.2):
            self._release(receiver)
        elif luck < 0.04:
            self._renew(receiver)
        elif receiver.held:
            self._settle(receiver, luck)
        else:
            self._receive(receiver)

    def _notice_lapses(self) -> None:
        """Count a failed delivery for each message that was held under a lock that has ended."""
        for receiver in self.receivers:
            known = self.known.get(receiver.session or "")
            if known and known.holder is receiver and known.until <= self.now:
                for message in receiver.held:
                    self._failed(known, int(message.name))
                known.holder = None
                self.tally["lapses"] += 1
                self.tally["lapsed with messages"] += bool(receiver.held)

    def _failed(self, known: Known, number: int) -> None:
        known.failures[number] += 1
        if known.failures[number] >= LIMIT:
            known.done.add(number)
            self.tally["dead by deliveries"] += 1

    def _accept(self, receiver: Receiver, *, by_name: bool) -> None:
        token = first_token(f"{next(self.tokens):08}")
        name = self.chance.choice(self.names) if by_name else None
        if name is None:
            accepted = self._tell(accepting(self.partition, token, run="r1", now=self.now))
        else:
            accepted = self._tell(self.partition.accept_session(self._turn(receiver), token, name))
        outcome = "none" if accepted is None else accepted.outcome
        self.tally[f"accept: {outcome}"] += 1
        if accepted is None or outcome != "taken":
            locked = name is not None and self.known[name].holder is not None
            assert outcome == ("locked" if locked else "none"), accepted
            return
        known = self.known[accepted.session]
        assert name is not None or known.blocked <= self.now, f"{accepted.session} is blocked"
        assert known.holder is None, f"{accepted.session} is with {known.holder} and given to {receiver}"
        known.holder, known.until = receiver, self.now + LOCK
        receiver.session, receiver.token, receiver.held = accepted.session, token, []

    def _mine(self, receiver: Receiver) -> Known | None:
        """Return the session of a receiver, if its lock is still valid."""
        known = self.known[receiver.session or ""]
        return known if known.holder is receiver else None

    def _lost(self, receiver: Receiver, request: Request[Any]) -> bool:
        """Return whether a call was refused for a lost lock. Check that this agrees with the state of the lock."""
        try:
            self._tell(request)
        except Refused as refused:
            _expect_lost(refused, self._mine(receiver))
            receiver.session = None
            self.tally["found its lock lost"] += 1
            return True
        assert self._mine(receiver) is not None, f"{receiver} goes on with a lock that has ended"
        return False

    def _lock(self, receiver: Receiver) -> SessionLock:
        return SessionLock(receiver.session or "", receiver.token)

    def _release(self, receiver: Receiver) -> None:
        known = self._mine(receiver)
        if self._lost(receiver, self.partition.release_session(self._turn(receiver), self._lock(receiver))):
            return
        assert known is not None
        known.holder = receiver.session = None
        self.tally["given back with messages" if receiver.held else "given back"] += 1

    def _renew(self, receiver: Receiver) -> None:
        known = self._mine(receiver)
        if not self._lost(receiver, self.partition.renew_session(self._turn(receiver), self._lock(receiver))):
            assert known is not None
            known.until = self.now + LOCK
            self.tally["renewed"] += 1

    def _receive(self, receiver: Receiver) -> None:
        wanted = self.chance.randrange(1, 9)
        request = receiving(
            self.partition,
            receiver.token,
            wanted,
            run="r1",
            now=self.now,
            session=receiver.session,
            refuse=Refused,
        )
        known = self._mine(receiver)
        try:
            given = self._tell(request).messages
        except Refused as refused:
            _expect_lost(refused, known)
            receiver.session = None
            self.tally["found its lock lost"] += 1
            return
        assert known is not None, f"{receiver} receives with a lock that has ended"
        numbers = [int(message.name) for message in given]
        assert not numbers or known.blocked <= self.now, f"{receiver} gets {numbers} of a blocked session"
        self._check_order(known, numbers)
        for message in given:
            assert message.failures == known.failures[int(message.name)], message
        receiver.held = list(given)
        self.tally["received"] += len(given)
        if not given:
            self._release(receiver)

    def _check_order(self, known: Known, numbers: list[int]) -> None:
        """Check that these are the next messages. The receiver holds no others, so all earlier ones are finished."""
        while known.first_open < len(known.sent) and known.sent[known.first_open] in known.done:
            known.first_open += 1
        expected = (number for number in known.sent[known.first_open :] if number not in known.done)
        assert numbers == list(itertools.islice(expected, len(numbers))), f"given {numbers}, sent {known.sent}"

    def _settle(self, receiver: Receiver, luck: float) -> None:
        """Settle the first held message; if it is given back, give back all later held messages as well."""
        first, *rest = receiver.held
        number, lock = int(first.name), Lock(receiver.token, first.name)
        known = self._mine(receiver)
        call_id, delay = self._turn(receiver), 0
        if luck < 0.18:
            delay = self.chance.choice([0, 0, 50, 500])
            settled = self._tell(self.partition.abandon(call_id, [lock._replace(delay=delay)]))
            how = "abandoned with a delay" if delay else "abandoned"
        elif luck < 0.19:
            settled, how = self._tell(self.partition.defer(call_id, [lock])), "deferred"
        elif luck < 0.195:
            settled, how = self._tell(self.partition.dead_letter(call_id, [lock])), "dead-lettered"
        else:
            settled, how = self._tell(self.partition.complete(call_id, [lock])), "completed"
        assert (settled.lost == (first.name,)) is (known is None), f"{settled}, {receiver}"
        if known is None:
            receiver.session = None
            self.tally["found its lock lost"] += 1
            return
        receiver.held = rest
        if how == "deferred":
            self._failed(known, number)  # deferring counts as a delivery
            if number in known.done:
                return  # the receiver has no other message
        self.tally[how] += 1
        if how.startswith("abandoned"):
            self._failed(known, number)
            if number not in known.done and delay:
                known.blocked = max(known.blocked, self.now + delay)
            if rest:
                locks = [Lock(receiver.token, message.name) for message in rest]
                assert not self._tell(self.partition.abandon(self._turn(receiver), locks, counted=False)).lost
            receiver.held = []
            return
        known.done.add(number)
        if how == "completed":
            assert number > known.completed, f"{number} is completed after {known.completed}"
            known.completed = number
        elif how == "deferred":
            self.deferred.setdefault(receiver.session or "", []).append(number)

    # -- the end

    def open(self) -> int:
        """The number of unfinished messages."""
        return sum(len(known.sent) - len(known.done) for known in self.known.values())

    def finish(self) -> None:
        """Work calmly until all is done; then fetch deferred and dead messages, and check that nothing is left."""
        for receiver in self.receivers:
            receiver.sleeps_until = 0
        while self.open() or any(receiver.session is not None for receiver in self.receivers):
            self.step(calm=True)
        one = self.receivers[0]
        for name, numbers in self.deferred.items():
            token = first_token(f"{next(self.tokens):08}")
            assert self._tell(self.partition.accept_session(self._turn(one), token, name)).outcome == "taken"
            names = [str(number) for number in numbers]
            request = self.partition.receive_deferred(self._turn(one), token, names, mode="delete", session=name)
            assert [message.name for message in self._tell(request).messages] == names
            self._tell(self.partition.release_session(self._turn(one), SessionLock(name, token)))
        dead = 0
        while True:
            token = first_token(f"{next(self.tokens):08}")
            request = receiving(self.partition, token, 1000, run="r1", now=self.now, side="d", mode="delete")
            given = self._tell(request).messages
            dead += len(given)
            if not given:
                break
        assert dead == self.tally["dead by deliveries"] + self.tally["dead-lettered"]
        accounted = self.tally["completed"] + self.tally["deferred"] + dead
        assert accounted == self.tally["sent"], f"{accounted} of {self.tally['sent']}"
        picture = self.on.picture(self.partition.keys)
        left = {kind: len(held) for kind, held in picture.hashes.items() if held}
        left |= {kind: len(held) for kind, held in picture.sets.items() if held}
        assert not [key for key in picture.hashes["words"] if b" =" in key], "a word of a session is left"
        for kind in ("words", "kept"):  # a partition remembers receivers for a while
            left.pop(kind, None)
        kinds = {"state": left["state"], "store": left["store"], "order": 1, "entries": 1, "ops": left["ops"]}
        assert left == kinds, f"left: {left}"

    def clear(self) -> None:
        self.on.ask("DEL", *self.partition.keys)


def _expect_lost(refused: Refused, known: Known | None) -> None:
    """Check that a call was refused for a lost lock, and that its lock has really ended."""
    assert (refused.code, known) == ("LOST", None), f"{refused}, although {known}"


def run(on: Host, messages: int, *, sessions: int = 200, receivers: int = 4, seed: int = 1) -> Counter[str]:
    """Send and process this many messages; return how often each event happened."""
    this = Run(on, sessions=sessions, receivers=receivers, seed=seed)
    try:
        while this.tally["sent"] < messages or this.open() > 2 * sessions:
            if this.tally["sent"] < messages and this.open() < 10 * sessions:
                this.send(min(100, messages - this.tally["sent"]))
            this.step()
        this.finish()
    finally:
        this.clear()
    return this.tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--receivers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with LocalServer() as server, host(USUAL, server=server) as on:
        tally = run(on, given.messages, sessions=given.sessions, receivers=given.receivers, seed=given.seed)
    for what, count in sorted(tally.items()):
        sys.stdout.write(f"{what:<28}{count:>12,}\n")
    sys.stdout.write(
        f"\n{tally['sent']:,} messages of {given.sessions} sessions, {given.receivers} receivers, seed {given.seed}: "
        f"no reorder, no two holders, in {time.monotonic() - started:,.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
