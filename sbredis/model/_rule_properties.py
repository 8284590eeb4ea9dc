"""The rules of subscriptions as an application sets and reads them: filters, actions, and rules that have both.

Filters and actions are plain values. They are checked when a rule is used, before anything is sent. Then a
:class:`~sbredis.exceptions.RuleSyntaxError` says where the text is wrong, and what is valid there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypedDict, Unpack, cast, overload
from uuid import UUID

from sbredis import rules
from sbredis._public import public
from sbredis.model._fields import Described, Field

if TYPE_CHECKING:
    from sbredis.rules import Filter, Rule, SqlAction, Value

__all__ = [
    "DEFAULT_RULE",
    "CorrelationRuleFilter",
    "FalseRuleFilter",
    "RuleFilter",
    "RuleOptions",
    "RuleProperties",
    "RuleValue",
    "SqlRuleAction",
    "SqlRuleFilter",
    "TrueRuleFilter",
    "rule_created",
    "rule_revised",
    "rule_shown",
]

RuleValue: TypeAlias = str | int | float | Decimal | bool | bytes | datetime | timedelta | UUID
"""The types of a parameter, or of a property that a filter compares."""

DEFAULT_RULE = "$Default"
"""The name of the rule that a new subscription has. That rule matches every message."""


class _Comparable:
    """A filter or an action.

    It is equal to another object of its class with the same fields, and its fields can be assigned.
    """

    __slots__ = ()
    _COMPARED: ClassVar[tuple[str, ...]]
    """The names of the fields."""

    def _parts(self) -> Mapping[str, object]:
        """Return the fields. An empty mapping counts as ``None``."""
        values = {name: getattr(self, name) for name in self._COMPARED}
        return {name: None if value == {} else value for name, value in values.items()}

    def __eq__(self, other: object) -> bool:
        return (
            self._parts() == other._parts()
            if isinstance(other, _Comparable) and type(other) is type(self)
            else NotImplemented
        )

    __hash__ = None  # type: ignore[assignment]  # a mutable object has no hash

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value!r}" for name, value in self._parts().items() if value is not None)
        return f"{type(self).__name__}({parts})"


class _Sql(_Comparable):
    """A text in the language of rules, and the values of its ``@parameters``."""

    __slots__ = ("parameters", "sql_expression")
    _COMPARED: ClassVar[tuple[str, ...]] = ("sql_expression", "parameters")

    def __init__(self, sql_expression: str | None = None, parameters: Mapping[str, RuleValue] | None = None) -> None:
        self.sql_expression = sql_expression
        """The text, of up to 1024 characters."""
        self.parameters = parameters
        """The values of its parameters, by their names with the ``@``."""


@public
class SqlRuleFilter(_Sql):
    """Matches messages for which an expression is true: ``SqlRuleFilter("colour = 'red' AND sys.Label LIKE 'a%'")``.

    With parameters: ``SqlRuleFilter("price > @least", {"@least": 10})``.
    """

    __slots__ = ()


class TrueRuleFilter(SqlRuleFilter):
    """Matches every message."""

    __slots__ = ()
    _EXPRESSION: ClassVar[str] = "1=1"

    def __init__(self) -> None:
        super().__init__(self._EXPRESSION)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FalseRuleFilter(SqlRuleFilter):
    """Matches no message."""

    __slots__ = ()
    _EXPRESSION: ClassVar[str] = "1>1"

    def __init__(self) -> None:
        super().__init__(self._EXPRESSION)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CorrelationRuleFilter(_Comparable):
    """Matches messages that have all the properties given here, with equal values. The case of letters matters.

    ``label`` is the ``subject`` of messages; ``properties`` are application properties.
    """

    __slots__ = _COMPARED = (
        "correlation_id",
        "message_id",
        "to",
        "reply_to",
        "label",
        "session_id",
        "reply_to_session_id",
        "content_type",
        "properties",
    )

    def __init__(
        self,
        *,
        correlation_id: str | None = None,
        message_id: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        label: str | None = None,
        session_id: str | None = None,
        reply_to_session_id: str | None = None,
        content_type: str | None = None,
        properties: Mapping[str, RuleValue] | None = None,
    ) -> None:
        self.correlation_id = correlation_id
        self.message_id = message_id
        self.to = to
        self.reply_to = reply_to
        self.label = label
        self.session_id = session_id
        self.reply_to_session_id = reply_to_session_id
        self.content_type = content_type
        self.properties = properties


@public
class SqlRuleAction(_Sql):
    """Changes a rule's copy of each message that it matches: ``SqlRuleAction("SET urgent = true; REMOVE colour")``."""

    __slots__ = ()


RuleFilter: TypeAlias = SqlRuleFilter | CorrelationRuleFilter


class _FilterField(Field[RuleFilter, RuleFilter]):
    @overload
    def __get__(self, holder: None, _: type) -> Self: ...
    @overload
    def __get__(self, holder: Described, _: type) -> RuleFilter: ...
    def __get__(self, holder: Described | None, _: type) -> Self | RuleFilter:
        if holder is None:
            return self._with_docs()
        found = super().__get__(holder, _)
        # a new object each time, so that no caller can change the default
        return TrueRuleFilter() if found is self.default else found

    def read(self, given: RuleFilter) -> RuleFilter:
        if not isinstance(given, (SqlRuleFilter, CorrelationRuleFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise self._wrong_type(
                given, "an SqlRuleFilter, a TrueRuleFilter, a FalseRuleFilter or a CorrelationRuleFilter"
            )
        return given


class _ActionField(Field[SqlRuleAction | None, SqlRuleAction]):
    def read(self, given: SqlRuleAction) -> SqlRuleAction:
        if not isinstance(given, SqlRuleAction):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise self._wrong_type(given, "an SqlRuleAction")
        return given


class _TimeField(Field[datetime | None, datetime]):
    def read(self, given: datetime) -> datetime:
        if not isinstance(given, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise self._wrong_type(given, "a datetime")
        return given


class _LeftOut:
    """The default of an argument for which ``None`` has a meaning."""

    def __repr__(self) -> str:
        return "<left out>"


_LEFT_OUT: Any = _LeftOut()


@public
class RuleProperties(Described):
    """The messages that a subscription receives by this rule, and the changes that the rule makes in its copies of
    them.
    """

    __slots__ = ()
    kind: ClassVar[str] = "Rule"

    filter = _FilterField(TrueRuleFilter())
    """The filter: ``TrueRuleFilter()`` by default, which matches all messages."""

    action = _ActionField(None)
    """The action: none by default. A rule with an action makes its own copy of each message."""

    created_at_utc = _TimeField(None, read_only=True)
    """The time of creation, by the server's clock. An assigned value is not sent."""

    def __init__(
        self,
        name: str,
        *,
        filter: RuleFilter | None = _LEFT_OUT,  # noqa: A002 -- Azure's name
        action: SqlRuleAction | None = _LEFT_OUT,
        created_at_utc: datetime | None = None,
    ) -> None:
        """An update does not change a value that is left out. ``None`` means the filter that matches all messages, or
        no action.
        """
        super().__init__(name, {"created_at_utc": created_at_utc})
        if filter is not _LEFT_OUT:
            self["filter"] = filter
        if action is not _LEFT_OUT:
            self["action"] = action

    def update(self, *given: Any, **named: Unpack[RuleOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


class RuleOptions(TypedDict, total=False):
    """The properties that a rule can be given; :class:`RuleProperties` explains each."""

    filter: RuleFilter | None
    action: SqlRuleAction | None


def rule_created(given: RuleProperties) -> Rule:
    """Make a new rule. Raises for a filter or an action that is not valid."""
    rule = rules.Rule(given.name, _to_filter(given.filter), _to_action(given.action))
    rules.check_filter(rule.filter)
    if rule.action is not None:
        rules.check_action(rule.action)
    return rule


def rule_revised(given: Mapping[str, object], before: Rule) -> Rule:
    """Return the rule with the given filter and action.

    If the filter or the action is not given, the rule keeps its own.
    """
    shown = rule_shown(before)
    for name in ("filter", "action"):
        if name in given:
            setattr(shown, name, given[name])
    return rule_created(shown)


def rule_shown(rule: Rule, created_at_utc: datetime | None = None) -> RuleProperties:
    """Return a rule as users see it."""
    action = None
    if rule.action is not None:
        action = SqlRuleAction(rule.action.text, dict(cast("Mapping[str, RuleValue]", rule.action.parameters)))
    values = {"filter": _from_filter(rule.filter), "action": action, "created_at_utc": created_at_utc}
    return RuleProperties.shown(rule.name, values)


# -- conversion to and from the language of rules ----------------------------------------------------------------------


def _to_filter(given: RuleFilter) -> Filter:
    if isinstance(given, CorrelationRuleFilter):
        return rules.CorrelationFilter(
            correlation_id=given.correlation_id,
            message_id=given.message_id,
            to=given.to,
            reply_to=given.reply_to,
            subject=given.label,
            session_id=given.session_id,
            reply_to_session_id=given.reply_to_session_id,
            content_type=given.content_type,
            properties=cast(
                "Mapping[str, Value]", given.properties or {}
            ),  # a value of a wrong type is refused when the rule is checked
        )
    if isinstance(given, TrueRuleFilter | FalseRuleFilter):
        kind = TrueRuleFilter if isinstance(given, TrueRuleFilter) else FalseRuleFilter
        if given != kind():
            raise ValueError(
                f"a {kind.__name__} has a fixed expression: for {given.sql_expression!r} use an SqlRuleFilter"
            )
        return rules.TrueFilter() if kind is TrueRuleFilter else rules.FalseFilter()
    return rules.SqlFilter(
        cast("str", given.sql_expression), given.parameters or {}
    )  # a value that is not text is refused when the rule is checked


def _to_action(given: SqlRuleAction | None) -> SqlAction | None:
    return None if given is None else rules.SqlAction(cast("str", given.sql_expression), given.parameters or {})


def _from_filter(kept: Filter) -> RuleFilter:
    if isinstance(kept, rules.CorrelationFilter):
        return CorrelationRuleFilter(
            correlation_id=kept.correlation_id,
            message_id=kept.message_id,
            to=kept.to,
            reply_to=kept.reply_to,
            label=kept.subject,
            session_id=kept.session_id,
            reply_to_session_id=kept.reply_to_session_id,
            content_type=kept.content_type,
            properties=dict(cast("Mapping[str, RuleValue]", kept.properties)),
        )
    if isinstance(kept, rules.SqlFilter):
        return SqlRuleFilter(kept.text, dict(cast("Mapping[str, RuleValue]", kept.parameters)))
    return TrueRuleFilter() if isinstance(kept, rules.TrueFilter) else FalseRuleFilter()
