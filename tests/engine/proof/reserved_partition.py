"""The partition of the machine of reserved ranges, and those who use it beside the reader.

After each call every pinned message must still be there, and each message that has left its place must have had a
reason.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from sbredis.engine import (
    NEVER,
    CallId,
    Committed,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Planned,
    Redrive,
    Request,
    new_token,
)
from tests.engine.model import Refused
from tests.engine.proof.hosts import Host, Read
from tests.engine.proof.picture import Picture, Standing, check, check_store
from tests.engine.taking import first_token, receiving
from tests.engine.terms import Side, State

__all__ = ["MOST", "SETTINGS", "SharedPartition", "narrow"]

T = TypeVar("T")
T0 = 1_700_000_000_000
LOCK = 5_000
MOST = 1 << 30
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=3, dead_letter_expired=True)
_examples = itertools.count(1)


def narrow(read: Read) -> Read:
    """Read the scripts with other limits for a call, so that a few messages reach them."""

    def changed(name: str) -> str | None:
        text = read(name)
        if text is None:
            return None
        if name in {"unpin", "includes/remove_committed", "includes/grow_pin"}:
            text = text.replace("1000", "2").replace("500", "2")
        if name == "includes/choose_end":
            text = text.replace("500", "3")
        return text

    return changed


class SharedPartition(RuleBasedStateMachine):
    """A partition that others use beside its reader."""

    on: ClassVar[Host]
    seen: ClassVar[Counter[str]]
    """How often each case has happened in all examples. A subclass sets both."""

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.run_id = 1
        self.tokens = itertools.count(1)
        self.incarnations = itertools.count(1)
        self.id = f"q{next(_examples)}"
        self.bodies = itertools.count(1)
        self.sent: set[bytes] = set()
        """The messages that were sent and that no failover and no deletion has lost."""
        self.ends: dict[bytes, int] = {}
        """The time when each message that was sent expires."""
        self.ended: set[bytes] = set()
        """Messages that a receiver has completed, or that were purged."""
        self.revived: set[bytes] = set()
        """Messages that had left the partition, and that a failover has brought back."""
        self.output: Counter[bytes] = Counter()
        """The messages that the reader has committed."""
        self.fence = 0
        self.committed: Committed | None = None
        self.checkpoints: list[Committed] = []
        self.planned: tuple[Planned, tuple[bytes, ...]] | None = None
        """The plan that is not committed, and its messages."""
        self.past: list[Request[Any]] = []
        """Calls of readers, which may come again at any time."""
        self.held: list[Lock] = []
        self.snapshot: tuple[list[bytes | None], set[bytes], Partition] | None = None

    # -- the partition -------------------------------------------------------------------------------------------------

    def _make(self, settings: PartitionSettings) -> None:
        self.of = Partition("machine", "abc", self.id, f"i{next(self.incarnations)}", 1, settings)
        self.on.run(self.of.configure(create=True, now=self.now), f"r{self.run_id}")

    @property
    def reserved(self) -> bool:
        return self.of.settings.reserved

    def _call_id(self) -> CallId:
        return CallId("", 0, self.now)

    def _picture(self) -> tuple[Picture, dict[bytes, Standing]]:
        """Return the content of the partition after a check, and its messages by their bodies."""
        picture = self.on.picture(self.of.keys)
        check_store([picture])
        found: dict[bytes, Standing] = {}
        for one in check(picture):
            assert one.read.payload not in found, f"{one.read.payload!r} is there twice"
            found[one.read.payload] = one
        return picture, found

    @staticmethod
    def _pin(picture: Picture) -> tuple[int, int]:
        """Return the floor and the last pinned number."""
        words = picture.state["pin"].split()
        return (int(words[2]), int(words[3])) if words else (0, 0)

    def _run(self, request: Request[T], *, expect: str = "", removes: Mapping[bytes, str] = {}) -> T | None:
        """Make a call, and check what it has done to each message.

        ``removes`` are messages that may leave the partition. Return None if the call was refused with the code that is
        expected.
        """
        self.seen["steps"] += 1
        picture, before = self._picture()
        _, last = self._pin(picture)
        answer = self._answer(request)
        if isinstance(answer, Refused) and answer.code != "DUE":
            assert answer.code == expect, f"{request.script.name}: {answer.code} {answer.detail}"
            if request.script.name == "grant":  # it has done due work
                self._compare(request, before, last, {})
            else:
                assert self.on.picture(self.of.keys).replies == picture.replies, "a refused call has changed something"
            why = answer.detail.split()[0] if answer.code == "LOSS" else request.script.name
            self.seen[f"{answer.code} {why}"] += 1
            return None
        assert isinstance(answer, Refused) or not expect, f"{request.script.name} was not refused with {expect}"
        self._compare(request, before, last, removes)
        return None if isinstance(answer, Refused) else answer

    def _answer(self, request: Request[T]) -> T | Refused:
        try:
            return self.on.run(request, f"r{self.run_id}")
        except Refused as refused:
            return refused

    def _compare(
        self, request: Request[Any], before: Mapping[bytes, Standing], last: int, removes: Mapping[bytes, str]
    ) -> None:
        """Check that each message which has left its place had a reason. Messages up to ``last`` were pinned."""
        picture, after = self._picture()
        floor, _ = self._pin(picture)
        for body, one in before.items():
            now = after.get(body)
            ready = (one.side, one.state) == (Side.MAIN, State.ACTIVE)
            if now is not None and (now.side, now.state, now.number) == (one.side, one.state, one.number):
                continue
            if ready and one.number <= last and self.reserved:  # it was pinned
                assert now is None, f"{request.script.name}: a pinned message is {now}"
                assert one.number <= floor, f"{request.script.name} has removed a pinned message"
                known = self.output[body] or body in self.revived
                assert known, f"{request.script.name} has removed {body!r}, which no reader has committed"
            elif now is None:
                ends = self.ends[body] if one.state is State.SCHEDULED else one.expires
                expired = ends <= self.now and not self.of.settings.dead_letter_expired
                committed = ready and one.number <= floor and (self.output[body] or body in self.revived)
                assert committed or expired or body in removes, f"{request.script.name} has lost {one}"
                if expired and not committed:  # a call that receives also does due work
                    self.ended.add(body)
                    self.seen["expired"] += 1
            elif now.side is not one.side and now.side is Side.DEAD:
                self.seen["expired"] += now.entry is not None and now.entry.reason == "T"
        assert before.keys() >= after.keys() or request.script.name == "send", "a message has come from nowhere"

    # -- others --------------------------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 5),
        level=st.sampled_from([0, 0, 0, 3, 7]),
        ttl=st.sampled_from([None, None, 3_000, 6_000, 9_000]),
        delay=st.sampled_from([None, None, None, 2_000, 0]),
    )
    def send(self, count: int, level: int, ttl: int | None, delay: int | None) -> None:
        bodies = [b"%d" % next(self.bodies) for _ in range(count)]
        due = None if delay is None else self.now + delay
        self._run(self.of.send(self._call_id(), [Outgoing(body, ttl, level, due=due) for body in bodies]))
        self.sent.update(bodies)
        self.ends |= dict.fromkeys(bodies, self.now + (delay or 0) + min(ttl or NEVER, self.of.settings.time_to_live))

    @rule(time=st.sampled_from([500, 1_500, 4_000, LOCK + 1, 10_000]))
    def wait(self, time: int) -> None:
        self.now += time

    @rule(wanted=st.integers(1, 4), mode=st.sampled_from(["lock", "lock", "delete"]))
    def receive(self, wanted: int, mode: Any) -> None:
        token = first_token(f"{next(self.tokens):08}")
        _, there = self._picture()
        run = f"r{self.run_id}"
        given = self._run(
            receiving(self.of, token, wanted, run=run, now=self.now, mode=mode, refuse=Refused),
            expect="RESERVED" if self.reserved else "",
            removes=dict.fromkeys(there, "deleted") if mode == "delete" else {},
        )
        for message in given.messages if given else ():
            if mode == "lock":
                self.held.append(Lock(token, message.name))
            else:
                self.ended.add(message.record[28 if message.record.startswith(b"x") else 15 :])

    @rule(wide=st.booleans())
    def receive_by_number(self, wide: bool) -> None:
        _, there = self._picture()
        states = {State.DEFERRED, State.ACTIVE} if wide else {State.DEFERRED}
        names = [one.name for one in there.values() if one.side is Side.MAIN and one.state in states]
        if names:
            token = new_token()
            request = self.of.receive_deferred(self._call_id(), token, names[:2], wide=wide)
            given = self._run(request, expect="RESERVED" if self.reserved else "")
            self.held += [Lock(token, message.name) for message in (given.messages if given else ())]

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["complete", "abandon", "delay", "defer", "dead_letter"]))
    def settle(self, how: str) -> None:
        lock = self.held.pop(0)
        _, there = self._picture()
        body = next((body for body, one in there.items() if one.name == lock.name), None)
        if how == "delay":
            lock, how = lock._replace(delay=3_000), "abandon"
        request: Request[Any] = getattr(self.of, how)(self._call_id(), [lock])
        self._run(request, removes={body: how} if body and how == "complete" else {})
        if body and body not in self._picture()[1]:  # it was completed, or its lock had ended and it has expired
            self.ended.add(body)

    @rule()
    def purge(self) -> None:
        picture, there = self._picture()
        _, last = self._pin(picture)
        may = {
            body: "purged"
            for body, one in there.items()
            if one.side is Side.MAIN and (one.number > last or one.state is not State.ACTIVE)
        }
        purged = self._run(self.of.purge(self._call_id(), NEVER), removes=may)
        _, after = self._picture()
        if purged is not None:
            gone = may.keys() - after.keys()
            self.ended |= gone
            self.seen["purged"] += bool(gone) and last > 0
            ready = [one for one in after.values() if (one.side, one.state) == (Side.MAIN, State.ACTIVE)]
            assert all(one.number <= last for one in ready), "a purge has left messages above the pin"

    @rule()
    def redrive(self) -> None:
        _, there = self._picture()
        names = [one.name for one in there.values() if (one.side, one.state) == (Side.DEAD, State.ACTIVE)]
        if names:
            self._run(self.of.redrive(self._call_id(), [Redrive(name, 8_000) for name in names[:2]]))

    @rule()
    def visit(self) -> None:
        """Do all due work. Then no message that has expired may be above the pin."""
        while (awoken := self._run(self.of.due(self._call_id()))) and awoken.more:
            pass
        picture, there = self._picture()
        _, last = self._pin(picture)
        late = [
            one.name
            for one in there.values()
            if (one.side, one.state) == (Side.MAIN, State.ACTIVE) and one.number > last and one.expires <= self.now
        ]
        assert not late, f"have not expired: {late}"
