"""A partition in the scripts and the same partition in the model: both do each step, and all data is compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from sbredis.engine import (
    NEVER,
    NO_CALL_ID,
    Awoken,
    CallId,
    Counts,
    Delivery,
    Partition,
    PartitionSettings,
    Peeked,
    Received,
    Request,
)
from tests.engine import model as m
from tests.engine.proof.breakages import breakages
from tests.engine.proof.hosts import Host
from tests.engine.proof.picture import check_store, told
from tests.engine.taking import first_token
from tests.engine.terms import Condition, Event, Side, State

NAMESPACE, SALT = "proof", "abc"
T0 = 1_700_000_000_000
FIRST_VERSION = 2
READ_ONLY = ("peek", "count", "get_state", "list_sessions", "list_sessions_since", "ripe")
GRANTS = ("receive", "accept_next")
"""Operations that are grants. A refusal is in the answer to a grant."""
UNTURNED = ("configure", "destroy")
"""Operations without a lane. `configure` still gets the time of the call."""
SUBSTITUTES = {"BADCALL", "DISABLED", "TOOLARGE", "QUOTA", "SESSIONS", "LOST", "TARGET", "FENCED"}
"""Other refusals that a malformed call may get, because a script may notice another mistake first."""

LATEST = NEVER - 10**8
"""The latest time that tests use. A lock that starts at this time still ends before NEVER, as at any real time."""

Transition = tuple[Side, State, Event, Condition]


def moment(time: int) -> int:
    """Return the allowed time that is nearest to a time."""
    return max(0, min(time, LATEST))


@dataclass
class Tally:
    """Counts of everything that a run did."""

    steps: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Transition] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    repetitions: Counter[str] = field(default_factory=Counter)
    transacted: Counter[Transition] = field(default_factory=Counter)
    """The transitions that operations of transactions made."""
    left_more: int = 0


class How(NamedTuple):
    """The special properties of a call, if it has any."""

    defect: str = ""
    lane: str = ""
    unsure: bool = False
    """The transport does not know the run id."""
    breakage: int = 0
    """The index in the list of breakages, if the call is malformed."""


class Step(NamedTuple):
    """An operation, as a request and as a call of the model."""

    operation: str
    make: Callable[[Partition, CallId], Any]
    """Return the request or, if the operation has no script of its own, the operation of a transaction."""
    mirror: Callable[[m.Call], Any]
    plan: Callable[[m.Call, m.Together], m.Plan] | None = None
    """Checks the operation in the model, if it can be part of a transaction."""
    parts: tuple[str, ...] = ()
    """The operations of a transaction."""


class Frozen(NamedTuple):
    """The last call of a lane, kept for its repetition."""

    step: Step
    call: m.Call
    request: Request[Any]


@dataclass
class World:
    """The state that partitions share when they are compared together."""

    now: int = T0
    run_id: str = "r1"
    tokens: int = 0
    steps: int = 0


class Comparison:
    """A partition that exists in the scripts and in the model, at a time that the test sets."""

    def __init__(
        self,
        host: Host,
        settings: PartitionSettings,
        *,
        tally: Tally | None = None,
        bounds: m.Bounds = m.REAL_BOUNDS,
        topic: Comparison | None = None,
        beside: Comparison | None = None,
    ) -> None:
        """Make a comparison: of a subscription of ``topic``, or of another entity in the slot of ``beside``."""
        self.host = host
        self.tally = tally or Tally()
        neighbour = topic or beside
        self.world: World = neighbour.world if neighbour else World()
        self.family: list[Comparison] = neighbour.family if neighbour else []
        self.family.append(self)
        self.entity = f"e{len(self.family)}"
        self.store = topic.entity if topic else None
        self.incarnation = 1
        self.version = FIRST_VERSION
        self.settings = settings
        self.model: m.Model = m.Model(bounds=bounds, store=topic.model.store) if topic else m.Model(bounds=bounds)
        self.frozen: dict[str, Frozen] = {}
        self.keys = self._partition().keys
        self.before = host.picture(self.keys)
        self.found: m.Snapshot | None = None

    @property
    def now(self) -> int:
        return self.world.now

    @now.setter
    def now(self, now: int) -> None:
        self.world.now = moment(now)

    @property
    def run_id(self) -> str:
        return self.world.run_id

    @run_id.setter
    def run_id(self, run_id: str) -> None:
        self.world.run_id = run_id

    @property
    def steps(self) -> int:
        return self.world.steps

    # -- parts of a step -----------------------------------------------------------------------------------------------

    def number_from(self, seq: int) -> None:
        """Continue the message numbers after this number, as if earlier numbers had been used."""
        self.host.ask("HSET", self.keys[8], "seq", seq)
        self.model.seq = seq
        self.before, self.found = self.host.picture(self.keys), None

    def token(self) -> str:
        """Return a token that was never used."""
        self.world.tokens += 1
        return first_token(f"{self.world.tokens:08}")

    def close(self) -> None:
        """Add up the counts, delete all keys of the partitions, and check that no other key is left."""
        for one in self.family:
            self.tally.transitions.update(one.model.taken)
            self.tally.transacted.update(one.model.transacted)
            self.host.ask("DEL", *one.keys)
        left = self.host.ask("KEYS", f"sb:{NAMESPACE}:*")
        assert not left, f"keys of no partition: {left}"

    def _partition(self, incarnation: int | None = None, version: int | None = None) -> Partition:
        return Partition(
            NAMESPACE,
            SALT,
            self.entity,
            f"i{incarnation or self.incarnation}",
            version or self.version,
            self.settings,
            store=self.store,
        )

    # -- a step --------------------------------------------------------------------------------------------------------

    def do(self, step: Step, how: How) -> Any:
        """Let the scripts and the model do a step. Return the result of the scripts, or the refusal."""
        call = self._call(how)
        call_id = CallId(call.lane, call.number, call.now)
        partition = self._partition(int(call.incarnation[1:]), call.version)
        request = step.make(partition, NO_CALL_ID if step.operation == "destroy" else call_id)
        if how.defect == "malformed":
            options = breakages(step.operation)
            request = request._replace(arguments=options[how.breakage % len(options)](request.arguments))
            call = replace(call, sound=False)
        elif call.lane and how.defect != "layout":
            self.frozen[call.lane] = Frozen(step, call, request)
        return self._both(step, call, request, how)

    def again(self, lane: str) -> Any:
        """Let the scripts and the model repeat the last call of a lane; the scripts must recognise the repetition."""
        step, call, request = self.frozen[lane]
        call = replace(call, now=self.now, run_id=self.run_id)
        arguments = list(request.arguments)
        arguments[4] = self.now
        return self._both(step, call, request._replace(arguments=tuple(arguments)), How())

    def _call(self, how: How) -> m.Call:
        """Return the call; if the step has a defect, the call has it too."""
        lanes = sorted(self.model.lanes.items(), key=lambda one: one[0])
        incarnation, version = self.incarnation, self.version
        lane, number = how.lane, 0
        if how.defect == "unknown":
            lane, number = f"no-{lane}", 2
        elif how.defect == "older":
            lane, number = next(((one, known.number - 1) for one, known in lanes if known.number > 1), ("no-lane", 2))
        elif lane:
            known = self.model.lanes.get(lane)
            number = known.number + 2 if known else 1
        if how.defect == "incarnation":
            incarnation += 1
        elif how.defect == "stale":
            version -= 1
        elif how.defect == "newer":
            version += 1
        run_id = "?" if how.unsure else self.run_id
        return m.Call(run_id, f"i{incarnation}", version, lane, number, self.now)

    def _both(self, step: Step, call: m.Call, request: Request[Any], how: How) -> Any:
        tampered = how.defect == "layout" and self.model.exists
        if tampered:
            self._lay_out("3")
        real, after = self.host.run_and_read(request, call.run_id, [one.keys for one in self.family])
        known = self.model.repeated
        expected = _attempt(lambda: step.mirror(call))
        self.tally.repetitions[step.operation] += self.model.repeated - known
        if tampered:
            self._lay_out("2")
            after = self.host.pictures([one.keys for one in self.family])
        changed = [one for one, picture in zip(self.family, after, strict=True) if picture != one.before]
        for one, picture in zip(self.family, after, strict=True):
            if one in changed:
                one.before, one.found = picture, None  # a picture that has not changed was checked before
        self.world.steps += 1
        self.tally.steps += 1
        self.tally.operations[step.operation] += 1

        def text() -> str:
            return f"{step.operation} {call} answered {real}, expected {expected}"

        if isinstance(real, m.Refused):
            self.tally.refusals[step.operation, real.code] += 1
            if step.parts:
                self.tally.refusals[part_of(step.parts, real), real.code] += 1
            assert isinstance(expected, m.Refused), text()
            agreed = real.code in SUBSTITUTES if not call.sound else _same_refusal(real, expected)
            assert agreed, text()
            put_off = real.code in ("DUE", "QUOTA") or step.operation in GRANTS  # it did due work, and nothing else
            assert put_off or not changed, f"the call was refused, but changed something: {text()}"
        else:
            assert not isinstance(expected, m.Refused), text()
            agree(step.operation, real, expected)
            self.tally.left_more += getattr(real, "more", False) is True
            self.tally.operations.update(in_transactions(part) for part in {*step.parts})
        if step.operation in READ_ONLY:
            assert not changed, f"something changed: {text()}"
        for one in self.family:
            one.found = one.found or told(one.before)
            found, wanted = one.found, one.model.snapshot()
            whose = "" if one is self else f" in {one.entity}"
            assert found == wanted, f"{text()}{whose}; {_differences(found, wanted)}"
        for store in dict.fromkeys(one.store or one.entity for one in changed):
            check_store([one.before for one in self.family if store in (one.store, one.entity)])
        if self.steps % 32 == 0 and self.model.exists:
            self._check_looks()
        return real

    def _check_looks(self) -> None:
        """Check that what time does is the same if nobody looks at the partition meanwhile. A look does due work.

        The scripts do what the model does at any time, so this is checked in the model.
        """
        share, turn = self.model.bounds.share, self.steps // 32
        call = m.Call(self.run_id, now=self.now)
        wait = (1, 400, 1_000, 5_000, 60_000)[turn % 5]
        earlier, later = (replace(call, now=moment(self.now + part)) for part in (wait * (turn % 7) // 7, wait))
        begun = self.model.caught_up(call, share)
        asleep = begun.caught_up(later, share)
        watched = begun.caught_up(earlier, 5 * share).caught_up(later, 5 * share)
        # The logical clock depends on the times of the calls; the other content does not.
        found, wanted = (replace(one.snapshot(), clk=0, offset=0, announced=0) for one in (watched, asleep))
        assert found == wanted, f"a look in {wait} ms at {earlier.now} matters: {_differences(found, wanted)}"

    def _lay_out(self, form: str) -> None:
        self.host.ask("HSET", self.keys[0], "layout", form)
        self.model.layout = form


def in_transactions(operation: str) -> str:
    """Return the name under which an operation counts that was part of a transaction."""
    return f"transact: {operation}"


def part_of(operations: Sequence[str], refused: m.Refused) -> str:
    """Return the name of the part of a transaction that was refused: an operation, or another participant."""
    named = re.match(r"#(\d+) ", refused.detail)
    if named is None:
        return in_transactions("itself")
    if refused.code in ("GONE", "STALE", "CONFIG"):
        return in_transactions("another participant")
    return in_transactions(operations[int(named[1]) - 1])


def _differences(found: m.Snapshot, wanted: m.Snapshot) -> str:
    pairs = {one.name: (getattr(found, one.name), getattr(wanted, one.name)) for one in fields(found)}
    told_apart = [f"{name} is {ours}, not {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]
    return "; ".join(told_apart)


def _attempt(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except m.Refused as refused:
        return refused


def _same_refusal(real: m.Refused, expected: m.Refused) -> bool:
    detailed = expected.code not in ("BADCALL", "LANE")
    return real.code == expected.code and (real.detail == expected.detail or not detailed)


def agree(operation: str, real: Any, expected: Any) -> None:
    """Check that a result agrees with the model; a due time may be too early, and never too late."""
    if isinstance(real, Counts):
        _agree_on_due(real.due, expected.due)
        assert (real.more, real.bytes, real.last) == (expected.more, expected.bytes, expected.last), (
            f"{real}, {expected}"
        )
        stated = {at: getattr(real, _count_of(*at)) for at in expected.states}
        assert stated == expected.states, f"{real}, expected {expected}"
        assert (real.frozen, real.dead_kept, real.dead_frozen) == (0, 0, 0)
        return
    if isinstance(expected, m.TransactedTogether):
        agreed = real.more == expected.more and len(real.outcomes) == len(expected.outcomes)
        for ours, theirs in zip(expected.outcomes, real.outcomes, strict=False):
            if isinstance(ours, m.Refused):
                agreed = agreed and isinstance(theirs, m.Refused) and _same_refusal(theirs, ours)
            else:
                agreed = agreed and theirs == ours
        assert agreed, f"{operation} answered {real}, expected {expected}"
        return
    if isinstance(expected, Awoken):
        _agree_on_due(real.due, expected.due)
        real = real._replace(due=expected.due)
    elif isinstance(expected, m.Told):
        expected = expected.value
    elif isinstance(expected, m.Transacted):
        real = m.Transacted(real.results, real.more)
    elif operation == "ripe":
        real = tuple((_delivery(one), reached) for one, reached in real)
    elif isinstance(expected, Received | Peeked):
        real = real._replace(messages=tuple(map(_delivery, real.messages)))
    if getattr(expected, "lock", None) == 0:
        real = real._replace(lock=0)  # this call locks no message
    assert real == expected, f"{operation} answered {real}, expected {expected}"


def _agree_on_due(real: int, expected: int) -> None:
    assert 0 < real <= expected if expected else real >= 0, f"due in {real} ms, expected {expected}"


def _delivery(real: Delivery) -> Delivery:
    return real if real.expires is not None else real._replace(expires=m.written_expiry(real.record))


def _count_of(side: Side, state: State) -> str:
    prefixes = {Side.MAIN: "", Side.DEAD: "dead_", Side.TRANSFER_DEAD: "transfer_dead_"}
    return prefixes[side] + state.value
