"""All rules of a topic, and what becomes of a message by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from sbredis.rules._actions import Action, compile_action
from sbredis.rules._arithmetic import EvaluationError
from sbredis.rules._checks import check_filter, correlated, read_filter
from sbredis.rules._compile import Compiler, Condition
from sbredis.rules._facts import Facts, Seen
from sbredis.rules._index import Index, Wanted, split
from sbredis.rules._rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter
from sbredis.rules._sharing import Memory, Sharing
from sbredis.rules._syntax import Predicate
from sbredis.rules._values import Constant, Value

__all__ = ["Copy", "RuleBook"]

_UNCHANGED: Final[Mapping[str, Constant]] = MappingProxyType({})


class Copy(NamedTuple):
    """A copy of a message for a subscription."""

    subscription: int
    """The place of the subscription among those the book was made with."""
    rule: str | None
    """The rule that made it; ``None`` for the plain copy, which all matching rules without an action make together."""
    system: Mapping[str, Constant] = _UNCHANGED
    """The system properties that an action changed, by their canonical names; ``None`` for one that was removed."""
    user: Mapping[str, Value] | None = None
    """All of the application's properties after the action, ``RuleName`` among them; ``None`` if they are as sent."""
    error: str | None = None
    """Why the rule could not be applied, which makes this a copy for the dead-letter queue."""


class _Entry:
    """A rule in its place."""

    __slots__ = ("action", "condition", "dead_letters", "plain", "position", "rule", "subscription")

    def __init__(self, position: int, rule: Rule, plain: Copy, *, dead_letters: bool) -> None:
        self.position = position
        self.subscription = plain.subscription
        self.rule = rule.name
        self.dead_letters = dead_letters
        self.condition: Condition | None = None
        """What is left to be asked of a message that the index finds the rule for."""
        self.action: Action | None = compile_action(rule.action, rule.name) if rule.action is not None else None
        self.plain = plain

    def failed(self, what: str, error: EvaluationError) -> Copy:
        return Copy(self.subscription, self.rule, error=f"The {what} of rule {self.rule!r} failed: {error}.")


_position = attrgetter("position")


class RuleBook:
    """All rules of a topic, compiled once.

    ``subscriptions`` has, for each subscription, its rules, and whether it dead-letters a message on which one of them
    cannot be evaluated. Raises what :func:`check_filter` and :func:`check_action` raise for a rule that cannot be used.

    A book does not change, and any number of threads may use it.
    """

    def __init__(self, subscriptions: Sequence[tuple[Sequence[Rule], bool]]) -> None:
        indexed: list[tuple[Wanted, _Entry]] = []
        self._always: list[_Entry] = []
        compiling = _Compiling()
        position = 0
        for subscription, (rules, dead_letters) in enumerate(subscriptions):
            plain = Copy(subscription, None)
            for rule in rules:
                entry = _Entry(position, rule, plain, dead_letters=dead_letters)
                position += 1
                wanted = compiling.read(rule.filter, entry)
                if wanted:
                    indexed.append((wanted, entry))
                elif wanted is not None:
                    self._always.append(entry)
        self._index = Index(indexed) if indexed else None
        self._shares = compiling.finish()

    def judge(self, facts: Facts) -> list[Copy]:
        """The copies that a message becomes: subscription by subscription, in the order of their rules.

        All matching rules of a subscription that have no action give one plain copy, in the place of the first of
        them. Each matching rule that has one gives a copy of its own. A rule that fails gives a copy with an ``error``
        if the subscription dead-letters such messages, and nothing if it does not; the other rules count as ever.
        """
        found = [*self._always]
        index = self._index
        if index is not None:
            index.find(facts, found)
            if len(found) > 1:
                found.sort(key=_position)
        seen: Seen = Memory(facts) if self._shares and found else facts
        copies: list[Copy] = []
        plain = -1  # the last subscription that has its plain copy
        for entry in found:
            action = entry.action
            if action is None and entry.subscription == plain and not entry.dead_letters:
                continue
            condition = entry.condition
            if condition is not None:
                try:
                    if condition(seen) is not True:
                        continue
                except EvaluationError as error:
                    if entry.dead_letters:
                        copies.append(entry.failed("filter", error))
                    continue
            if action is not None:
                self._act(entry, action, facts, copies)
            elif entry.subscription != plain:
                plain = entry.subscription
                copies.append(entry.plain)
        return copies

    def _act(self, entry: _Entry, action: Action, facts: Facts, copies: list[Copy]) -> None:
        try:
            changed = action(facts)
        except EvaluationError as error:
            if entry.dead_letters:
                copies.append(entry.failed("action", error))
            return
        copies.append(Copy(entry.subscription, entry.rule, changed.system, changed.user))


class _Compiling:
    """Filters that become conditions: all are read before the first is compiled, to find what they have in common."""

    def __init__(self) -> None:
        self._sharing = Sharing()
        self._read: list[tuple[_Entry, Compiler, list[Predicate]]] = []

    def read(self, given: Filter, entry: _Entry) -> Wanted | None:
        """What the index is to hold a filter to; ``None`` for one that nothing passes."""
        if isinstance(given, SqlFilter):
            predicate, parameters = read_filter(given)
            compiler = Compiler(given.text, parameters, self._sharing.once)
            wanted, left = split(predicate, compiler)
            if left:
                self._sharing.read(left, compiler.constant, wanted)
                self._read.append((entry, compiler, left))
            return wanted
        if isinstance(given, CorrelationFilter):
            return correlated(given)
        check_filter(given)
        return None if isinstance(given, FalseFilter) else {}

    def finish(self) -> bool:
        """Give the entries their conditions. Returns whether they share anything."""
        for entry, compiler, left in self._read:
            entry.condition = compiler.topmost(left)
        return self._sharing.any
