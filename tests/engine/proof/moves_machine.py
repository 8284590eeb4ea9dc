"""A state machine of moves: movers that may stop or repeat old calls at any step, users, failures; nothing is lost.

python -m tests.engine.proof.moves_machine [--examples N] [--steps N]

A source forwards its messages and its dead letters to three destinations: two in other slots, and one in its own. The
destination of each message is fixed. In the end an honest mover moves what is left. Then each message must be at one
place: at the source, at its destination, or with a receiver.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from sbredis.engine import (
    NO_CALL_ID,
    Batch,
    CallId,
    Changes,
    Delivery,
    Destination,
    Lock,
    Operation,
    Origin,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    SidePrefix,
    Taken,
    Waiting,
    destroy_source,
    encode_changes,
    forget_source,
    freeze,
    outgoing,
    read_batch,
    read_record,
    settle_batch,
    take,
    transact,
    transfer,
    withdraw,
)
from sbredis.engine._lifecycle import BAND_WIDTH, BANDS, Side, State
from sbredis.engine._scripts import read_source
from sbredis.servers import LocalServer
from tests.engine.model import Refused
from tests.engine.proof.hosts import Host, Read, host, with_texts_replaced
from tests.stored_settings import with_settings

__all__ = ["BUGS", "MovesMachine", "prove"]

T0 = 1_700_000_000_000
LOCK = 5_000
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=50, dead_letter_expired=True)
SALTS = {"q": "abc", "n": "abc", "a": "abd", "b": "abe"}
WHY = encode_changes(Changes(reason="because"))
DOORLESS = ""

_examples = itertools.count(1)


@dataclass
class Mover:
    """A mover between slots, which does one step of one move at a time."""

    destination: Destination
    messages: tuple[Delivery, ...] = ()
    birth: str = ""
    batch: Batch | None = None
    door: str = DOORLESS
    taken: Taken | None = None
    rest: list[str] = field(default_factory=list)


class MovesMachine(RuleBasedStateMachine):
    """One source, three destinations, movers, receivers and failures."""

    on: Host
    """The host of the run; a subclass sets it."""

    def __init__(self) -> None:
        super().__init__()
        example = next(_examples)
        self.now = T0
        self.ids = {name: f"{name}{example}" for name in SALTS}
        self.of = {
            name: Partition("machine", salt, self.ids[name], f"of-{name}", 1, self._settings(name))
            for name, salt in SALTS.items()
        }
        self.to = {name: Destination(self.ids[name], number) for number, name in enumerate(("a", "b", "n"), 1)}
        self.runs = dict.fromkeys(SALTS, 1)
        self.numbers = itertools.count(1)
        self.bodies = itertools.count(1)
        self.alive: set[int] = set()
        """The messages that must be at one place."""
        self.perhaps: set[int] = set()
        """Messages that were destroyed with their source. Each may be at its destination, once."""
        self.received: Counter[int] = Counter()
        self.movers: list[Mover] = []
        self.past: list[tuple[str, Request[Any]]] = []
        """Calls of movers, which may come again at any time."""
        self.gone: list[tuple[str, tuple[str, ...]]] = []
        """Births of former sources that were not forgotten yet, and the destinations that they told."""
        self.tally: Counter[str] = Counter()

    @staticmethod
    def _settings(name: str) -> PartitionSettings:
        return replace(SETTINGS, forwards=True, forwards_dead=True) if name == "q" else SETTINGS

    @initialize()
    def create(self) -> None:
        for name in SALTS:
            self._tell(name, self.of[name].configure(create=True, now=self.now))

    # -- calling -------------------------------------------------------------------------------------------------------

    def _tell(self, name: str, request: Request[Any]) -> Any:
        arguments = (*request.arguments[:4], self.now, *request.arguments[5:])
        for _ in range(50):
            try:
                return self.on.run(request._replace(arguments=arguments), f"r{self.runs[name]}")
            except Refused as refusal:
                if refusal.code != "DUE":
                    raise
        raise AssertionError("the partition always has due work")

    def _call_id(self) -> CallId:
        return CallId(f"lane{next(self.numbers)}", 1, self.now)

    def _token(self) -> str:
        return f"{next(self.numbers):012d}"

    @staticmethod
    def _body(message: Delivery) -> int:
        return int(read_record(message.record).payload)

    def _destination(self, message: Delivery) -> str:
        return "abn"[self._body(message) % 3]

    def _sending(self, name: str, messages: tuple[Delivery, ...]) -> Request[Any]:
        made: list[Outgoing] = []
        for each in messages:
            record = read_record(each.record)
            expires = record.expires if each.expires is None else each.expires
            lives = None if expires > 9_000_000_000_000 else max(0, expires - self.now)
            made.append(Outgoing(record.payload, lives))
        return self.of[name].send(NO_CALL_ID._replace(now=self.now), made)

    # -- users ---------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), lives=st.sampled_from([None, None, 300, 2000]))
    def send(self, count: int, lives: int | None) -> None:
        bodies = [next(self.bodies) for _ in range(count)]
        self.alive |= set(bodies)
        messages = [Outgoing(b"%d" % body, lives) for body in bodies]
        self._tell("q", self.of["q"].send(self._call_id(), messages))

    @rule()
    def transfer(self) -> None:
        """Send a message to its destination in a transaction of the source."""
        body = next(self.bodies)
        self.alive.add(body)
        name = "abn"[body % 3]
        to = self.to[name]
        work = transfer(self.of["q"], [Outgoing(b"%d" % body)], self.of[name], to.number, name)
        self._tell("q", transact(self._call_id(), [work]))

    @rule(
        count=st.integers(1, 3), how=st.sampled_from(["complete", "abandon", "dead_letter", "keep"]), dead=st.booleans()
    )
    def receive_at_the_source(self, count: int, how: str, dead: bool) -> None:
        token = self._token()
        request = self.of["q"].receive(self._call_id(), token, count, side="d" if dead else "")
        # Receivers get messages of the main side only before the entity forwards them.
        self._set("q", forwards="0")
        found = self._tell("q", request).messages
        self._set("q", forwards="1")
        locks = [Lock(token, each.name, WHY if how == "dead_letter" else b"c%d" % self.now) for each in found]
        if not found or how == "keep" or (dead and how == "dead_letter"):
            return
        if how == "complete":
            self.received.update(map(self._body, found))
        self._tell("q", getattr(self.of["q"], how)(self._call_id(), locks))

    @rule(name=st.sampled_from("abn"), dead=st.booleans())
    def receive_at_a_destination(self, name: str, dead: bool) -> None:
        request = self.of[name].receive(self._call_id(), self._token(), 3, side="d" if dead else "", mode="delete")
        self.received.update(map(self._body, self._tell(name, request).messages))

    @rule(time=st.sampled_from([1, 100, 1000, LOCK]))
    def wait(self, time: int) -> None:
        self.now += time

    # -- movers --------------------------------------------------------------------------------------------------------

    def _read(self) -> Waiting:
        while True:
            waiting: Waiting = self._tell("q", outgoing(self.of["q"], wanted=20, now=self.now))
            if not waiting.more:
                return waiting

    @rule(name=st.sampled_from("ab"), most=st.integers(1, 6))
    def begin(self, name: str, most: int) -> None:
        """Let a mover read the source. It takes over an outstanding batch."""
        waiting = self._read()
        mine = tuple(each for each in waiting.messages if self._destination(each) == name)[:most]
        mover = Mover(self.to[name], mine, waiting.birth)
        if any(batch.destination == self.to[name] for batch in waiting.batches):
            self._read_batch(mover)
        if mover.messages:
            self.movers.append(mover)

    def _read_batch(self, mover: Mover) -> bool:
        found: Waiting = self._tell("q", read_batch(self.of["q"], mover.destination, now=self.now))
        if found.more:
            return False
        mover.batch = found.batches[0] if found.batches else None
        mover.messages, mover.birth = found.messages, found.birth
        return mover.batch is not None

    @precondition(lambda self: self.movers)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """Let any mover do its next step."""
        at = data.draw(st.integers(0, len(self.movers) - 1))
        if self._step(self.movers[at], data.draw(st.booleans())):
            del self.movers[at]

    @precondition(lambda self: len(self.movers) > 1)
    @rule(at=st.integers(0, 3), divide=st.booleans())
    def go_on_side_by_side(self, at: int, divide: bool) -> None:
        """Let one of several movers do its next step."""
        at %= len(self.movers)
        if self._step(self.movers[at], divide):
            del self.movers[at]

    @rule(name=st.sampled_from("ab"), most=st.integers(1, 6))
    def move(self, name: str, most: int) -> None:
        """Let a mover move some messages at once."""
        count = len(self.movers)
        self.begin(name, most)
        if len(self.movers) > count:
            self.hurry()

    @precondition(lambda self: self.movers)
    @rule()
    def hurry(self) -> None:
        """Let the newest mover do all its steps."""
        mover = self.movers.pop()
        while not self._step(mover, divide=False):
            pass

    def _name(self, destination: Destination) -> str:
        return next(name for name, to in self.to.items() if to == destination)

    def _tell_and_keep(self, name: str, request: Request[Any]) -> Any:
        self.past.append((name, request))
        return self._tell(name, request)

    def _step(self, mover: Mover, divide: bool) -> bool:
        """Do the next step of a mover; return whether its move has ended."""
        name = self._name(mover.destination)
        if not mover.messages:
            return True
        if mover.batch is None:
            request = freeze(self.of["q"], mover.birth, mover.destination, f"of-{name}", mover.messages, now=self.now)
            mover.batch = self._tell_and_keep("q", request)
            if mover.batch is None:
                return True
            known = {each.name: each for each in mover.messages}
            if set(mover.batch.names) <= set(known):
                mover.messages = tuple(known[each] for each in mover.batch.names)
            else:
                self._read_batch(mover)
            self.tally["frozen"] += 1
            return mover.batch is None
        if mover.taken is None:
            mover.taken = self._tell_and_keep(name, self._taking(mover))
            assert mover.taken is not None
            self.tally[mover.taken.verdict] += 1
            if mover.taken.verdict == "door":
                birth, mover.door, mover.taken = mover.birth, mover.taken.detail, None
                return not self._read_batch(mover) or mover.birth != birth
            return False
        self._tell_and_keep("q", self._settling(mover, divide=divide))
        return True

    def _taking(self, mover: Mover) -> Request[Taken]:
        assert mover.batch is not None
        name = self._name(mover.destination)
        sending = self._sending(name, mover.messages)
        origin = Origin(self.ids["q"], mover.birth)
        return take(self.of[name], origin, mover.batch, mover.door, sending, now=self.now)

    def _settling(self, mover: Mover, *, divide: bool) -> Request[bool]:
        of, birth, destination, batch, taken = (
            self.of["q"],
            mover.birth,
            mover.destination,
            mover.batch,
            mover.taken,
        )
        assert batch is not None
        assert taken is not None
        number = batch.number
        if taken.verdict == "taken":
            return settle_batch(of, birth, destination, number, "taken", now=self.now)
        if taken.verdict == "again":
            return settle_batch(of, birth, destination, number, "again", names=taken.names, now=self.now)
        if taken.verdict == "over" or divide:
            return settle_batch(of, birth, destination, number, "back", now=self.now)
        return settle_batch(of, birth, destination, number, "refused", changes={batch.names[0]: WHY}, now=self.now)

    @precondition(lambda self: self.movers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        del self.movers[data.draw(st.integers(0, len(self.movers) - 1))]

    @precondition(lambda self: self.past)
    @rule(kind=st.sampled_from(["take", "take", "freeze", "settle_batch", "transact"]), data=st.data())
    def repeat(self, kind: str, data: st.DataObject) -> None:
        """Let an old call of any mover come again."""
        calls = [each for each in self.past if each[1].script.name == kind]
        if calls:
            name, request = calls[-data.draw(st.integers(1, len(calls)))]
            with suppress(Refused):
                self._tell(name, request)
            self.tally[f"repeated {kind}"] += 1

    @rule(most=st.integers(1, 6))
    def move_in_the_slot(self, most: int) -> None:
        waiting = self._read()
        mine = tuple(each for each in waiting.messages if self._destination(each) == "n")[:most]
        if mine:
            operations = [
                withdraw(self.of["q"], waiting.birth, mine),
                Operation(self.of["n"], self._sending("n", mine)),
            ]
            request = transact(self._call_id(), operations)
            with suppress(Refused):
                self._tell_and_keep("q", request)

    # -- sequences that chance alone makes rarely ----------------------------------------------------------------------

    def _again(self, kind: str, back: int = 1) -> None:
        """Repeat a recent call of this kind."""
        calls = [each for each in self.past if each[1].script.name == kind]
        if len(calls) >= back:
            with suppress(Refused):
                self._tell(*calls[-back])

    @rule(name=st.sampled_from("ab"), kind=st.sampled_from(["take", "settle_batch", "freeze"]), frozen=st.booleans())
    def repeat_the_call_before_the_last(self, name: str, kind: str, frozen: bool) -> None:
        """Move two batches to one destination, and repeat a call of the first. The second may be under way."""
        self.send(9, None)
        self.move(name, 2)
        count = len(self.movers)
        self.begin(name, 2)
        if len(self.movers) > count:
            self._step(self.movers[-1], divide=True)
            if not frozen:
                self.hurry()
            self._again(kind, 1 if frozen and kind != "freeze" else 2)

    @rule(name=st.sampled_from("ab"), forgotten=st.booleans())
    def repeat_a_take_from_a_former_source(self, name: str, forgotten: bool) -> None:
        self.move(name, 3)
        self.make_the_source_again(5)
        if forgotten:
            self.forget()
        self._again("take")
        self._again("settle_batch")

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 3))
    def repeat_a_refused_take(self, name: str, count: int) -> None:
        """The destination refuses a batch, receivers take the messages at the source, and the take is repeated."""
        self.set_status(name, "SendDisabled")
        self.begin(name, 2)
        if self.movers:
            mover = self.movers.pop()
            while not self._step(mover, divide=True):
                pass
        self.set_status(name, "Active")
        self.receive_at_the_source(count, "complete", dead=False)
        self._again("take")

    @rule(name=st.sampled_from("ab"), early=st.booleans())
    def receive_what_a_mover_has_read(self, name: str, early: bool) -> None:
        """A receiver locks messages before or after a mover freezes them. A mover leaves locked messages out."""
        self.send(3, None)
        self.begin(name, 3)
        if self.movers:
            if not early:
                self._step(self.movers[-1], divide=False)
            token = self._token()
            self._set("q", forwards="0")
            found = self._tell("q", self.of["q"].receive(self._call_id(), token, 20)).messages
            self._set("q", forwards="1")
            self.hurry()
            if found:
                locks = [Lock(token, each.name) for each in found]
                assert not self._tell("q", self.of["q"].complete(self._call_id(), locks)).lost, "a lock was lost"
                self.received.update(map(self._body, found))

    @rule(name=st.sampled_from("ab"), time=st.sampled_from([0, 400, 3000]))
    def leave_a_batch_alone(self, name: str, time: int) -> None:
        """A mover stops after a freeze. Time passes, and another mover returns the messages."""
        self.send(2, 300)
        self.begin(name, 4)
        if self.movers:
            mover = self.movers.pop()
            self._step(mover, divide=True)
            self.now += time
            self.set_quota(name, 1)
            while not self._step(mover, divide=True):
                pass
            self.set_quota(name, 10**9)
            self.now += 2000
            self._no_message_is_late()

    def _no_message_is_late(self) -> None:
        """Check that all messages have expired whose time has come, except those in batches."""
        waiting = self._read()
        for each in waiting.messages:
            record = read_record(each.record)
            expires = record.expires if each.expires is None else each.expires
            assert expires > self.now or not each.name.isdigit(), f"{each.name} has not expired"

    @rule(name=st.sampled_from("ab"))
    def let_two_movers_freeze(self, name: str) -> None:
        """Two movers have read different messages."""
        self.send(3, None)
        self.begin(name, 1)
        self.send(6, None)
        self.begin(name, 6)
        for mover in self.movers[-2:]:
            self._step(mover, divide=False)

    @rule(most=st.integers(1, 4), how=st.sampled_from(["complete", "keep", "expire"]))
    def withdraw_what_has_left(self, most: int, how: str) -> None:
        """A mover has read messages of its own slot. Receivers get some of them, or they expire."""
        self.send(3, 300)
        waiting = self._read()
        mine = tuple(each for each in waiting.messages if self._destination(each) == "n")[-most:]
        if how != "expire":
            self.receive_at_the_source(2, how, dead=False)
        self.now += 300
        if mine:
            sending = Operation(self.of["n"], self._sending("n", mine))
            with suppress(Refused):
                self._tell("q", transact(self._call_id(), [withdraw(self.of["q"], waiting.birth, mine), sending]))

    def _set(self, name: str, **settings: str) -> None:
        key = self.of[name].keys[0]
        held = self.on.ask("HGET", key, "settings")
        self.on.ask("HSET", key, "settings", with_settings(held, settings))

    # -- destinations that refuse --------------------------------------------------------------------------------------

    @rule(name=st.sampled_from("abn"), status=st.sampled_from(["Active", "Active", "SendDisabled"]))
    def set_status(self, name: str, status: str) -> None:
        self._set(name, status=status)

    @rule(name=st.sampled_from("abn"), quota=st.sampled_from([20, 10**9, 10**9]))
    def set_quota(self, name: str, quota: int) -> None:
        self.on.ask("HSET", self.of[name].keys[9], "quota", quota)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _data(self, name: str) -> dict[bytes, tuple[str, dict[Any, Any]]]:
        found: dict[bytes, tuple[str, dict[Any, Any]]] = {}
        for key in self.of[name].keys:
            kind = self.on.ask("TYPE", key)
            kind = kind.decode() if isinstance(kind, bytes) else kind
            if kind == "hash":
                found[key] = kind, self.on.ask("HGETALL", key)
            elif kind == "zset":
                found[key] = kind, dict(self.on.ask("ZRANGE", key, 0, -1, "WITHSCORES"))
        return found

    def _roll_back(self, name: str, data: dict[bytes, tuple[str, dict[Any, Any]]]) -> None:
        self.runs[name] += 1
        self.on.ask("DEL", *self.of[name].keys)
        for key, (kind, held) in data.items():
            if kind == "hash":
                self.on.ask("HSET", key, *itertools.chain.from_iterable(held.items()))
            else:
                self.on.ask(
                    "ZADD", key, *itertools.chain.from_iterable((b"%d" % score, m) for m, score in held.items())
                )

    @rule(name=st.sampled_from("ab"), most=st.integers(1, 5), then=st.integers(1, 5))
    def lose_a_freeze(self, name: str, most: int, then: int) -> None:
        """The source is rolled back after the destination has taken a batch. Then a mover goes on."""
        self.send(9, None)
        waiting = self._read()
        mine = tuple(each for each in waiting.messages if self._destination(each) == name)
        if not mine or any(batch.destination == self.to[name] for batch in waiting.batches):
            return
        before = self._data("q")
        mover = Mover(self.to[name], mine[:most], waiting.birth)
        while mover.taken is None:
            if self._step(mover, divide=False):
                return
        self._roll_back("q", before)
        if mover.taken.verdict == "taken":
            self.tally["lost freeze"] += 1
        left = [each for each in mine if each not in mine[:most]][: then - 1]
        for part in ((*mine[:1], *left), mine[1:most]):
            if part:
                other = Mover(self.to[name], tuple(part), waiting.birth)
                while not self._step(other, divide=True):
                    pass
        self._finish(name)

    @precondition(lambda self: self.movers)
    @rule()
    def lose_a_take(self) -> None:
        """The destination is rolled back after it has taken a batch that is outstanding. The mover stops."""
        mover = self.movers[-1]
        if mover.batch is None or mover.taken is not None:
            return
        name = self._name(mover.destination)
        before = self._data(name)
        self._tell_and_keep(name, self._taking(mover))
        self._roll_back(name, before)
        self.movers.pop()
        self.tally["lost take"] += 1

    @rule(really=st.integers(0, 7))
    def make_the_source_again(self, really: int) -> None:
        if really != 5:
            return
        there = {self._body(each) for each in self._all("q")}
        destroyed = self._tell("q", destroy_source(self.of["q"]))
        self._tell("q", self.of["q"].configure(create=True, now=self.now))
        self.alive -= there
        self.perhaps |= there
        self.gone.append((destroyed.birth, destroyed.destinations))
        self.tally["made again"] += 1

    @precondition(lambda self: self.gone)
    @rule()
    def forget(self) -> None:
        birth, destinations = self.gone.pop()
        for name in "ab":
            if self.ids[name] in destinations:
                self._tell(name, forget_source(self.of[name], [Origin(self.ids["q"], birth)], now=self.now))
            assert f"in:{self.ids['q']}:{birth}".encode() not in self.on.ask("HKEYS", self.of[name].keys[30])

    # -- the end -------------------------------------------------------------------------------------------------------

    def _all(self, name: str) -> list[Delivery]:
        found: list[Delivery] = []
        sides: tuple[SidePrefix, ...] = ("", "d", "t")
        for side in sides:
            request = self.of[name].peek(0, 1000, side=side, states="alwfsx", call_id=CallId("", 0, self.now))
            found += self._tell(name, request).messages
        return found

    def _finish(self, only: str = "abn") -> None:
        """Let an honest mover move what waits."""
        for name in only:
            self.set_status(name, "Active")
            self.set_quota(name, 10**9)
        for _ in range(200):
            waiting = self._read()
            left = [name for name in only if any(self._destination(each) == name for each in waiting.messages)]
            outstanding = {self._name(batch.destination) for batch in waiting.batches}
            names = [*outstanding.intersection(only), *left]
            if not names:
                return
            for name in dict.fromkeys(names):
                if name == "n":
                    self.move_in_the_slot(20)
                    continue
                mine = tuple(each for each in waiting.messages if self._destination(each) == name)
                mover = Mover(self.to[name], mine, waiting.birth)
                if name in outstanding:
                    self._read_batch(mover)
                while mover.messages and not self._step(mover, divide=True):
                    pass
        raise AssertionError("the moves never end")

    def teardown(self) -> None:
        if not self.on.ask("EXISTS", self.of["q"].keys[0]):
            return
        self.now += 10 * LOCK  # every lock ends
        for name in SALTS:
            while self._tell(name, self.of[name].due(CallId("", 0, self.now))).more:
                pass
        self._finish()
        there: Counter[int] = Counter(self.received)
        for name in SALTS:
            there.update(map(self._body, self._all(name)))
        for body in self.alive:
            assert there[body] == 1, f"message {body} is at {there[body]} places"
        assert all(there[body] <= 1 for body in self.perhaps), "a message of a former source is at two places"
        assert set(there) <= self.alive | self.perhaps
        for name in SALTS:
            stored = self.on.ask("HGET", self.of[name].keys[9], "bytes")
            sizes = sum(len(each.record) + len(each.changes) for each in self._all(name))
            assert int(stored) == sizes, f"{name} counts {stored!r} bytes and has {sizes}"
            assert self.on.ask("HGET", self.of[name].keys[0], "calling") in {b"", "", b"1"}
        assert self.on.ask("HGET", self.of["q"].keys[0], "calling") in {b"", ""}
        frozen = [BANDS[side, State.FROZEN].start * BAND_WIDTH for side in Side]
        for first in frozen:
            assert self.on.ask("ZCOUNT", self.of["q"].keys[1], first, first + BAND_WIDTH - 1) == 0, (
                "messages are frozen"
            )
        entries, members = (
            self.on.ask("HKEYS", self.of["q"].keys[2]),
            self.on.ask("ZRANGE", self.of["q"].keys[1], 0, -1),
        )
        assert set(entries) <= set(members), "entries of messages are left"
        SEEN.update(self.tally)
        self.on.ask("DEL", *{key for partition in self.of.values() for key in partition.keys})


SEEN: Counter[str] = Counter()
"""How often each thing has happened in all examples."""


BUGS: dict[str, tuple[str, str, str]] = {
    "a take leaves no record": (
        "take",
        "  redis.call('HSET', p.lasting, field, string.format('%.0f %s ', number, held) .. verdict)\n",
        "",
    ),
    "a refusal leaves no record": (
        "take",
        "    return answer(refused.err, taken or '-')",
        "    return { 0, code, '', '', {} }",
    ),
    "an older batch is taken": ("take", "  elseif number < tonumber(last) then", "  elseif false then"),
    "a batch of a forgotten source is taken": ("take", "  if ARGV[10] ~= door then", "  if false then"),
    "messages of a lost freeze are stored twice": ("take", "  if #here > 0 then", "  if false then"),
    "the names of an earlier take are forgotten": (
        "take",
        "    return answer('again ' .. name_runs(here), taken)",
        "    return answer('again ' .. name_runs(here), '-')",
    ),
    "a settlement does not look at the number": ("settle_batch", "tonumber(number) ~= wanted or", "not number or"),
    "batches are numbered anew after a failover": (
        "freeze",
        "p.dead_seq = p.dead_seq + 1\n",
        "p.dead_seq = tonumber(redis.call('HGET', p.state, 'dead_seq')) + 1\n",
    ),
    "a freeze replaces the outstanding batch": ("freeze", "if number then", "if false then"),
    "a freeze takes messages that a receiver holds": (
        "includes/movable_messages",
        "movable = main and not p.index or",
        "movable = score >= 0 and not p.index or",
    ),
    "a withdrawal takes messages that a receiver holds": (
        "includes/check_withdraw",
        "  if #gone > 0 then",
        "  if false then",
    ),
    "a frozen message expires": ("includes/stop_expiry", "      if found.main[i] then", "      if false then"),
    "an expired message is withdrawn": ("includes/check_withdraw", "    if late[i] or", "    if"),
    "a returned message never expires": (
        "settle_batch",
        "make_ready(p, name, side, own, e, expires < NEVER)",
        "make_ready(p, name, side, own, e, false)",
    ),
    "the bytes of moved messages still count": (
        "includes/delete_moved",
        "  drop_record(p, record, size, changes)\n",
        "",
    ),
    "settled messages keep their entries": ("includes/delete_moved", "    p.forgotten[#p.forgotten + 1] = name\n", ""),
    "a call for a mover is not withdrawn": ("outgoing", "waits and '1' or '', waits", "'1', true"),
    "a settled batch stays": ("settle_batch", "redis.call('HDEL', p.lasting, 'b:' .. destination)\n", ""),
    "a forgotten source keeps its verdict": ("forget_source", "redis.call('HDEL', p.lasting, unpack(fields))", "1"),
    "forgetting does not change the door": ("forget_source", "if known > 0 then", "if false then"),
    "a source does not tell its destinations": ("freeze", "  told = told .. id .. ' '\n", ""),
}
"""Mistakes that the machine must find, each as a file, a text in it, and what takes its place."""


def prove(on: Host, *, examples: int, steps: int = 40, derandomize: bool = False) -> Counter[str]:
    """Run the machine; return how often each thing has happened."""
    machine = type("Machine", (MovesMachine,), {"on": on})
    SEEN.clear()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            database=None,
            derandomize=derandomize,
            phases=(Phase.generate,) if derandomize else (Phase.generate, Phase.shrink),
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        ),
    )
    return SEEN


def changed(bug: str) -> Read:
    """Return a function that reads the scripts with a planted bug."""
    file, right, wrong = BUGS[bug]
    return with_texts_replaced({file: [(right, wrong)]}, read_source)


def found(bug: str, server: LocalServer, *, examples: int) -> str | None:
    """Return how the machine finds a planted bug; None if it does not."""
    with host("server", changed(bug), server=server) as on:
        try:
            prove(on, examples=examples, derandomize=True)
        except (AssertionError, AttributeError, Refused, TypeError, ValueError, FlakyFailure) as error:
            return str(error) or type(error).__name__
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bugs", action="store_true", help="look for the planted bugs instead")
    given = parser.parse_args()
    with LocalServer() as server:
        for bug in BUGS if given.bugs else ():
            how = found(bug, server, examples=given.examples)
            sys.stdout.write(f"{'NOT FOUND' if how is None else 'found'}: {bug}: {(how or '')[:100]}\n")
            sys.stdout.flush()
        if not given.bugs:
            with host("server", server=server) as on:
                sys.stdout.write(f"{dict(prove(on, examples=given.examples, steps=given.steps))}\n")


if __name__ == "__main__":
    main()
