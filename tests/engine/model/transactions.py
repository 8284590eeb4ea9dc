"""The model of transactions: operations on partitions of one slot, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sbredis.engine import Renewed
from tests.engine.model.topics import TopicModel
from tests.engine.model.values import Call, Plan, Refused, Stored, Together, Transacted, TransactedTogether

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
        """Carry out one transaction. Its refusal is the refusal of the call."""
        outcome = self._transact(call, others, [parts]).outcomes[0]
        assert isinstance(outcome, Transacted)
        return outcome

    def transact_together(
        self, call: Call, others: Sequence[tuple[TopicModel, Call]], transactions: Sequence[Sequence[Part]]
    ) -> TransactedTogether:
        """Carry out several transactions, one after the other. Each of them happens or is refused on its own."""
        return self._transact(call, others, transactions)

    def _transact(
        self, call: Call, others: Sequence[tuple[TopicModel, Call]], transactions: Sequence[Sequence[Part]]
    ) -> TransactedTogether:
        """Check all operations of a transaction, then carry all of them out, and then take the next transaction.

        The first transaction is checked as the partitions are before any due work. Due work comes before the first
        transaction that happens. This partition has the lane. ``others`` are the other participants, each with the
        knowledge of the caller.
        """
        known = self._admit(call)
        if known:
            self.repeated += 1
            known.used = call.now
            repeated: TransactedTogether = known.again(call)
            return repeated
        self._check_knowledge(call, sound=True)
        calls = {id(self): call} | {id(other): theirs for other, theirs in others}
        unfit = {id(other): refused for other, theirs in others if (refused := _unfit(other, theirs))}
        participants = [self, *(other for other, _ in others if id(other) not in unfit)]
        involved: dict[int, TopicModel] = {id(one): one for one in participants}
        leaping = dict.fromkeys(involved, False)  # a participant's own due work has seen a failover
        begun, outcomes = False, list[Transacted | Refused]()

        for parts in transactions:
            together = Together(leaping=leaping)
            try:
                for part in parts:
                    self._plan(part, calls[id(part.of)], together, unfit, begun=begun)
            except Refused as refused:
                if len(transactions) == 1 or (refused.code == "DUE" and not begun):
                    raise
                outcomes.append(refused)
            else:
                if not begun:
                    self._do_due_of(participants, calls, len(others) + 1)
                begun = True
                outcomes.append(self._act([part.of for part in parts], together.plans, involved))
        if not begun:
            self._do_due_of(participants, calls, len(others) + 1)

        if call.lane:
            self._note(call, lambda _: TransactedTogether(tuple(outcomes)))
        for one in involved.values():
            one._end(call.now)
        more = any(one.more for one in participants)
        return TransactedTogether(
            tuple(replace(each, more=more) if isinstance(each, Transacted) else each for each in outcomes), more
        )

    def _do_due_of(self, participants: Sequence[TopicModel], calls: Mapping[int, Call], count: int) -> None:
        """Let each participant do its part of one share of due work."""
        for one in participants:
            call = calls[id(one)]
            one._begin(call)
            one.more = one._do_due(call.now, -(-self.bounds.share // count), self.bounds.weight // count)

    @staticmethod
    def _act(places: Sequence[TopicModel], plans: Sequence[Plan], involved: dict[int, TopicModel]) -> Transacted:
        """Carry out the operations of a transaction. Add their targets to ``involved``."""
        involved |= {id(target): target for plan in plans for target in plan.targets}
        before = {key: one.taken.copy() for key, one in involved.items()}
        for one in involved.values():
            one.last_sent = None
        results: list[Any] = []
        for place, plan in zip(places, plans, strict=True):
            results.append(plan.act())
            if isinstance(results[-1], Stored) and not place.settings.topic:
                place.last_sent = place.store.seq
        for key, one in involved.items():
            one.transacted += one.taken - before[key]
        return Transacted(tuple(map(_shown, results)))

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

    def plan_advance(self, _: Call, together: Together, name: bytes, expected: str | None, value: str | None) -> Plan:
        """Give a watermark a new value, or remove it."""
        stored = self.watermarks.get(name)

        def act() -> int:
            number = self.last_sent or (stored[0] if stored else 0)
            if value is None:
                del self.watermarks[name]
            else:
                self.watermarks[name] = number, value
            return number

        if (id(self), name) in together.watermarks:
            return Plan(act, refusal=("BADCALL", "watermark"))
        if (stored[1] if stored else None) != expected:
            return Plan(act, refusal=("CHANGED", f"{stored[0]} {stored[1]}" if stored else "-"))
        count = together.marks.get(id(self), len(self.watermarks)) + (-1 if value is None else stored is None)
        if stored is None and count > self.bounds.watermarks:
            return Plan(act, refusal=("FULL", str(self.bounds.watermarks)))
        together.marks[id(self)] = count
        together.watermarks.add((id(self), name))
        return Plan(act)

    def _plan(self, part: Part, call: Call, together: Together, unfit: Mapping[int, Refused], *, begun: bool) -> None:
        """Check an operation, after the operations before it. A refusal names its place."""
        place = f"#{len(together.plans) + 1}"
        if id(part.of) in unfit:
            refused = unfit[id(part.of)]
            raise Refused(refused.code, f"{place} {refused.detail}")
        plan = part.plan(call, together)
        refusal = plan.early or (plan.refusal if plan.sound else ("BADCALL", "")) or plan.strict()
        if refusal:
            if refusal[0] == "QUOTA" and not refusal[1].startswith("ids ") and part.of._overdue(call):
                if begun:
                    self._refuse("DUE", f"{place} more")
                self._naming(place, lambda: part.of._put_off(call, lambda: plan.full() is not None))
                refusal = plan.full() or refusal
            self._refuse(refusal[0], f"{place} {refusal[1]}")
        together.pending[id(part.of.store)] += plan.growth
        together.plans.append(plan)

    @staticmethod
    def _naming(place: str, check: Callable[[], None]) -> None:
        """Let a refusal of one part of the transaction name this part."""
        try:
            check()
        except Refused as refused:
            raise Refused(refused.code, f"{place} {refused.detail}") from None


def _unfit(other: TopicModel, call: Call) -> Refused | None:
    """Return the refusal if the knowledge of a caller about another participant is wrong."""
    try:
        other._check_existence(call)
        other._check_knowledge(call, sound=True)
    except Refused as refused:
        return refused
    return None


def _shown(result: Any) -> Stored | int | tuple[int, tuple[str, ...]] | None:
    """Return what the result of a transaction shows of the result of an operation."""
    if isinstance(result, Renewed):
        return result.lock, result.apart
    return result if isinstance(result, (Stored, int)) else None
