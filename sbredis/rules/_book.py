"""All rules of a topic, and the copies that they make of a message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from sbredis._quoting import shortened
from sbredis.exceptions import RuleSyntaxError
from sbredis.rules._actions import Action, compile_action
from sbredis.rules._arithmetic import EvaluationError
from sbredis.rules._checks import check_filter, correlated, read_filter
from sbredis.rules._compile import CompiledCondition, Compiler
from sbredis.rules._index import Index, Wanted, split
from sbredis.rules._message_view import MessageView, PropertyView
from sbredis.rules._rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter
from sbredis.rules._sharing import Memory, Sharing
from sbredis.rules._syntax import Predicate
from sbredis.rules._values import Constant, Value

__all__ = ["Complaints", "JudgedCopy", "RuleBook"]

_log = logging.getLogger("sbredis.rules")

_LONGEST_NAME = 64
_LONGEST_ERROR = 1024
"""The largest length of an error. At this length it fits into an application property, so the copy can be sent on."""

_UNCHANGED: Final[Mapping[str, Constant]] = MappingProxyType({})


class JudgedCopy(NamedTuple):
    """A copy of a message for a subscription."""

    subscription: int
    """The index of the subscription in the list from which the book was made."""
    rule: str | None
    """The rule that made it; ``None`` for the plain copy, which all matching rules without an action make together."""
    system: Mapping[str, Constant] = _UNCHANGED
    """The system properties that an action changed, under their canonical names; ``None`` for a removed property."""
    user: Mapping[str, Value] | None = None
    """All application properties after the action, with ``RuleName``; ``None`` if no action changed them."""
    error: str | None = None
    """Why the rule could not be applied. Such a copy goes to the dead-letter queue."""


class _BookedRule:
    """A rule with its position in the book."""

    __slots__ = ("action", "condition", "dead_letters", "plain", "position", "rule", "subscription")

    def __init__(self, position: int, rule: Rule, plain: JudgedCopy, *, dead_letters: bool) -> None:
        self.position = position
        self.subscription = plain.subscription
        self.rule = rule.name
        self.dead_letters = dead_letters
        self.condition: CompiledCondition | None = None
        """The condition that is left to evaluate after the index has found the rule for a message."""
        self.action: Action | None = None
        self.plain = plain

    def failed(self, what: str, reason: object) -> JudgedCopy:
        shown = shortened(f"{reason}", _LONGEST_ERROR).encode(errors="backslashreplace").decode()
        start = f"The {what} of rule {shortened(self.rule, _LONGEST_NAME)!r} failed: "
        return JudgedCopy(
            self.subscription, self.rule, error=f"{start}{shortened(shown, _LONGEST_ERROR - len(start) - 1)}."
        )


_position = attrgetter("position")


class RuleBook:
    """All rules of a topic, compiled once.

    ``subscriptions`` has the rules of each subscription, and a flag. With the flag, the subscription dead-letters a
    message if one of the rules cannot be evaluated on it. ``names`` are the names of the subscriptions in the log.
    ``complaints`` remembers the problems that were already logged.

    A rule may be unusable, because another release may have stored it. This does not affect the other rules: an
    unusable filter fails on every message, and an unusable action on every message that its filter matches.

    A book does not change, and any number of threads may use it.
    """

    def __init__(
        self,
        subscriptions: Sequence[tuple[Sequence[Rule], bool]],
        names: Sequence[str] | None = None,
        complaints: Complaints | None = None,
    ) -> None:
        self._names = names
        self._complaints = Complaints() if complaints is None else complaints
        booked_rules: list[tuple[Wanted | None, _BookedRule]] = []
        compiling = _Compiling(self._unusable)
        position = 0
        for subscription, (rules, dead_letters) in enumerate(subscriptions):
            plain = JudgedCopy(subscription, None)
            for rule in rules:
                booked = _BookedRule(position, rule, plain, dead_letters=dead_letters)
                position += 1
                booked_rules.append((compiling.read(rule, booked), booked))
        self._needs_memory = compiling.finish()
        indexed: list[tuple[Wanted, _BookedRule]] = []
        self._always: list[_BookedRule] = []
        for wanted, booked in booked_rules:
            if booked not in compiling.unusable:
                self._complaints.usable(self._name(booked), booked.rule)
            if booked in compiling.unusable:
                self._always.append(booked)
            elif wanted:
                indexed.append((wanted, booked))
            elif wanted is not None:
                self._always.append(booked)
        self._index = Index(indexed) if indexed else None

    def judge(self, facts: MessageView) -> list[JudgedCopy]:
        """Return the copies of a message: subscription by subscription, in the order of their rules.

        All matching rules of a subscription that have no action make one plain copy, which comes at the position of the
        first of these rules. Each matching rule with an action makes a copy of its own. A rule that fails makes a copy
        with an ``error`` if the subscription dead-letters such messages; otherwise it makes no copy. The other rules
        are not affected.
        """
        found = [*self._always]
        index = self._index
        if index is not None:
            index.find(facts, found)
            if len(found) > 1:
                found.sort(key=_position)
        seen: PropertyView = Memory(facts) if self._needs_memory and found else facts
        copies: list[JudgedCopy] = []
        plain = -1  # the last subscription for which a plain copy was made
        for booked in found:
            action = booked.action
            if action is None and booked.subscription == plain and not booked.dead_letters:
                continue
            condition = booked.condition
            if condition is not None:
                try:
                    if condition(seen) is not True:
                        continue
                except EvaluationError as error:
                    if booked.dead_letters:
                        copies.append(booked.failed("filter", error))
                    continue
                except Exception as error:  # noqa: BLE001 -- a defect of one rule must not affect the others
                    self._broke(booked, "filter", error, copies)
                    continue
            if action is not None:
                self._act(booked, action, facts, copies)
            elif booked.subscription != plain:
                plain = booked.subscription
                copies.append(booked.plain)
        return copies

    def _act(self, booked: _BookedRule, action: Action, facts: MessageView, copies: list[JudgedCopy]) -> None:
        try:
            changed = action(facts)
        except EvaluationError as error:
            if booked.dead_letters:
                copies.append(booked.failed("action", error))
            return
        except Exception as error:  # noqa: BLE001 -- as for filters
            self._broke(booked, "action", error, copies)
            return
        copies.append(JudgedCopy(booked.subscription, booked.rule, changed.system, changed.user))

    def _broke(self, booked: _BookedRule, what: str, error: Exception, copies: list[JudgedCopy]) -> None:
        self._complaints.defect(self._name(booked), booked.rule, what, error)
        if booked.dead_letters:
            copies.append(booked.failed(what, f"a defect in sbredis: {_why(error)}"))

    def _unusable(self, booked: _BookedRule, what: str, reason: str) -> None:
        self._complaints.unusable(self._name(booked), booked.rule, what, reason)

    def _name(self, booked: _BookedRule) -> str:
        return f"subscription {booked.subscription}" if self._names is None else self._names[booked.subscription]


class _Compiling:
    """Compiles filters to conditions. All filters are read before the first is compiled, to find their common parts.

    An unusable filter or action becomes a function that fails, and ``tell`` is called with the reason.
    """

    def __init__(self, tell: Callable[[_BookedRule, str, str], None]) -> None:
        self._tell = tell
        self._sharing = Sharing()
        self._read: list[tuple[_BookedRule, Compiler, list[Predicate]]] = []
        self.unusable: set[_BookedRule] = set()
        """The rules whose filter fails on every message."""

    def read(self, rule: Rule, booked: _BookedRule) -> Wanted | None:
        """Read a rule. Returns the equalities for the index; ``None`` for a filter that no message matches."""
        if rule.action is not None:
            try:
                booked.action = compile_action(rule.action, rule.name)
            except Exception as error:  # noqa: BLE001 -- no error may affect the other rules
                booked.action = _failing(error)
                self._tell(booked, "action", _why(error))
        try:
            return self._filter(rule.filter, booked)
        except Exception as error:  # noqa: BLE001 -- likewise
            self._refuse(booked, error)
            return None

    def _refuse(self, booked: _BookedRule, error: Exception) -> None:
        booked.condition = _failing(error)
        self.unusable.add(booked)
        self._tell(booked, "filter", _why(error))

    def _filter(self, given: Filter, booked: _BookedRule) -> Wanted | None:
        if isinstance(given, SqlFilter):
            predicate, parameters = read_filter(given)
            compiler = Compiler(given.text, parameters, self._sharing)
            wanted, left = split(predicate, compiler)
            if left:
                self._read.append((booked, compiler, left))  # first: `Sharing.read` requires that the list stays alive
                self._sharing.read(left, compiler.constant, wanted)
            return wanted
        if isinstance(given, CorrelationFilter):
            return correlated(given)
        check_filter(given)
        return None if isinstance(given, FalseFilter) else {}

    def finish(self) -> bool:
        """Give the rules their conditions. Returns whether filters share parts."""
        for booked, compiler, left in self._read:
            if booked not in self.unusable:
                try:
                    booked.condition = compiler.topmost(left)
                except Exception as error:  # noqa: BLE001 -- as in read
                    self._refuse(booked, error)
        return self._sharing.any


def _failing(error: Exception) -> Callable[[PropertyView], NoReturn]:
    """Return the function that replaces an unusable filter or action: it always fails."""
    reason = f"it cannot be used: {_why(error)}"

    def fail(seen: PropertyView) -> NoReturn:  # noqa: ARG001 -- as all conditions and actions
        raise EvaluationError(reason)

    return fail


def _why(error: Exception) -> str:
    """Return the text of an error in a rule.

    If it is not a mistake of the rule's author, the text names its class too.
    """
    if isinstance(error, RuleSyntaxError):
        return error.message  # `str(error)` would also contain the notes about the call
    return str(error) if type(error) in {TypeError, ValueError} else f"{type(error).__name__}: {error}"


# -- the log of rules that cannot be used, or that fail because of a defect --------------------------------------------


class Complaints:
    """Remembers the problems that were logged, so that each is logged once for all messages and all books.

    Any number of threads may use it.
    """

    def __init__(self) -> None:
        self._unusable: set[tuple[str, str, str, str]] = set()
        self._defects: set[tuple[str, str, str, str]] = set()

    def unusable(self, subscription: str, rule: str, what: str, reason: str) -> None:
        """Log that a filter or an action cannot be compiled."""
        if _is_first(self._unusable, (subscription, rule.lower(), what, reason)):
            _log.error(
                "the %s of rule %r of %s cannot be used, and fails on every message that reaches it: %s",
                *(what, rule, subscription, reason),
            )

    def defect(self, subscription: str, rule: str, what: str, error: Exception) -> None:
        """Log that a filter or an action failed on a message because of a defect, with the traceback."""
        if _is_first(self._defects, (subscription, rule, what, type(error).__name__)):
            _log.error("the %s of rule %r of %s failed because of a defect", what, rule, subscription, exc_info=error)

    def usable(self, subscription: str, rule: str) -> None:
        """Forget that the filter of a rule was unusable, so that it is logged again if it becomes unusable again."""
        if self._unusable:
            mine = subscription, rule.lower(), "filter"
            self._unusable = {key for key in self._unusable if key[:3] != mine}


def _is_first(said: set[tuple[str, str, str, str]], key: tuple[str, str, str, str]) -> bool:
    if key in said:
        return False
    said.add(key)
    return True
