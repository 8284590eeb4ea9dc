"""The course of every call of the model: its checks, its lane, its clocks, and what it does around the operation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

from sbredis.engine import NEVER
from tests.engine.model.due_work import DueWork
from tests.engine.model.values import MOST, Call, Lane, Plan, Refused
from tests.engine.terms import EPOCH_LEAP, split_member

R = TypeVar("R")

IDLE = 900_000


class Mechanics(DueWork):
    """A partition that checks and carries out calls."""

    def _perform(
        self,
        call: Call,
        act: Callable[[], R],
        *,
        sound: bool = True,
        early: tuple[str, str] | None = None,
        refusal: tuple[str, str] | None = None,
        again: Callable[[Call], R] | None = None,
        full: Callable[[], tuple[str, str] | None] = lambda: None,
        share: int | None = None,
        undecided: Callable[[], bool] = lambda: False,
        late: Callable[[], tuple[str, str] | None] = lambda: None,
    ) -> R:
        """Check the call, do due work, and then do the operation.

        The refusal ``early`` takes precedence over the check of the arguments.
        If due work is left and the answer is ``undecided`` without it, the call is put off.
        Due work may make room. So a call is refused for lack of room only if ``full`` still says so after all due work.
        The refusal ``late`` is one of a grant: the call has done due work, and nothing else.
        """
        known = self._admit(call)
        if known:
            self.repeated += 1
            known.used = call.now
            repeated: R = known.again(call)
            return repeated
        self._check_knowledge(call, sound=sound or bool(early))
        refusal = early or refusal
        if refusal:
            if refusal[0] == "QUOTA" and not refusal[1].startswith("ids ") and self._overdue(call):
                self._put_off(call, lambda: full() is not None)
                refusal = full() or refusal
            self._refuse(*refusal)
        self._begin(call)
        self.more = self._do_due(call.now, share or self.bounds.share)
        if self.more and undecided():
            self._put_off(call)
        if refusal := late():
            self._end(call.now)
            self._refuse(*refusal)
        result = act()
        if call.lane:
            self._note(call, again or (lambda _: _without_more(result)))
        self._end(call.now)
        return result

    def _carry_out(self, call: Call, plan: Plan, answer: Callable[[Any], R], again: R | None = None) -> R:
        """Carry out a single operation that was checked; ``answer`` makes the answer of its result."""
        return self._perform(
            call,
            lambda: answer(plan.act()),
            sound=plan.sound,
            early=plan.early,
            refusal=plan.refusal,
            full=plan.full,
            again=None if again is None else lambda _: again,
        )

    def _overdue(self, call: Call) -> bool:
        """Return whether something may be due."""
        logical, epoch = self._clock(call)
        return epoch or self.next_lock <= logical or self.next_due <= call.now or self.head <= call.now

    def _foreseen(self, call: Call) -> Self:
        """Return the partition as it will be after all due work."""
        if not self._overdue(call):
            self.more = False
            return self
        there = copy.deepcopy(self)
        there._begin(call)
        there.more = there._do_due(call.now, 5 * self.bounds.share)
        return there

    def caught_up(self, call: Call, share: int) -> Self:
        """Return the partition after all due work, done in shares of this size."""
        there, more = copy.deepcopy(self), True
        while more:
            there._begin(call)
            more = there._do_due(call.now, share)
            there._end(call.now)
        return there

    def _put_off(self, call: Call, still: Callable[[], bool] = lambda: False) -> None:
        """Do more due work, and put the call off unless no due work is left and the call is ``still`` refused."""
        self._begin(call)
        more = self._do_due(call.now, 5 * self.bounds.share)
        self._end(call.now)
        if more or not still():
            self._refuse("DUE", "more")

    def _end(self, now: int) -> None:
        """Update the sessions, and announce the next due time."""
        self._take_turns(now)
        self._announce(now)

    def _announce(self, now: int) -> None:
        """Announce the next due time if it is before the announced time, or if the announced time has passed.

        A topic does not forget the announced time while messages that are due wait to be published.
        """
        first = min(self.head, self.next_due)
        if self.next_lock < NEVER:
            first = min(first, max(0, self.next_lock - self.offset))
        waits = self.settings.topic and any(due <= now for due in self._due().values())
        if first < self.announced or (self.announced <= now < first and not (first == NEVER and waits)):
            self.announced = first

    def _check_reading(
        self,
        call: Call,
        *,
        sound: bool = True,
        early: tuple[str, str] | None = None,
        refusal: tuple[str, str] | None = None,
    ) -> None:
        """Check a call without a lane."""
        self._admit(call)
        self._check_knowledge(call, sound=bool(early) or (sound and not call.lane))
        if early or refusal:
            self._refuse(*(early or refusal or ("", "")))

    def _admit(self, call: Call) -> Lane | None:
        """Check that the partition exists and takes this call; return its lane if this repeats the lane's last call."""
        self._check_existence(call)
        lane = self.lanes.get(call.lane)
        if lane and call.number < lane.number:
            self._refuse("REPEATED", str(lane.number))
        if call.lane and not lane and call.number > 1:
            self._refuse("LANE", call.lane)
        return lane if lane and call.number == lane.number else None

    def _check_existence(self, call: Call) -> None:
        if self.exists and self.layout != "2":
            self._refuse("LAYOUT", self.layout)
        if not self.exists or call.incarnation != self.incarnation:
            self._refuse("GONE", "partition")

    def _check_knowledge(self, call: Call, *, sound: bool) -> None:
        if call.version < self.version:
            self._refuse("STALE", str(self.version))
        if call.version > self.version:
            self._refuse("CONFIG", str(self.version))
        if not (sound and call.sound):
            self._refuse("BADCALL")

    def _refuse(self, code: str, detail: str = "") -> NoReturn:
        self.refused[code] += 1
        raise Refused(code, detail)

    def _note(self, call: Call, again: Callable[[Call], Any]) -> None:
        """Remember the call in its lane. A new lane removes idle lanes."""
        new = call.lane not in self.lanes
        self.lanes[call.lane] = Lane(call.number, call.now, again)
        if new:
            assert len(self.lanes) <= 10, "the model does not choose by chance among more lanes"
            self.lanes = {name: lane for name, lane in self.lanes.items() if lane.used >= call.now - IDLE}

    @staticmethod
    def _are_names(names: Sequence[str]) -> bool:
        try:
            told = [split_member(name) for name in names]
        except ValueError:
            return False
        return 1 <= len(told) <= MOST and len(set(told)) == len(told)

    def _clock(self, call: Call) -> tuple[int, bool]:
        """Return the logical time of a call, and whether it begins an epoch."""
        epoch = "?" not in (call.run_id, self.run_id) and call.run_id != self.run_id
        grace = self.settings.lock_duration if epoch else 0
        return max(self.clk, call.now + self.offset - grace), epoch

    def _begin(self, call: Call) -> None:
        logical, epoch = self._clock(call)
        self.epoch = epoch
        if epoch:
            self.seq += EPOCH_LEAP
            self.dead_seq += EPOCH_LEAP
            self.granted += EPOCH_LEAP
        if call.run_id != "?":
            self.run_id = call.run_id
        self.clk, self.offset = logical, logical - call.now

    def _has_lock(self, name: str | None, token: str, call: Call) -> bool:
        """Return whether a token has the lock on a session when a call begins."""
        lease = self.leases.get(token)
        return lease is not None and lease.session == name is not None and lease.until > self._clock(call)[0]


def _without_more(result: Any) -> Any:
    """Return an answer as a repetition gives it, which does no due work."""
    changed: Callable[..., Any] = getattr(result, "_replace", partial(replace, result))
    return changed(more=False)
