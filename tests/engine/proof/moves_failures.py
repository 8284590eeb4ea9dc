"""The machine of moves with movers that stop or repeat old calls, servers that are rolled back, and a new source."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sbredis.engine import CallId, Origin, SidePrefix
from tests.engine.model import Refused
from tests.engine.proof.moves_machine import Mover
from tests.engine.proof.moves_sweeps import SweepingMovesMachine

__all__ = ["FailingMovesMachine"]


class FailingMovesMachine(SweepingMovesMachine):
    """The machine of moves with failures."""

    @rule(
        name=st.sampled_from("ab"),
        most=st.integers(1, 6),
        side=st.sampled_from(["", "d", "d", "t"]),
        purpose=st.sampled_from([b"one", b"any \x00 other\n"]),
    )
    def begin_a_redrive(self, name: str, most: int, side: SidePrefix, purpose: bytes) -> None:
        """Let a client move messages that it has chosen, or redrive dead letters. It is a mover with a purpose."""
        request = self.of["q"].peek(0, 1000, side=side, states="awf", call_id=CallId("", 0, self.now))
        letters = tuple(each for each in self._tell("q", request).messages if self._destination(each) == name)[:most]
        if letters:
            self.movers.append(Mover(self.to[name], letters, self._read().birth, purpose=purpose))

    @precondition(lambda self: len(self.movers) > 1)
    @rule(at=st.integers(0, 3), divide=st.booleans())
    def go_on_side_by_side(self, at: int, divide: bool) -> None:
        """Let one of several movers do its next step."""
        at %= len(self.movers)
        if self._step(self.movers[at], divide):
            del self.movers[at]

    @precondition(lambda self: self.movers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        del self.movers[data.draw(st.integers(0, len(self.movers) - 1))]

    @precondition(lambda self: self.past)
    @rule(kind=st.sampled_from(["take", "take", "freeze", "settle_batch", "sweep", "transact"]), data=st.data())
    def repeat(self, kind: str, data: st.DataObject) -> None:
        """Let an old call of any mover come again."""
        calls = [each for each in self.past if each[1].script.name == kind]
        if calls:
            name, request = calls[-data.draw(st.integers(1, len(calls)))]
            with suppress(Refused):
                self._tell(name, request)
            self.tally[f"repeated {kind}"] += 1

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
        destroyed = self._tell("q", self.of["q"].destroy_source())
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
                known = self._tell(name, self.of[name].forget_source([Origin(self.ids["q"], birth)], now=self.now))
                self.tally["forget: known" if known else "forget: unknown"] += 1
                again = self.of[name].forget_source([Origin(self.ids["q"], birth)], now=self.now)
                assert self._tell(name, again) == 0, "a forgotten source was known"
                self.tally["forget: unknown"] += 1
            assert f"in:{self.ids['q']}:{birth}".encode() not in self.on.ask("HKEYS", self.of[name].keys[29])
