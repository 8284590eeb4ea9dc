"""The model of transactions: operations on partitions of one slot, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.engine.model.topics import TopicModel
from tests.engine.model.values import Call, Plan, Refused, Stored, Together, Transacted

__all__ = ["Part", "TransactionModel"]


MOST_FORGOTTEN = 100
"""The number of keys with an ended window that one call forgets."""


class Part(NamedTuple):
    """One operation of a transaction: its partition, and a function that checks it."""

    of: TopicModel
    plan: Callable[[Call, Together], Plan]


class TransactionModel(TopicModel):
    """A partition that can take part in transactions."""

    def transact(self, call: Call, others: Sequence[tuple[TopicModel, Call]], parts: Sequence[Part]) -> Transacted:
        """Check all operations as they are before any due work, then do due work, then carry all of them out.

        This partition has the lane. ``others`` are the other participants, each with the knowledge of the caller.
        """
        known = self._admit(call)
        if known:
            self.repeated += 1
            known.used = call.now
            repeated: Transacted = known.again(call)
            return repeated
        self._check_knowledge(call, sound=True)
        for place, (other, theirs) in enumerate(others, 2):
            self._naming(f"@{place}", lambda: other._check_existence(theirs))  # noqa: B023 -- called at once
            self._naming(f"@{place}", lambda: other._check_knowledge(theirs, sound=True))  # noqa: B023 -- called at once
        together = Together()
        calls = {id(self): call} | {id(other): theirs for other, theirs in others}
        plans = [self._checked(f"#{place}", part, calls[id(part.of)], together) for place, part in enumerate(parts, 1)]

        participants = [self, *(other for other, _ in others)]
        for one in participants:
            together.leaping[id(one)] = False  # its own due work has seen a failover
            one._begin(calls[id(one)])
            share, weight = -(-self.bounds.share // len(participants)), self.bounds.weight // len(participants)
            one.more = one._do_due(call.now, share, weight)
        targets = {id(target): target for plan in plans for target in plan.targets}
        involved = targets | {id(one): one for one in participants}
        before = {key: one.taken.copy() for key, one in involved.items()}
        outcomes = [plan.act() for plan in plans]
        for key, one in involved.items():
            one.transacted += one.taken - before[key]

        results = tuple(outcome if isinstance(outcome, Stored) else None for outcome in outcomes)
        if call.lane:
            self._note(call, lambda _: Transacted(results))
        for one in involved.values():
            one._end(call.now)
        return Transacted(results, any(one.more for one in participants))

    def plan_once(self, call: Call, _: Together, keys: Mapping[bytes, int]) -> Plan:
        """Remember keys, each for its window. The model leaves out the bound of their number and size."""

        def act() -> None:
            ended = [key for key, end in self.once.items() if end <= call.now]
            assert len(ended) <= MOST_FORGOTTEN, "the model does not choose among more keys"
            for key in ended:
                del self.once[key]
            self.once |= {key: call.now + window for key, window in keys.items()}

        known = [place for place, key in enumerate(keys) if self.once.get(key, 0) > call.now]
        return Plan(act, refusal=("KNOWN", str(known[0])) if known else None)

    def _checked(self, place: str, part: Part, call: Call, together: Together) -> Plan:
        """Check an operation, after the operations before it. A refusal names its place."""
        plan = part.plan(call, together)
        refusal = plan.early or (plan.refusal if plan.sound else ("BADCALL", "")) or plan.strict()
        if refusal:
            if refusal[0] == "QUOTA" and part.of._overdue(call):
                self._naming(place, lambda: part.of._put_off(call, lambda: plan.full() is not None))
                refusal = plan.full() or refusal
            self._refuse(refusal[0], f"{place} {refusal[1]}")
        together.pending[id(part.of.store)] += plan.growth
        return plan

    @staticmethod
    def _naming(place: str, check: Callable[[], None]) -> None:
        """Let a refusal of one part of the transaction name this part."""
        try:
            check()
        except Refused as refused:
            raise Refused(refused.code, f"{place} {refused.detail}") from None
