"""A state machine of moves: movers that may stop or repeat old calls at any step, users, failures; nothing is lost.

A source forwards its messages and its dead letters to three destinations: two in other slots, and one in its own. The
destination of each message is fixed. In the end an honest mover moves what is left. Then each message must be at one
place: at the source, at its destination, or with a receiver. Each move of a message is compared with the table of
transitions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sbredis.engine import (
    NO_CALL_ID,
    Batch,
    CallId,
    Changes,
    Delivery,
    Destination,
    Lock,
    MovesRead,
    Operation,
    Origin,
    Outgoing,
    Partition,
    PartitionSettings,
    Received,
    Request,
    SidePrefix,
    Swept,
    Taken,
    encode_changes,
    read_record,
    transact,
    transfer,
    withdraw,
)
from tests.engine.model import Refused
from tests.engine.proof.hosts import Host
from tests.engine.proof.moves_cases import Place, condition_of, text_of
from tests.engine.taking import first_token, receiving
from tests.engine.terms import SENTINEL_BAND, Condition, Event, Side, State, split_score, state_of_band
from tests.stored_settings import with_settings

__all__ = ["LOCK", "WHY", "Mover", "MovesMachine"]

T0 = 1_700_000_000_000
LOCK = 5_000
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=50, dead_letter_expired=True)
SALTS = {"q": "abc", "n": "abc", "a": "abd", "b": "abe"}
WHY = encode_changes(Changes(reason="because"))
DOORLESS = ""
_VERDICT, _BIRTH = 8, 7
"""The indexes of arguments: the verdict of a settlement, and the birth and then the purpose of a freeze."""


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
    purpose: bytes = b""
    """The work of a redrive on the messages; empty for messages that wait to be moved."""


class MovesMachine(RuleBasedStateMachine):
    """One source, three destinations, movers, receivers and failures."""

    on: ClassVar[Host]
    seen: ClassVar[Counter[str]]
    """How often each case has happened in all examples. A subclass sets both."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.ids = {name: f"{name}1" for name in SALTS}
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
        self.purposes: dict[tuple[Any, Destination, int], Any] = {}
        """The purpose of each batch: its source, its destination and its number decide it for good."""
        self.tally: Counter[str] = Counter()

    @staticmethod
    def _settings(name: str) -> PartitionSettings:
        return replace(SETTINGS, forwards=True, forwards_dead=True) if name == "q" else SETTINGS

    @initialize(keeps=st.booleans(), twice=st.sampled_from([False, False, True]))
    def create(self, keeps: bool, twice: bool) -> None:
        """Make all entities; the source keeps expired messages as dead letters, or deletes them. With ``twice``, each
        settlement of a batch comes twice, as from two movers.
        """
        self.keeps, self.twice = keeps, twice
        self.of["q"].settings = replace(self.of["q"].settings, dead_letter_expired=keeps)
        for name in SALTS:
            self._tell(name, self.of[name].configure(create=True, now=self.now))

    # -- calling -------------------------------------------------------------------------------------------------------

    def _tell(self, name: str, request: Request[Any]) -> Any:
        self.tally["steps"] += 1
        arguments = (*request.arguments[:4], self.now, *request.arguments[5:])
        for _ in range(50):
            try:
                result = self.on.run(request._replace(arguments=arguments), f"r{self.runs[name]}")
            except Refused as refusal:
                if refusal.code != "DUE":
                    raise
                continue
            if isinstance(result, Batch):
                # A new batch has the purpose of the call that froze it, which may be an old call that came again.
                birth, purpose = request.arguments[_BIRTH : _BIRTH + 2]
                self.purposes.setdefault((birth, result.destination, result.number), purpose)
            for each in result if type(result) is tuple else (result,):  # a call may have several results
                if isinstance(each, Taken):
                    self.tally[f"take: {each.verdict}"] += 1
                elif isinstance(each, Swept) and each.batch is not None:
                    self.purposes.setdefault((each.birth, each.batch.destination, each.batch.number), b"")
            if request.script.name == "settle_batch":
                self.tally[f"settle: {request.arguments[_VERDICT]!s}" + ", not outstanding" * (not result)] += 1
            return result
        raise AssertionError("the partition always has due work")

    def _places(self) -> dict[str, Place]:
        """Return the place of each message of the source, by its name."""
        order = self.on.ask("ZRANGE", self.of["q"].keys[1], 0, -1, "WITHSCORES")
        bands = {name.decode(): split_score(int(score))[0] for name, score in order}
        return {name: Place(*state_of_band(band)[:2]) for name, band in bands.items() if band != SENTINEL_BAND}

    def _birth(self) -> str:
        """Return the birth of the source as it is now."""
        birth = self.on.ask("HGET", self.of["q"].keys[0], "birth")
        return birth.decode() if isinstance(birth, bytes) else birth

    def _frozen(self) -> set[str]:
        return {name for name, place in self._places().items() if place.state is State.FROZEN}

    def _watch(self, request: Request[Any], events: Callable[[Any], Mapping[str, Event]]) -> Any:
        """Make a call at the source, and compare the moves of messages with the table. ``events`` returns the events
        that the call has brought about, by the name of the message.
        """
        before = self._places()
        result = self._tell("q", request)
        after = self._places()
        added = {place.side for name, place in after.items() if name not in before}
        for name, event in events(result).items():
            if name in before:
                condition = condition_of(before[name], event, after.get(name), added)
                ended = before[name].state is State.FROZEN and event is not Event.FREEZE
                assert condition or not ended, f"{name}: {event} led to {after.get(name)}"
                if condition:
                    self.tally[text_of((before[name].side, before[name].state, event, condition))] += 1
        return result

    def _call_id(self) -> CallId:
        return CallId(f"lane{next(self.numbers)}", 1, self.now)

    def _token(self) -> str:
        return first_token(f"{next(self.numbers):08d}")

    def _receiving(self, name: str, token: str, wanted: int, **how: Any) -> Request[Received]:
        run = f"r{self.runs[name]}"
        return receiving(self.of[name], token, wanted, run=run, now=self.now, refuse=Refused, **how)

    @staticmethod
    def _body(message: Delivery) -> int:
        return int(read_record(message.record).payload.partition(b" ")[0])

    def _destination(self, message: Delivery) -> str:
        return "abn"[self._body(message) % 3]

    def _sending(self, name: str, messages: tuple[Delivery, ...], purpose: bytes = b"") -> Request[Any]:
        made: list[Outgoing] = []
        for each in messages:
            record = read_record(each.record)
            expires = record.expires if each.expires is None else each.expires
            lives = None if expires > 9_000_000_000_000 else max(0, expires - self.now)
            made.append(Outgoing(record.payload + b" " * bool(purpose) + purpose, lives))
        return self.of[name].send(NO_CALL_ID._replace(now=self.now), made)

    # -- users ---------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), lives=st.sampled_from([None, None, 300, 2000]))
    def send(self, count: int, lives: int | None) -> None:
        self._send([next(self.bodies) for _ in range(count)], lives)

    def _send(self, bodies: list[int], lives: int | None) -> None:
        lasting = self.alive if self.keeps or lives is None else self.perhaps
        lasting.update(bodies)
        self._tell("q", self.of["q"].send(self._call_id(), [Outgoing(b"%d" % body, lives) for body in bodies]))

    @rule()
    def transfer(self) -> None:
        """Send a message to its destination in a transaction of the source."""
        self._transfer(next(self.bodies))

    def _transfer(self, body: int) -> None:
        self.alive.add(body)
        self.tally[text_of((Side.MAIN, State.NEW, Event.TRANSFER, Condition.OTHERWISE))] += 1
        name = "abn"[body % 3]
        to = self.to[name]
        work = transfer(self.of["q"], [Outgoing(b"%d" % body)], self.of[name], to.number, name)
        self._tell("q", transact(self._call_id(), [work]))

    @rule(
        count=st.integers(1, 3), how=st.sampled_from(["complete", "abandon", "dead_letter", "keep"]), dead=st.booleans()
    )
    def receive_at_the_source(self, count: int, how: str, dead: bool) -> None:
        token = self._token()
        request = self._receiving("q", token, count, side="d" if dead else "")
        with self._changed(forwards="0"):  # an entity that forwards its messages refuses their receivers
            found = self._tell("q", request).messages
        locks = [Lock(token, each.name, WHY if how == "dead_letter" else b"c%d" % self.now) for each in found]
        if not found or how == "keep" or (dead and how == "dead_letter"):
            return
        if how == "complete":
            self.received.update(map(self._body, found))
        self._tell("q", getattr(self.of["q"], how)(self._call_id(), locks))

    @rule(name=st.sampled_from("abn"), dead=st.booleans())
    def receive_at_a_destination(self, name: str, dead: bool) -> None:
        request = self._receiving(name, self._token(), 3, side="d" if dead else "", mode="delete")
        self.received.update(map(self._body, self._tell(name, request).messages))

    @rule(time=st.sampled_from([1, 100, 1000, LOCK]))
    def wait(self, time: int) -> None:
        self.now += time

    # -- movers --------------------------------------------------------------------------------------------------------

    def _read(self) -> MovesRead:
        while True:
            waiting: MovesRead = self._tell("q", self.of["q"].outgoing(wanted=20, now=self.now))
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
        found: MovesRead = self._tell("q", self.of["q"].read_batch(mover.destination, now=self.now))
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
            source, holder, purpose = self.of["q"], f"of-{name}", mover.purpose
            request = source.freeze(
                mover.birth, mover.destination, holder, mover.messages, purpose=purpose, now=self.now
            )
            self.past.append(("q", request))
            frozen = self._frozen()
            mover.batch = self._watch(request, lambda batch: dict.fromkeys(batch.names if batch else (), Event.FREEZE))
            if mover.batch is None:
                self.tally["freeze: no batch"] += 1
                return True
            assert mover.birth == self._birth(), "messages of a former source were frozen"
            new = not {*mover.batch.names} <= frozen
            self.tally["freeze: a batch" if new else "freeze: the outstanding batch"] += 1
            if mover.batch.purpose:
                calling = self.on.ask("HGET", self.of["q"].keys[0], "calling")
                assert calling in {b"1", "1"}, "the batch of a redrive does not call for a mover"
            known = {each.name: each for each in mover.messages}
            if set(mover.batch.names) <= set(known):
                mover.messages = tuple(known[each] for each in mover.batch.names)
            else:
                self._read_batch(mover)
            return mover.batch is None
        if mover.taken is None:
            mover.taken = self._tell_and_keep(name, self._taking(mover))
            assert mover.taken is not None
            if mover.taken.verdict == "door":
                birth, mover.door, mover.taken = mover.birth, mover.taken.detail, None
                return not self._read_batch(mover) or mover.birth != birth
            return False
        self._settle(mover, self._settling(mover, divide=divide))
        return True

    def _settle(self, mover: Mover, request: Request[bool]) -> None:
        """Settle the batch of a mover."""
        assert mover.batch is not None
        verdict, rest = str(request.arguments[_VERDICT]), request.arguments[_VERDICT + 1 :]
        chosen = set(rest if verdict == "again" else rest[::2])
        event = {"taken": Event.TAKE, "back": Event.RETURN, "again": Event.RETURN, "refused": Event.RETURN}[verdict]
        of_chosen = Event.TAKE if verdict == "again" else Event.REFUSE
        names = mover.batch.names
        self.past.append(("q", request))

        def events(settled: bool) -> Mapping[str, Event]:
            return {name: of_chosen if name in chosen else event for name in names} if settled else {}

        self._watch(request, events)
        if self.twice:
            self._tell("q", request)

    def _taking(self, mover: Mover) -> Request[Taken]:
        assert mover.batch is not None
        name, batch = self._name(mover.destination), mover.batch
        purpose = self.purposes.get((mover.birth, mover.destination, batch.number), b"")
        assert batch.purpose == purpose, f"the purpose of a batch was {purpose!r} and is {batch.purpose!r}"
        if purpose:
            self.tally["redrive: by its client" if mover.purpose == purpose else "redrive: by another mover"] += 1
        sending = self._sending(name, mover.messages, purpose)
        origin = Origin(self.ids["q"], mover.birth)
        return self.of[name].take(origin, mover.batch, mover.door, sending, now=self.now)

    def _settling(self, mover: Mover, *, divide: bool) -> Request[bool]:
        of, birth, destination = self.of["q"], mover.birth, mover.destination
        batch, taken = mover.batch, mover.taken
        assert batch is not None
        assert taken is not None
        number = batch.number
        if taken.verdict == "taken":
            return of.settle_batch(birth, destination, number, "taken", now=self.now)
        if taken.verdict == "again":
            return of.settle_batch(birth, destination, number, "again", names=taken.names, now=self.now)
        if taken.verdict == "over" or divide:
            return of.settle_batch(birth, destination, number, "back", now=self.now)
        return of.settle_batch(birth, destination, number, "refused", changes={batch.names[0]: WHY}, now=self.now)

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
            self.past.append(("q", request))
            self._withdraw(request, mine)

    def _withdraw(self, request: Request[Any], messages: Sequence[Delivery]) -> None:
        try:
            self._watch(request, lambda _: {each.name: Event.WITHDRAW for each in messages})
            self.tally["withdraw: all"] += 1
        except Refused as refused:
            self.tally[f"withdraw: {refused.code}"] += 1

    # -- destinations that refuse --------------------------------------------------------------------------------------

    def _set(self, name: str, **settings: str) -> None:
        key = self.of[name].keys[0]
        held = self.on.ask("HGET", key, "settings")
        self.on.ask("HSET", key, "settings", with_settings(held, settings))

    @contextmanager
    def _changed(self, **settings: str) -> Iterator[None]:
        """Change settings of the source for as long as the block runs."""
        key = self.of["q"].keys[0]
        before = self.on.ask("HGET", key, "settings")
        self._set("q", **settings)
        yield
        self.on.ask("HSET", key, "settings", before)

    @rule(name=st.sampled_from("abn"), status=st.sampled_from(["Active", "Active", "SendDisabled"]))
    def set_status(self, name: str, status: str) -> None:
        self._set(name, status=status)

    @rule(name=st.sampled_from("abn"), quota=st.sampled_from([20, 10**9, 10**9]))
    def set_quota(self, name: str, quota: int) -> None:
        self.on.ask("HSET", self.of[name].keys[8], "quota", quota)

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
            names = [*sorted(outstanding.intersection(only)), *left]
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
        try:
            self._end()
        finally:
            self.on.ask("DEL", *(key for partition in self.of.values() for key in partition.keys))

    def _end(self) -> None:
        """Move everything that is left, and check that each message is at one place."""
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
            stored = self.on.ask("HGET", self.of[name].keys[8], "bytes")
            sizes = sum(len(each.record) + len(each.changes) for each in self._all(name))
            assert int(stored) == sizes, f"{name} counts {stored!r} bytes and has {sizes}"
            assert self.on.ask("HGET", self.of[name].keys[0], "calling") in {b"", "", b"1"}
        assert self.on.ask("HGET", self.of["q"].keys[0], "calling") in {b"", ""}
        assert not self._frozen(), "messages are frozen"
        told = (self.on.ask("HGET", self.of["q"].keys[29], "to") or b"").split()
        assert len(told) == len(set(told)), f"the source has noted a destination twice: {told}"
        entries, members = (
            self.on.ask("HKEYS", self.of["q"].keys[2]),
            self.on.ask("ZRANGE", self.of["q"].keys[1], 0, -1),
        )
        assert set(entries) <= set(members), "entries of messages are left"
        self.seen.update(self.tally)
