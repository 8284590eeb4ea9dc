"""Rules of subscriptions as they are set and shown: filters, actions, and the rule that has both.

Filters and actions are values that say what is meant. Whether that is possible is found when a rule is used, before
anything is sent: a :class:`~sbredis.exceptions.RuleSyntaxError` says where the text is wrong and what could stand
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Self, TypeAlias, TypedDict, Unpack, cast, overload
from uuid import UUID

from sbredis._public import public
from sbredis.model._fields import Described, Field
from sbredis.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    Value,
    check_action,
    check_filter,
)

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
"""What a parameter, or a property that is compared, may be."""

DEFAULT_RULE = "$Default"
"""The rule that a new subscription has: it takes everything."""


class _Said:
    """A filter or an action: what it says can be assigned anew, and makes it what it is."""

    __slots__ = ()

    def _says(self) -> Mapping[str, object]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return (
            self._says() == other._says() if isinstance(other, _Said) and type(other) is type(self) else NotImplemented
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._says().items() if value is not None)
        return f"{type(self).__name__}({said})"


class _Sql(_Said):
    """A text in the language of rules, and the values of its ``@parameters``."""

    __slots__ = ("parameters", "sql_expression")

    def __init__(self, sql_expression: str | None = None, parameters: Mapping[str, RuleValue] | None = None) -> None:
        self.sql_expression = sql_expression
        """The text, of up to 1024 characters."""
        self.parameters = parameters
        """The values of its parameters, by their names with the ``@``."""

    def _says(self) -> Mapping[str, object]:
        return {"sql_expression": self.sql_expression, "parameters": self.parameters or None}


@public
class SqlRuleFilter(_Sql):
    """Takes the messages for which an expression is true: ``SqlRuleFilter("colour = 'red' AND sys.Label LIKE 'a%'")``.

    With parameters: ``SqlRuleFilter("price > @least", {"@least": 10})``.
    """

    __slots__ = ()


class TrueRuleFilter(SqlRuleFilter):
    """Takes every message."""

    __slots__ = ()
    _EXPRESSION: ClassVar[str] = "1=1"

    def __init__(self) -> None:
        super().__init__(self._EXPRESSION)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FalseRuleFilter(SqlRuleFilter):
    """Takes no message."""

    __slots__ = ()
    _EXPRESSION: ClassVar[str] = "1>1"

    def __init__(self) -> None:
        super().__init__(self._EXPRESSION)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CorrelationRuleFilter(_Said):
    """Takes the messages whose properties are equal to all that are given here; the case of letters matters.

    ``label`` is what messages call ``subject``; ``properties`` are application properties.
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

    def _says(self) -> Mapping[str, object]:
        said = {name: getattr(self, name) for name in self._COMPARED}
        return {**said, "properties": self.properties or None}


@public
class SqlRuleAction(_Sql):
    """Changes the copy of a message that a rule takes: ``SqlRuleAction("SET urgent = true; REMOVE colour")``."""

    __slots__ = ()


RuleFilter: TypeAlias = SqlRuleFilter | CorrelationRuleFilter


class _FilterOf(Field[RuleFilter, RuleFilter]):
    @overload
    def __get__(self, holder: None, _: type) -> Self: ...
    @overload
    def __get__(self, holder: Described, _: type) -> RuleFilter: ...
    def __get__(self, holder: Described | None, _: type) -> Self | RuleFilter:
        if holder is None:
            return self._with_docs()
        found = super().__get__(holder, _)
        return TrueRuleFilter() if found is self.default else found  # the default is nobody's to change

    def read(self, given: RuleFilter) -> RuleFilter:
        if not isinstance(given, (SqlRuleFilter, CorrelationRuleFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise self._wrong_type(
                given, "an SqlRuleFilter, a TrueRuleFilter, a FalseRuleFilter or a CorrelationRuleFilter"
            )
        return given


class _ActionOf(Field[SqlRuleAction | None, SqlRuleAction]):
    def read(self, given: SqlRuleAction) -> SqlRuleAction:
        if not isinstance(given, SqlRuleAction):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise self._wrong_type(given, "an SqlRuleAction")
        return given


class _Moment(Field[datetime | None, datetime]):
    def read(self, given: datetime) -> datetime:
        if not isinstance(given, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise self._wrong_type(given, "a datetime")
        return given


class _Unsaid:
    """Stands where nothing is said, since ``None`` says something."""

    def __repr__(self) -> str:
        return "<left out>"


_UNSAID: Any = _Unsaid()


@public
class RuleProperties(Described):
    """Which messages a subscription takes, and what it does to its copies of them."""

    __slots__ = ()
    kind: ClassVar[str] = "Rule"

    filter = _FilterOf(TrueRuleFilter())
    """Which messages it takes: ``TrueRuleFilter()`` unless said, which takes all."""

    action = _ActionOf(None)
    """What it does to the copies: none unless said. A rule with an action has a copy of its own of each message."""

    created_at_utc = _Moment(None, read_only=True)
    """When it was created, by the server's clock. What is assigned to it is not sent."""

    def __init__(
        self,
        name: str,
        *,
        filter: RuleFilter | None = _UNSAID,  # noqa: A002 -- Azure's name
        action: SqlRuleAction | None = _UNSAID,
        created_at_utc: datetime | None = None,
    ) -> None:
        """What is left out counts as not given, and an update leaves it as it is; ``None`` is all, and no action."""
        super().__init__(name, {"created_at_utc": created_at_utc})
        if filter is not _UNSAID:
            self["filter"] = filter
        if action is not _UNSAID:
            self["action"] = action

    def update(self, *given: Any, **named: Unpack[RuleOptions]) -> None:
        """Assign several properties, as to a dictionary."""
        self._assign(given, named)


class RuleOptions(TypedDict, total=False):
    """What a rule can be given: a filter and an action, each as in :class:`RuleProperties`."""

    filter: RuleFilter | None
    action: SqlRuleAction | None


def rule_created(given: RuleProperties) -> Rule:
    """A new rule; raises for a filter or an action that cannot be."""
    rule = Rule(given.name, _filter_meant(given.filter), _action_meant(given.action))
    check_filter(rule.filter)
    if rule.action is not None:
        check_action(rule.action)
    return rule


def rule_revised(given: Mapping[str, object], before: Rule) -> Rule:
    """The rule with this filter and this action, and where they are not given with the ones that it has."""
    shown = rule_shown(before)
    for name in ("filter", "action"):
        if name in given:
            setattr(shown, name, given[name])
    return rule_created(shown)


def rule_shown(rule: Rule, created_at_utc: datetime | None = None) -> RuleProperties:
    """A rule as it is shown."""
    action = None
    if rule.action is not None:
        action = SqlRuleAction(rule.action.text, dict(cast("Mapping[str, RuleValue]", rule.action.parameters)))
    values = {"filter": _filter_shown(rule.filter), "action": action, "created_at_utc": created_at_utc}
    return RuleProperties.shown(rule.name, values)


# -- what the language of rules calls these ----------------------------------------------------------------------------


def _filter_meant(given: RuleFilter) -> Filter:
    if isinstance(given, CorrelationRuleFilter):
        return CorrelationFilter(
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
            ),  # what is none is refused when it is checked
        )
    for kind, meant in _CONSTANT.items():
        if isinstance(given, kind):
            if given != kind():
                raise ValueError(f"a {kind.__name__} is what it is: for {given.sql_expression!r} take an SqlRuleFilter")
            return meant
    return SqlFilter(
        cast("str", given.sql_expression), given.parameters or {}
    )  # what is no text is refused when it is checked


def _action_meant(given: SqlRuleAction | None) -> SqlAction | None:
    return None if given is None else SqlAction(cast("str", given.sql_expression), given.parameters or {})


def _filter_shown(kept: Filter) -> RuleFilter:
    if isinstance(kept, CorrelationFilter):
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
    if isinstance(kept, SqlFilter):
        return SqlRuleFilter(kept.text, dict(cast("Mapping[str, RuleValue]", kept.parameters)))
    return TrueRuleFilter() if isinstance(kept, TrueFilter) else FalseRuleFilter()


_CONSTANT: dict[type[TrueRuleFilter | FalseRuleFilter], Filter] = {
    TrueRuleFilter: TrueFilter(),
    FalseRuleFilter: FalseFilter(),
}
