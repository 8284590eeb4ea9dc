"""A machine that sends by the lanes of two partitions, which calls reach or not, and whose answers come or do not.

python -m tests.client.lane_machine [--steps N] [--seed N]

The lanes and the requests are those of the client. The transport, the partitions and the time are the machine's own.
After each run the outcome of each caller is compared with what the partitions have stored.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from sbredis.client import Clock, SendJob, SendTerms, Throttle
from sbredis.client._send_lane import SendLane
from sbredis.engine import LaneUnknownError, MalformedCallError, Outgoing, Partition, PartitionSettings
from sbredis.engine import SettingsStaleError as StaleError
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

__all__ = ["run"]

REFUSED, UNKNOWN, NEVER_SENT = Outcome.REFUSED, Outcome.UNKNOWN, Outcome.NEVER_SENT
ODD = b"odd"
"""The end of the payload of a message that no partition takes."""
FATES = {
    "answered": 12,
    "its answer is lost": 3,
    "lost on the way": 3,
    "never sent": 3,
    "too late": 1,
    "stale": 1,
    "gone": 1,
    "forgotten": 1,
}
STEPS = {"submit": 5, "cancel": 1, "turns": 6, "fate": 8, "pass": 1, "reach": 2}


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when the machine lets it pass."""

    passed = 0.0

    def time(self) -> float:
        return 1000.0 + self.passed


@dataclass
class Waiting:
    """A call that has reached the transport and has no fate yet."""

    link: Link
    lane: str
    number: int
    payloads: Sequence[bytes]
    timeout: float
    replied: Callable[[Any], None]
    """Gets the reply, or the error of this attempt."""


class Link:
    """A partition: what it has stored, and what the client knows of it."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.connection: Any = machine.connection
        self.entity: Any = machine.entity
        self.number = number
        self.base = number << 48
        self.partition = Partition("ns", "salt", "e", "incarnation", 1, PartitionSettings())
        self.down_until = 0.0
        self.stored: list[bytes] = []
        self.lanes: dict[str, tuple[int, list[Any]]] = {}
        """For each lane the number and the reply of its last call."""
        self.sending = SendLane(cast("Any", self), lambda: machine.elsewhere().sending)

    def __str__(self) -> str:
        return f"partition {self.number}"

    def reached(self) -> None:
        self.down_until = 0.0

    def missed(self) -> None:
        self.down_until = self.machine.loop.time() + 10

    def catch_up(self) -> None:
        raise AssertionError("nothing is due")

    async def tell(self, _: float) -> None:
        await asyncio.sleep(0)

    def take(self, call: Waiting) -> list[Any]:
        """Run a call as a partition does."""
        known = self.lanes.get(call.lane)
        if known is not None and known[0] == call.number:
            return known[1]
        if known is None and call.number > 1:
            raise LaneUnknownError("unknown lane", outcome=REFUSED)
        assert known is None or call.number > known[0], "a call comes after a later one"
        if any(payload.endswith(ODD) for payload in call.payloads):
            raise MalformedCallError("odd", outcome=REFUSED)
        reply = [0, len(self.stored), 0]
        self.stored += call.payloads
        self.lanes[call.lane] = call.number, reply
        return reply


@dataclass
class Sending:
    """What the machine knows of one job."""

    future: asyncio.Future[Any]
    ordered: bool
    payloads: list[bytes]
    pinned: Link | None
    cancelled: bool = False


@dataclass
class Machine:
    """Sends, fates and time, drawn at random."""

    draws: Random
    loop: VirtualLoop
    calls: list[Waiting] = field(default_factory=list[Waiting])
    sent: list[Sending] = field(default_factory=list[Sending])
    seen: Counter[str] = field(default_factory=Counter[str])
    attempted: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """The calls of which an attempt may have reached its partition."""
    draining: bool = False

    def __post_init__(self) -> None:
        self.throttle = Throttle(1 << 30, 1 << 40)
        self.terms = {
            (movable, ordered): SendTerms(self.throttle, movable, ordered)
            for movable in (False, True)
            for ordered in (False, True)
        }
        self.record = SimpleNamespace(kind="queue", partitioned=True, partitions=(0, 1))
        self.names = count()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.connection = SimpleNamespace(
            id="c",
            lane_numbers=count(1),
            clock=Clock(),
            closed=False,
            transport=self,
            retry=SimpleNamespace(first=0.05, repetitions=None),
            start=self.start,
            test_hooks=None,
        )
        self.entity = SimpleNamespace(
            name="q",
            record=self.record,
            partitioned=True,
            numbers=(0, 1),
            routing=None,
            explain=lambda _: None,
            partition=self.partition,
            base=self.base,
            reload=self.removed,
            recover=self.removed,
        )
        self.links = [Link(self, number) for number in (0, 1)]

    # -- the parts of the client that lanes use

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def removed(self, *_: object) -> None:
        await asyncio.sleep(0)

    def partition(self, number: int) -> Partition:
        return self.links[number].partition

    def base(self, number: int) -> int:
        return self.links[number].base

    def elsewhere(self) -> Link:
        return next((link for link in self.links if not link.down_until), self.links[0])

    # -- the transport

    async def first_connection(self, *_: object) -> None:
        """All servers were reached before."""

    def soon(self, _: object, work: Callable[[], None], *, at_once: bool) -> None:
        if at_once and not self.calls and self.draws.random() < 0.5:
            work()
        else:
            self.loop.call_soon(work)

    def begin(
        self,
        script: Any,
        keys: Any,
        arguments: Sequence[Any],
        *,
        timeout: float,
        answered: Callable[[Any, Any], None],
        failed: Callable[[Any, Any], None],
        **_: object,
    ) -> bool:
        del script, keys
        if not self.draining and self.draws.random() < 0.1:
            return False

        def replied(reply: Any) -> None:
            (failed if isinstance(reply, ServiceBusError) else answered)((arguments, timeout), reply)

        self._arrive(arguments, timeout, replied)
        return True

    async def call(self, script: Any, keys: Any, arguments: Sequence[Any], *, timeout: float, **_: object) -> Any:
        del script, keys
        return await self._attempt(arguments, timeout, maybe_ran=False)

    async def finish(self, call: tuple[Sequence[Any], float], error: ServiceBusError) -> Any:
        if error.outcome is REFUSED:
            raise error
        return await self._attempt(*call, maybe_ran=error.outcome is UNKNOWN)

    async def _attempt(self, arguments: Sequence[Any], timeout: float, *, maybe_ran: bool) -> Any:
        future = self.loop.create_future()
        self._arrive(arguments, timeout, future.set_result)
        reply = await future
        if isinstance(reply, ServiceBusError):
            if maybe_ran and (reply.outcome is NEVER_SENT or isinstance(reply, LaneUnknownError)):
                reply.outcome = UNKNOWN  # this attempt did not run, but an earlier one may have
            raise reply
        return reply

    def _arrive(self, arguments: Sequence[Any], timeout: float, replied: Callable[[Any], None]) -> None:
        _, _, lane, number, _, columns, *payloads = arguments
        assert columns == ""
        assert len(payloads) <= 1000
        (link,) = (link for link in self.links if link.sending in self._owners(lane))
        assert lane not in {call.lane for call in self.calls}, "two calls of a lane are under way"
        self.calls.append(Waiting(link, lane, number, payloads, timeout, replied))

    def _owners(self, lane: str) -> list[SendLane]:
        return [link.sending for link in self.links if lane in {each._name for each in link.sending._pipelines}]

    # -- the steps

    def submit(self) -> None:
        for _ in range(self.draws.choice((1, 1, 1, 2, 5, 40))):
            pinned = self.draws.choice((None, *self.links))
            names = [b"%d" % next(self.names) for _ in range(self.draws.choice((1, 1, 1, 3)))]
            if self.draws.random() < 0.003:
                names[0] += ODD
            ordered = pinned is not None and self.draws.random() < 0.5
            size = sum(map(len, names))
            assert self.throttle.try_take(len(names), size)
            deadline = self.loop.time() + self.draws.choice((1.0, 5.0, 60.0))
            what: bytes | SendJob = SendJob([Outgoing(name) for name in names], size)
            if len(names) == 1 and len(self.sent) % 2:
                what = names[0]
            future: asyncio.Future[Any] = self.loop.create_future()
            future.add_done_callback(_read)
            terms = self.terms[pinned is None, ordered]
            _ = (pinned or self.elsewhere()).sending.add(what, future, deadline, terms)
            self.sent.append(Sending(future, ordered, names, pinned))

    def cancel(self) -> None:
        open_ = [sending for sending in self.sent[-500:] if not sending.future.done()]
        for sending in self.draws.sample(open_, min(len(open_), 3)):
            sending.cancelled = sending.future.cancel()

    def fate(self) -> None:
        if not self.calls:
            return
        call = self.calls.pop(self.draws.randrange(len(self.calls)))
        name = "answered" if self.draining else self.draws.choices(list(FATES), list(FATES.values()))[0]
        self.seen[name] += 1
        if name == "forgotten":
            # If a failover loses the record of the first call in a lane, it also loses the messages of that call.
            lanes = call.link.lanes
            call.link.lanes = {lane: known for lane, known in lanes.items() if known[0] == 1}
        if name in {"never sent", "lost on the way", "too late"} and self.draws.random() < 0.5:
            self.loop.passed += call.timeout
        reply: Any
        try:
            if name == "never sent":
                raise ServiceBusConnectionError("no way", outcome=NEVER_SENT)
            if name == "lost on the way":
                self.attempted.add((call.lane, call.number))
                raise ServiceBusCommunicationError("lost", outcome=UNKNOWN)
            # A partition answers a repetition before it looks at the settings, and one that is gone has no messages.
            repeats = (call.lane, call.number) in self.attempted
            self.attempted.add((call.lane, call.number))
            if name == "stale" and not repeats:
                raise StaleError("stale", outcome=REFUSED)
            if name == "gone" and not repeats:
                raise MessagingEntityNotFoundError("gone", outcome=REFUSED)
            reply = call.link.take(call)
            if name == "its answer is lost":
                raise ServiceBusCommunicationError("lost", outcome=UNKNOWN)
            if name == "too late":
                raise OperationTimeoutError("late", outcome=UNKNOWN)
        except ServiceBusError as error:
            reply = error
            self.seen[type(error).__name__] += 1
        call.replied(reply)

    async def step(self) -> None:
        what = self.draws.choices(list(STEPS), list(STEPS.values()))[0]
        if what == "submit":
            self.submit()
        elif what == "cancel":
            self.cancel()
        elif what == "fate":
            self.fate()
        elif what == "pass":
            self.loop.passed += self.draws.choice((0.01, 0.05, 0.3))
        elif what == "reach":
            for link in self.links:
                link.down_until = 0.0
        else:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert self.throttle.messages >= 0

    async def drain(self) -> None:
        """Answer all calls, until each caller has its outcome."""
        self.draining = True
        for _ in range(100_000):
            if not self.calls and not self.tasks and not any(link.sending.busy for link in self.links):
                break
            self.fate()
            await asyncio.sleep(0)
        assert not self.calls
        assert not any(link.sending.busy for link in self.links), "jobs wait, and no call is made"

    # -- the outcomes

    def compare(self) -> None:
        """Compare the outcomes of all callers with what was stored."""
        places = {payload: (link, at) for link in self.links for at, payload in enumerate(link.stored)}
        assert len(places) == sum(len(link.stored) for link in self.links), "a message was stored twice"
        last = {id(link): -1 for link in self.links}
        for sending in self.sent:
            future, found = sending.future, [places.get(payload) for payload in sending.payloads]
            assert future.done(), "a caller waits for ever"
            self.seen["jobs"] += 1
            assert len({place is None for place in found}) == 1, "a part of a send was stored"
            error = None if future.cancelled() else future.exception()
            if error is not None:
                assert isinstance(error, ServiceBusError)
                self.seen[f"a job: {error.outcome}"] += 1
                assert error.outcome is not None
                assert error.outcome is UNKNOWN or found[0] is None, f"{error.outcome}, but it was stored"
            elif not future.cancelled():
                link, at = found[0] or (None, 0)
                assert link is not None, "an accepted message was not stored"
                numbers = [link.base + at + each for each in range(len(found))]
                assert future.result() == (numbers if len(found) > 1 else numbers[0])
            if found[0] is None:
                continue
            link, at = found[0]
            assert sending.pinned in {None, link}, "a message is in a partition that is not its own"
            assert found == [(link, at + each) for each in range(len(found))]
            if sending.ordered:
                assert at > last[id(link)], "an ordered message has overtaken another one"
                last[id(link)] = at
        assert self.throttle.messages == 0, "an allowance was not returned, or twice"


def _read(future: asyncio.Future[Any]) -> None:
    """Read the error, if there is one, so that the loop does not report it."""
    if not future.cancelled():
        future.exception()


def run(seed: int, steps: int) -> Counter[str]:
    """Make a number of steps, and compare the outcomes. Return how often each fate and each outcome was seen."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(Random(seed), loop, steps))
    finally:
        loop.close()


async def _run(draws: Random, loop: VirtualLoop, steps: int) -> Counter[str]:
    machine = Machine(draws, loop)
    for _ in range(steps):
        await machine.step()
    await machine.drain()
    machine.compare()
    return machine.seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=100_000, help="the steps of all runs together (100,000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    given = parser.parse_args()
    seen: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + -(-given.steps // 1000)):
        try:
            seen += run(seed, 1000)
        except BaseException:
            sys.stdout.write(f"seed {seed}\n")
            raise
    for name, times in sorted(seen.items()):
        sys.stdout.write(f"{times:>10,}  {name}\n")


if __name__ == "__main__":
    main()
