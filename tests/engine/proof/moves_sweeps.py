"""The machine of moves with sweeps and with calls that bring several batches to one destination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from sbredis.engine import Request, Swept, Taken, sweep_together, take_together
from sbredis.engine._moving import read_taken
from tests.engine.proof.moves_machine import Mover, MovesMachine
from tests.engine.terms import Event

__all__ = ["SweepingMovesMachine"]


class SweepingMovesMachine(MovesMachine):
    """The machine of moves, in which movers also move on in several sources with one call."""

    def _number_of_outstanding(self, name: str) -> int:
        """Return the number of the outstanding batch for a destination; 0 if there is none."""
        stored = self.on.ask("HGET", self.of["q"].keys[29], f"b:{self.to[name]}") or b"0"
        return int(stored.split()[0])

    @rule(
        name=st.sampled_from("ab"), wanted=st.integers(0, 6), room=st.sampled_from([1, 1 << 20]), at=st.integers(0, 3)
    )
    def sweep(self, name: str, wanted: int, room: int, at: int) -> None:
        """Let a mover settle a batch that was taken, and freeze what waits, beside a source in which nothing waits."""
        done = [
            each
            for each in self.movers
            if each.destination == self.to[name] and each.taken is not None and each.taken.verdict == "taken"
        ]
        mover = done[at % len(done)] if done else None
        if mover is not None:
            self.movers.remove(mover)
        self._sweep(name, mover, wanted, room)

    def _sweep(self, name: str, mover: Mover | None, wanted: int, room: int) -> None:
        """Settle the batch of a mover, and begin with the next batch."""
        to, holder = self.to[name], f"of-{name}"
        batch, birth = (mover.batch, mover.birth) if mover else (None, "")
        empty = self.of["n"].sweep(to, holder, now=self.now)
        request = sweep_together(
            [self.of["q"].sweep(to, holder, batch, birth, wanted=wanted, room=room, now=self.now), empty]
        )
        settles = batch is not None and birth == self._birth() and self._number_of_outstanding(name) == batch.number
        frozen = self._frozen()
        self.past.append(("q", request))

        def events(found: tuple[Swept, ...]) -> Mapping[str, Event]:
            new = found[0].batch.names if found[0].batch is not None else ()
            ended = dict.fromkeys(batch.names, Event.TAKE) if settles and batch is not None else {}
            return ended | {each: Event.FREEZE for each in new if each not in frozen}

        swept, beside = self._watch(request, events)
        self.tally[f"sweep: {swept.state}"] += 1
        self.tally["sweep: a batch was settled"] += settles
        overdue = self.on.ask("ZCOUNT", self.of["n"].keys[5], 0, self.now)
        assert beside.state in {"limits", "other" if overdue else "nothing"}
        if swept.state == "nothing":
            assert self.on.ask("HGET", self.of["q"].keys[0], "calling") in {b"", ""}, "nothing waits, but it calls"
            waiting = self._read()
            assert not waiting.messages, "a sweep has not seen what waits"
            assert not waiting.batches, "a sweep has not seen a batch"
        if swept.batch is not None:
            assert swept.birth == self._birth()
            assert self._number_of_outstanding(name) == swept.batch.number, "the batch is not outstanding"
            self.movers.append(Mover(to, swept.messages, swept.birth, swept.batch))

    @rule(name=st.sampled_from("ab"), again=st.integers(0, 2))
    def take_together(self, name: str, again: int) -> None:
        """Let a destination judge the batches of several movers in one call, and some that come again."""
        movers = [
            each
            for each in self.movers
            if each.destination == self.to[name] and each.batch is not None and each.taken is None
        ][:3]
        own = [self._taking(each) for each in movers]
        takes = [call for to, call in self.past if to == name and call.read is read_taken]
        old = takes[len(takes) - again :]
        requests = [self._now(call) for call in (*own, *old)]
        if not requests:
            return
        self._watch_taking(name, movers, take_together(requests), len(requests))

    def _now(self, request: Request[Any]) -> Request[Any]:
        return request._replace(arguments=(*request.arguments[:4], self.now, *request.arguments[5:]))

    def _watch_taking(self, name: str, movers: list[Mover], request: Request[Any], count: int) -> None:
        found: tuple[Taken, ...] = self._tell_and_keep(name, request)
        assert len(found) == count
        self.tally["take: several"] += count > 1
        for mover, taken in zip(movers, found, strict=False):
            if taken.verdict == "door":
                birth, mover.door = mover.birth, taken.detail
                if not self._read_batch(mover) or mover.birth != birth:
                    self.movers.remove(mover)
            elif taken.verdict != "later":
                mover.taken = taken
