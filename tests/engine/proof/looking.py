"""The same calls on two partitions: one is looked at between the calls, and the effects of time must be the same in
both.

python -m tests.engine.proof.looking [--steps N]

A partition learns the time only from calls.
So the effect of the time between two calls must not depend on whether there was another call in between.
Two partitions get the same calls at the same times.
The *watched* partition also gets grants without credit, counts, peeks and calls for due work, at any time.
The *asleep* partition never gets such calls.
Before each call, both do all due work, and then their content must be the same:
messages, states, numbers, times, locks and sessions.

`count` and `peek` must already show what the *asleep* partition holds once it is up to date.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, ClassVar, TypeVar

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sbredis.engine import (
    NEVER,
    CallId,
    Content,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Peeked,
    Redrive,
    Request,
    SessionLock,
    encode,
)
from sbredis.servers import LocalServer
from tests.engine.model import Bounds, Refused, Snapshot
from tests.engine.proof import draws
from tests.engine.proof.comparison import NAMESPACE, SALT, T0
from tests.engine.proof.draws import some
from tests.engine.proof.extent import BOUNDS, bounded
from tests.engine.proof.hosts import KINDS, Host, host, with_bounds
from tests.engine.proof.picture import told
from tests.engine.proof.running import run_machine
from tests.engine.taking import accepting, first_token, receiving

T = TypeVar("T")
Make = Callable[[Partition, CallId], Request[T]]
settings = st.builds(
    PartitionSettings,
    lock_duration=some([60_000, 5_000, 1_000, 1]),
    max_delivery_count=some([10, 3, 2, 1]),
    time_to_live=some([NEVER, NEVER, 50_000, 7_000, 500]),
    dead_letter_expired=st.booleans(),
    duplicate_window=some([None, 1_000]),
    clock=st.just("test"),
)
waits = some([0, 0, 1, 400, 1_000, 5_000, 60_000])
looks = st.lists(st.tuples(st.floats(0, 1), some(["due", "due", "count", "peek", "grant"])), max_size=3)
lives = some([None, None, 0, 1, 500, 1_000, 6_000, 50_000])
whens = some([None, None, 0, 1, 400, 1_000, 20_000])


@dataclass
class Extent:
    """Counts of the work that was done."""

    calls: int = 0
    looks: int = 0
    shares: int = 0
    """The number of calls that had more than one share of due work."""

    @property
    def steps(self) -> int:
        return self.calls + self.looks


class Pair:
    """The two partitions, and the current time."""

    def __init__(self, on: Host, given: PartitionSettings, extent: Extent) -> None:
        self.on, self.settings, self.version, self.extent = on, given, 1, extent
        self.now = self.before = T0
        self.numbers = {"asleep": 0, "watched": 0}
        self.tokens = self.calls = 0
        for name in self.numbers:
            self.run(name, lambda p, call_id: p.configure(create=True, now=call_id.now))

    def partition(self, name: str) -> Partition:
        return Partition(NAMESPACE, SALT, name, "i1", self.version, self.settings)

    def run(self, name: str, make: Make[T], now: int | None = None, *, lane: str = "") -> T:
        self.numbers[name] += 1
        call_id = CallId(lane, self.numbers[name] if lane else 0, self.now if now is None else now)
        return self.on.run(make(self.partition(name), call_id))

    def token(self) -> str:
        self.tokens += 1
        return first_token(f"{self.tokens:08}")

    def look(self, what: str, at: float) -> None:
        """Look at the watched partition, at some time since the last call."""
        now = self.before + int((self.now - self.before) * at)
        self.before = now
        self.extent.looks += 1
        reading = CallId("", 0, now)
        making: dict[str, Make[Any]] = {
            "due": lambda p, call_id: p.due(call_id),
            "count": lambda p, call_id: p.count(call_id),
            "peek": lambda p, call_id: p.peek(0, 10, call_id=call_id),
            "grant": lambda p, _: _grant_nothing(p, reading),
        }
        self.run("watched", making[what], now)

    def do(self, make: Make[T], in_between: list[tuple[float, str]]) -> T | Refused:
        """Look at the watched partition, then let both do a call. Return the answer, which must be the same."""
        for at, what in sorted(in_between):
            self.look(what, at)
        self.before = self.now
        self.catch_up()
        self.extent.calls += 1
        self.calls += 1
        asleep, watched = self._attempt("asleep", make), self._attempt("watched", make)
        assert _alike(asleep) == _alike(watched), f"{asleep} without looks, {watched} with looks"
        self.compare()
        return asleep

    def _attempt(self, name: str, make: Make[T]) -> T | Refused:
        try:
            return self.run(name, make)
        except Refused as refused:
            return refused

    def catch_up(self) -> None:
        """Let both do all due work. The *asleep* partition must then have the content that it showed before."""
        shown = self.shown()
        for name in self.numbers:
            # The *watched* partition does large shares of due work, and the *asleep* partition does small shares.
            making: Make[Any] = _do_due if name == "watched" else _grant_nothing
            while self.run(name, making).more:
                self.extent.shares += 1
        self.compare()
        for before, after in zip(shown, self.shown(), strict=True):
            assert before[0] or before == after, f"shown {before}, and then {after}"

    def shown(self) -> list[tuple[bool, Any]]:
        """Return the answers of the *asleep* partition to `count` and `peek`. Each is a pair: whether the answer
        reports more due work, and the answer.
        """
        counts = self.run("asleep", lambda p, call_id: p.count(call_id))
        pages: list[Peeked] = [
            self.run("asleep", lambda p, call_id, side=side: p.peek(0, 1_000, side=side, call_id=call_id))  # type: ignore[misc]
            for side in ("", "d")
        ]
        shown: list[tuple[bool, Any]] = [(bool(counts.more), counts._replace(due=0, used=0))]
        return shown + [(page.more, page) for page in pages]

    def compare(self) -> None:
        asleep, watched = (self.snapshot(name) for name in self.numbers)
        assert asleep == watched, f"without looks:\n{asleep}\nwith looks:\n{watched}"

    def snapshot(self, name: str) -> Snapshot:
        found = told(self.on.picture(self.partition(name).keys))
        # The logical clock depends on the times of the calls; the other content does not.
        return replace(found, lanes={}, clk=0, offset=0, announced=0)

    def close(self) -> None:
        for name in self.numbers:
            self.on.ask("DEL", *self.partition(name).keys)


def _do_due(partition: Partition, call_id: CallId) -> Request[Any]:
    return partition.due(call_id)


def _grant_nothing(partition: Partition, call_id: CallId) -> Request[Any]:
    return receiving(partition, first_token(), 0, run="r1", now=call_id.now, side="d")


def _alike(result: Any) -> Any:
    return (result.code, result.detail) if isinstance(result, Refused) else result


class Machine(RuleBasedStateMachine):
    """Calls with time between them."""

    on: ClassVar[Host]
    extent: ClassVar[Extent]
    sessions: ClassVar[bool]
    many: ClassVar[int]
    """More due messages than a call handles."""
    pair: Pair

    # The first example of each run has the first of all values. So at least one call has more work than one share.
    @initialize(given=settings, crowded=some([True, False, False, False]))
    def begin(self, given: PartitionSettings, crowded: bool) -> None:
        self.pair = Pair(self.on, replace(given, sessions=self.sessions), self.extent)
        self.held: list[tuple[str, list[str]]] = []
        self.scheduled: list[str] = []
        self.deferred: list[str] = []
        self.accepted: list[SessionLock] = []
        if crowded:
            self.send_many(looks=[], life=None, when=1_000, apart=0)
            self.pair.now += 1_000

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            try:
                self.pair.catch_up()
            finally:
                self.pair.close()

    def payload(self, data: st.DataObject) -> bytes:
        return data.draw(draws.in_sessions) if self.sessions else data.draw(some([b"", b"a", b"large" * 3]))

    @rule(wait=waits)
    def later(self, wait: int) -> None:
        self.pair.now += wait

    @rule(data=st.data(), looks=looks, count=some([1, 2, 4]), life=lives, when=whens, level=some([0, 0, 7]))
    def send(
        self, *, data: st.DataObject, looks: Any, count: int, life: int | None, when: int | None, level: int
    ) -> None:
        due = None if when is None else self.pair.now + when
        made = [Outgoing(self.payload(data), life, level, due=due) for _ in range(count)]
        self._send(made, looks)

    @precondition(lambda self: self.pair.calls % 8 == 3)
    @rule(looks=looks, life=lives, when=some([1, 400, 1_000]), apart=some([0, 0, 1, 30]))
    def send_many(self, looks: Any, life: int | None, when: int, apart: int) -> None:
        """Schedule messages for about the same time. They are more than one call can activate."""
        body = encode(Content(b"", session_id="a")) if self.sessions else b""
        begin = self.pair.now + when
        self._send([Outgoing(body, life, due=begin + apart * (place % 5)) for place in range(self.many)], looks)

    def _send(self, made: list[Outgoing], looks: Any) -> None:
        sent = self.pair.do(lambda p, call_id: p.send(call_id, made), looks)
        if not isinstance(sent, Refused):
            for place, one in enumerate(made):
                self.scheduled += [str(sent.first + place)] if one.due and one.due > self.pair.now else []

    @rule(data=st.data(), looks=looks, wanted=some([1, 3, 200]), dead=some([False, False, True]))
    def receive(self, *, data: st.DataObject, looks: Any, wanted: int, dead: bool) -> None:
        session, token = None, self.pair.token()
        if self.sessions and not dead:
            if not self.accepted:
                return
            session, token = data.draw(some(self.accepted))
        how: dict[str, Any] = {"side": "d" if dead else "", "session": session}
        given = self.pair.do(
            lambda p, call_id: receiving(p, token, wanted, run="r1", now=call_id.now, refuse=Refused, **how), looks
        )
        if not isinstance(given, Refused) and given.messages:
            self.held.append((token, [message.name for message in given.messages]))

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        looks=looks,
        what=some(["complete", "abandon", "abandon", "unread", "defer", "dead_letter", "renew"]),
        delay=some([0, 0, 500, 20_000]),
        all_of=st.booleans(),
    )
    def settle(self, *, data: st.DataObject, looks: Any, what: str, delay: int, all_of: bool) -> None:
        token, names = data.draw(some(self.held))
        chosen = names if all_of else [data.draw(some(names))]
        locks = [Lock(token, name, b"", delay if what in ("abandon", "unread") else 0) for name in chosen]
        making: dict[str, Make[Any]] = {
            "complete": lambda p, call_id: p.complete(call_id, locks),
            "abandon": lambda p, call_id: p.abandon(call_id, locks),
            "unread": lambda p, call_id: p.abandon(call_id, locks, counted=False),
            "defer": lambda p, call_id: p.defer(call_id, locks),
            "dead_letter": lambda p, call_id: p.dead_letter(call_id, locks),
            "renew": lambda p, call_id: p.renew(call_id, locks),
        }
        self.pair.do(making[what], looks)
        if what == "defer":
            self.deferred += chosen

    @precondition(lambda self: self.deferred and not self.sessions)
    @rule(data=st.data(), looks=looks)
    def receive_deferred(self, data: st.DataObject, looks: Any) -> None:
        name, token = data.draw(some(self.deferred)), self.pair.token()
        given = self.pair.do(lambda p, call_id: p.receive_deferred(call_id, token, [name]), looks)
        if not isinstance(given, Refused) and given.messages:
            self.held.append((token, [name]))

    @precondition(lambda self: self.scheduled)
    @rule(data=st.data(), looks=looks)
    def cancel(self, data: st.DataObject, looks: Any) -> None:
        name = data.draw(some(self.scheduled))
        self.pair.do(lambda p, call_id: p.cancel(call_id, [name]), looks)

    @precondition(lambda self: self.sessions)
    @rule(looks=looks, name=some([None, None, "a", ""]))
    def accept(self, looks: Any, name: str | None) -> None:
        token = self.pair.token()

        def make(partition: Partition, call_id: CallId) -> Request[Any]:
            if name is None:
                return accepting(partition, token, run="r1", now=call_id.now, refuse=Refused)
            return partition.accept_session(call_id, token, name)

        taken = self.pair.do(make, looks)
        if taken and not isinstance(taken, Refused) and taken.outcome == "taken":
            self.accepted.append(SessionLock(taken.session, token))

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), looks=looks)
    def give_back(self, data: st.DataObject, looks: Any) -> None:
        lock = data.draw(some(self.accepted))
        self.pair.do(lambda p, call_id: p.release_session(call_id, lock), looks)
        self.pair.do(lambda p, call_id: p.list_sessions(10, None, call_id), [])

    @rule(looks=looks, changed=settings, before=waits)
    def change(self, looks: Any, changed: PartitionSettings, before: int) -> None:
        ours = self.pair.settings
        window = ours.duplicate_window and 1_000
        changed = replace(changed, sessions=ours.sessions, duplicate_window=window)
        self.pair.now += before
        for at, what in sorted(looks):
            self.pair.look(what, at)
        self.pair.before = self.pair.now
        # Due work is not done before this call, because a change of settings does all due work itself.
        self.pair.settings, self.pair.version = changed, self.pair.version + 1
        for name in self.pair.numbers:
            while isinstance(
                refused := self.pair._attempt(name, lambda p, call_id: p.configure(now=call_id.now)), Refused
            ):
                assert refused.code == "DUE"
        self.pair.catch_up()

    @rule(looks=looks, numbers=st.lists(st.integers(1, 6), max_size=3, unique=True), time_to_live=some([None, 700]))
    def redrive(self, looks: Any, numbers: list[int], time_to_live: int | None) -> None:
        messages = [Redrive(f"d{number}", time_to_live) for number in numbers]
        self.pair.do(lambda p, call_id: p.redrive(call_id, messages), looks)

    @rule(looks=looks, back=some([0, 500]))
    def purge(self, looks: Any, back: int) -> None:
        before = self.pair.now - back
        self.pair.do(lambda p, call_id: p.purge(call_id, before), looks)


def drive(
    on: Host,
    extent: Extent,
    *,
    sessions: bool,
    examples: int,
    bounds: Bounds = BOUNDS["real"],
    begin_at: int | None = 0,
    shrinks: bool = True,
) -> None:
    """Run the machine on a host whose scripts have these bounds.

    Without ``shrinks``, a failure is not reduced to its shortest form, which would take minutes on a busy machine.
    """
    many = bounds.share + bounds.share // 3 + 1
    made = type("Looking", (Machine,), {"on": on, "extent": extent, "sessions": sessions, "many": many})
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    run_machine(made, bounded(examples, phases=phases), begin_at=begin_at)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000, help="the least number of calls and looks")
    given = parser.parse_args()
    started, extent = time.monotonic(), Extent()
    with LocalServer() as server:
        # With the real bounds each step compares hundreds of messages, which takes long.
        ways: list[tuple[str, Bounds, bool, int]] = [
            (kind, BOUNDS[name], sessions, examples)
            for name, examples in (("narrow", 150), ("real", 3))
            for kind in KINDS
            for sessions in (False, True)
        ]
        for kind, bounds, sessions, examples in cycle(ways):
            with host(kind, with_bounds(bounds), server=server) as on:  # type: ignore[arg-type]
                drive(on, extent, sessions=sessions, examples=examples, bounds=bounds, begin_at=None)
            spent = time.monotonic() - started
            sys.stdout.write(f"{extent.steps:>9,} steps ({extent.looks:,} looks) in {spent:,.0f} s\n")
            sys.stdout.flush()
            if extent.steps >= given.steps:
                break
    sys.stdout.write(f"{extent} without a difference\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
