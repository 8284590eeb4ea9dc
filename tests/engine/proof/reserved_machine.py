"""A state machine of reserved ranges: a reader that crashes, old calls that come late, failovers; nothing is lost.

The reader plans ranges, reads them, and commits them. Its output and its position change in one step, as a sink and a
checkpoint do. Meanwhile others send, receive, purge and redrive. After each step every pinned message must still be
there, and each message that has left the ready messages must have had a reason. In the end each message is in the
output, in the partition, or with a receiver, and in one of these places only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sbredis.engine import NEVER, Committed, Partition, Planned, Request
from tests.engine.model import Refused
from tests.engine.proof.picture import Picture, Standing
from tests.engine.proof.reserved_partition import MOST, SETTINGS, SharedPartition
from tests.engine.terms import Side, State

__all__ = ["CASES", "ReservedMachine"]


CASES = (
    *("begin", "plan: new", "plan: again", "plan: nothing", "plan: more", "plan: commits", "plan: grows"),
    *("LOSS birth", "LOSS rollback", "LOSS older", "accepted", "OVERTAKEN plan", "OVERTAKEN unpin"),
    *("RESERVED grant", "RESERVED receive_deferred", "BADCALL configure"),
    *("unpin: more", "released", "rollback", "made again", "purged", "expired"),
    *("blocked by a message that may come back", "a dead letter is ready again", "a committed message comes again"),
)
"""The cases that the machine must bring about."""


class ReservedMachine(SharedPartition):
    """The reader of a partition, which may crash, and the failures of the server."""

    @initialize(dead=st.booleans(), ttl=st.sampled_from([20_000, NEVER]), reserved=st.booleans())
    def create(self, dead: bool, ttl: int, reserved: bool) -> None:
        self._make(replace(SETTINGS, dead_letter_expired=dead, time_to_live=ttl))
        if reserved:
            self.reserve(locked=False)

    # -- the reader ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.reserved)
    @rule(locked=st.booleans())
    def reserve(self, locked: bool) -> None:
        """Reserve the partition, perhaps while a receiver has a message."""
        if locked:
            self.send(3, 0, None, None)
            self.receive(1, "lock")
        self._configure(reserved=True)
        self.fence += 1
        self._begin()

    def _configure(self, *, expect: str = "", **changed: Any) -> None:
        before = self.of
        settings = replace(before.settings, **changed)
        self.of = Partition("machine", "abc", self.id, before.incarnation, before.version + 1, settings)
        request = self.of.configure(now=self.now)
        picture, there = self._picture()
        answer = self._answer(request)
        while isinstance(answer, Refused) and answer.code == "DUE":
            answer = self._answer(request)
        self._compare(request, there, self._pin(picture)[1], {})
        if isinstance(answer, Refused):
            assert answer.code == expect, f"configure: {answer.code} {answer.detail}"
            self.seen[f"{answer.code} configure"] += 1
            self.of = before
            return
        assert not expect, f"configure was not refused with {expect}"
        self._picture()

    def _ask(
        self, committed: Committed | None, rows: int, room: int = MOST, *, accept: bool = False, expect: str = ""
    ) -> Any:
        request = self.of.plan(self.fence, committed, rows, room=room, accept=accept, call_id=self._call_id())
        self.past.append(request)
        return self._run(request, expect=expect)

    def _begin(self) -> None:
        """Begin without a checkpoint. The run before may have had a range that it did not commit."""
        begun = self._ask(None, 1)
        assert not begun.more
        self.committed, self.planned = begun.committed, None
        self.checkpoints = [begun.committed]
        self.seen["begin"] += 1

    @precondition(lambda self: self.reserved)
    @rule(rows=st.integers(0, 6), room=st.sampled_from([1, 40, MOST, MOST, MOST]))
    def plan(self, rows: int, room: int) -> None:
        """Make one call. If it plans a range, read the range."""
        self._plan(rows, room)

    def _plan(self, rows: int, room: int) -> bool:
        """Make one call, and return whether it must be made again."""
        before, _ = self._picture()
        planned = self._ask(self.committed, rows, room)
        self._check_size(before, rows)
        if planned.more:
            self.seen["plan: more"] += 1
            self.seen["plan: grows"] += planned.end > planned.floor
            return True
        assert self.committed is not None
        assert (planned.birth, planned.floor) == (self.committed.birth, self.committed.number)
        picture, there = self._picture()
        ready = sorted(
            (one for one in there.values() if (one.side, one.state) == (Side.MAIN, State.ACTIVE)),
            key=lambda one: one.number,
        )
        mine = [one for one in ready if planned.floor < one.number <= planned.end]
        above = [one for one in ready if one.number > planned.end]
        assert self._pin(picture) == (planned.floor, planned.end)
        assert int(picture.state["pin"].split()[0]) == self.fence, "the fence of this run is not stored"
        assert all(one.number > planned.floor for one in ready), "a committed message is left"
        assert (planned.rows, planned.left) == (len(mine), len(above))
        assert planned.oldest == (above[0].read.enqueued if above else 0)
        assert planned.bytes == sum(len(one.record) + len(one.changes) for one in mine)
        bodies = tuple(one.read.payload for one in mine)
        if self.planned is not None:
            assert (planned.plan, planned.end, bodies) == (self.planned[0].plan, self.planned[0].end, self.planned[1])
            self.seen["plan: again"] += 1
        elif not mine:
            self.seen["plan: nothing"] += 1
            assert planned.end == planned.floor
        else:
            self.seen["plan: new"] += 1
            assert planned.plan > self.committed.plan
        if mine:
            self.planned = planned, bodies
        if rows and room == MOST and not self.planned:
            away = [
                one for one in there.values() if one.side is Side.MAIN and one.state in (State.LOCKED, State.DELAYED)
            ]
            assert not above or min(one.number for one in away) < above[0].number, "there is something to plan"
            self.seen["blocked by a message that may come back"] += bool(above)
        self._read(planned)
        return False

    def _check_size(self, before: Picture, rows: int) -> None:
        """Check that a range has at most the wanted number of messages, if the last call has chosen it."""
        picture, there = self._picture()
        _, number, floor, _, upto, *_ = map(int, picture.state["pin"].split())
        if number > int(before.state["pin"].split()[1]):
            ready = (one.number for one in there.values() if (one.side, one.state) == (Side.MAIN, State.ACTIVE))
            assert sum(floor < each <= upto for each in ready) <= rows, "a range has more messages than wanted"

    @staticmethod
    def _may_come_back(one: Standing) -> bool:
        return one.side is Side.MAIN and one.state in {State.LOCKED, State.DELAYED}

    def _read(self, planned: Planned) -> None:
        found: list[bytes] = []
        after, more = planned.floor, True
        while more:
            part = self._run(self.of.read_range(planned.birth, after, planned.end, wanted=2, call_id=self._call_id()))
            assert part is not None
            found += [one.record[28 if one.record.startswith(b"x") else 15 :] for one in part.messages]
            after, more = int(part.messages[-1].name) if part.messages else planned.end, part.more
        assert tuple(found) == (self.planned[1] if self.planned else ()), "a range has other messages than before"

    @precondition(lambda self: self.reserved and self.planned)
    @rule()
    def commit(self) -> None:
        """Write the output and the position in one step."""
        assert self.planned is not None
        planned, bodies = self.planned
        self.output.update(bodies)
        self.committed, self.planned = planned.committed, None
        self.checkpoints.append(planned.committed)
        self.seen["plan: commits"] += 1

    @precondition(lambda self: self.reserved)
    @rule(rows=st.integers(1, 4), times=st.integers(1, 3), ttl=st.sampled_from([None, 3_000, 6_000, 9_000]))
    def read_on(self, rows: int, times: int, ttl: int | None) -> None:
        """Plan and commit a few ranges, as a reader does that nothing disturbs, while others send."""
        self.send(4, 0, ttl, None)
        for _ in range(times):
            while self._plan(rows, MOST):
                pass
            if self.planned:
                self.commit()

    @precondition(lambda self: self.reserved)
    @rule()
    def crash(self) -> None:
        """Another run takes over from the same checkpoint. It gets a plan that its predecessor did not commit."""
        self.fence += 1

    @precondition(lambda self: self.reserved)
    @rule()
    def call_with_a_lower_fence(self) -> None:
        """A former run is refused as soon as the new one has made a call."""
        if self.on.run(self.of.read_pin(call_id=self._call_id()), f"r{self.run_id}").fence == self.fence > 1:
            call_id, before = self._call_id(), self.fence - 1
            requests: list[Request[Any]] = [self.of.plan(before, self.committed, 3, call_id=call_id)]
            requests.append(self.of.unpin(before, call_id=call_id))
            for request in requests:
                self._run(request, expect="OVERTAKEN")

    @precondition(lambda self: self.reserved and len(self.checkpoints) > 1)
    @rule(at=st.integers(0, 100))
    def use_an_older_checkpoint(self, at: int) -> None:
        """Once its range is committed in the partition, an older checkpoint is refused."""
        older = self.checkpoints[at % len(self.checkpoints)]
        while self._plan(0, MOST):
            pass
        picture, _ = self._picture()
        if older.number < self._pin(picture)[0]:
            self._ask(older, 3, expect="LOSS")

    @precondition(lambda self: self.past)
    @rule(at=st.integers(0, 1_000))
    def repeat(self, at: int) -> None:
        """A call comes again that was made before, however late. The caller of then does not see the answer."""
        request = self.past[at % len(self.past)]
        picture, before = self._picture()
        _, last = self._pin(picture)
        if isinstance(self._answer(request), Refused):
            assert self.on.picture(self.of.keys).replies == picture.replies, "a refused call has changed something"
        else:
            self._compare(request, before, last, {})

    @precondition(lambda self: self.reserved)
    @rule()
    def open_too_early(self) -> None:
        """Receivers cannot be let in while messages are pinned or committed."""
        picture, there = self._picture()
        _, last = self._pin(picture)
        ready = [one.number for one in there.values() if (one.side, one.state) == (Side.MAIN, State.ACTIVE)]
        if any(number <= last for number in ready):
            self._configure(reserved=False, expect="BADCALL")

    @precondition(lambda self: self.reserved)
    @rule(whole=st.booleans(), wanted=st.integers(0, 3))
    def release(self, whole: bool, wanted: int) -> None:
        """Remove what is committed, give the rest back, and let receivers in. This is seldom."""
        if wanted < 3:
            return
        while self._plan(0, MOST) and whole:  # else committed messages may be left, which the release removes
            pass
        self._plan(9, MOST)
        planned, self.planned = self.planned, None
        if whole:
            self.wait(10_000)
            self.visit()
        while True:
            unpinned = self._run(self.of.unpin(self.fence, call_id=self._call_id()))
            assert unpinned is not None
            ended = planned is not None and unpinned.end < planned[0].end
            assert planned is None or unpinned.plan - planned[0].plan >= ended, "an ended plan keeps its number"
            if not unpinned.more:
                break
            self.seen["unpin: more"] += 1
            if not whole:
                # The release stops half-way, and the reader goes on: with the rest, as a new plan.
                self._begin()
                return
        self._configure(reserved=False)
        self.past = []  # a later reservation has a higher fence
        self.snapshot = None
        self.seen["released"] += 1

    # -- failures ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.reserved)
    @rule()
    def take_a_snapshot(self) -> None:
        """Do so only if no message may come back: a reservation waits for these, and a failover would revive them."""
        _, there = self._picture()
        if any(map(self._may_come_back, there.values())):
            return
        self.snapshot = [self.on.ask("DUMP", key) for key in self.of.keys], set(there), self.of

    @precondition(lambda self: self.reserved and self.snapshot)
    @rule()
    def fail_over(self) -> None:
        """A failover loses all writes since the snapshot. The reader goes on from its checkpoint."""
        assert self.snapshot is not None
        assert self.committed is not None
        dumps, _, self.of = self.snapshot
        self.run_id += 1
        _, lost = self._picture()
        self._restore(dumps)
        _, there = self._picture()
        self.seen["rollback"] += 1
        waiting = {body for body, one in there.items() if (one.side, one.state) != (Side.MAIN, State.ACTIVE)}
        # Those that were scheduled or dead letters become ready under new numbers, so the reader gets them once more.
        again = waiting & self.output.keys()
        self.seen["a committed message comes again"] += bool(again)
        for body in again:
            del self.output[body]
        self.sent &= there.keys() | self.output.keys() | self.ended
        # They may expire before the reader makes its next call, which removes those up to its position.
        self.revived |= there.keys() & (self.output.keys() | self.ended)
        # The reader's position has also passed those that had become dead letters. The failover has lost that, and
        # nothing tells them from committed messages, so a reader that accepts the loss removes them.
        passed = {
            body
            for body in (there.keys() & lost.keys()) - waiting
            if there[body].number <= self.committed.number
            if (lost[body].side, lost[body].number) != (Side.MAIN, there[body].number)
        }
        self.seen["a dead letter is ready again"] += bool(passed)
        self.revived |= passed
        self.sent -= self.revived
        self.ended -= there.keys()
        self.held, self.planned, self.snapshot = [], None, None
        self._go_on()

    @precondition(lambda self: self.reserved)
    @rule(rows=st.integers(3, 6))
    def fail_over_to_a_growing_pin(self, rows: int) -> None:
        """A failover loses the calls that pinned the rest of a range, which the reader has committed since."""
        self.send(6, 0, 9_000, None)
        while self._plan(0, MOST):
            pass
        committed = self.planned is None
        if committed and self._plan(rows, MOST):
            self.take_a_snapshot()
            while self._plan(rows, MOST):
                pass
            if self.snapshot and self.planned:
                self.commit()
                self.fail_over()

    @precondition(lambda self: self.reserved)
    @rule(rows=st.integers(1, 4))
    def fail_over_to_what_had_expired(self, rows: int) -> None:
        """A failover loses that messages have expired, which the reader has passed since."""
        while self._plan(0, MOST):
            pass
        self.send(2, 0, 3_000, None)
        self.take_a_snapshot()
        if self.snapshot and not self.planned:
            self.wait(4_000)
            self.read_on(rows, 1, None)
            self.fail_over()

    def _restore(self, dumps: Sequence[bytes | None]) -> None:
        for key, dump in zip(self.of.keys, dumps, strict=True):
            self.on.ask("DEL", key)
            if dump is not None:
                self.on.ask("RESTORE", key, 0, dump)

    @precondition(lambda self: self.reserved)
    @rule(lost=st.integers(0, 9))
    def make_again(self, lost: int) -> None:
        """The partition is lost and made anew, without messages. This is seldom."""
        if lost < 9:
            return
        for key in self.of.keys:
            self.on.ask("DEL", key)
        self.sent &= set(self.output) | self.ended
        self.held, self.planned, self.snapshot, self.past = [], None, None, []
        self._make(self.of.settings)
        self.seen["made again"] += 1
        self._go_on()

    def _go_on(self) -> None:
        """Call with the checkpoint. If it is refused, accept the loss."""
        request = self.of.plan(self.fence, self.committed, 0, call_id=self._call_id())
        picture, there = self._picture()
        answer = self._answer(request)
        self._compare(request, there, self._pin(picture)[1], {})
        assert self.committed is not None
        _, _, floor, last, upto, *_ = map(int, (picture.state["pin"] or "0 0 0 0 0").split())
        committed = isinstance(answer, Refused) or self.committed.number <= floor or last == upto
        assert committed, "a plan was committed that was not pinned"
        if isinstance(answer, Refused):
            assert answer.code == "LOSS", f"{answer.code} {answer.detail}"
            self.seen[f"LOSS {answer.detail.split()[0]}"] += 1
            while (planned := self._ask(self.committed, 0, accept=True)).more:
                pass
            self.seen["accepted"] += 1
            # Begin behind the committed messages; an outstanding range comes again.
            self.committed = Committed(planned.birth, planned.plan - (planned.rows > 0), planned.floor)
            self.checkpoints = [self.committed]
        self.past = []

    def teardown(self) -> None:
        if not hasattr(self, "of"):
            return
        _, there = self._picture()
        twice = [body for body, count in self.output.items() if count > 1]
        assert not twice, f"in the output more than once: {twice}"
        if self.reserved:
            while self._ask(self.committed, 0).more:
                pass
            _, there = self._picture()
        places = {"output": set(self.output), "ended": self.ended, "partition": set(there)}
        for body in self.sent:
            where = [name for name, bodies in places.items() if body in bodies]
            assert len(where) == 1, f"{body!r} is at {where}"
        for key in self.of.keys:
            self.on.ask("DEL", key)
