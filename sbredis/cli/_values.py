"""The values of properties as people write them: in options, in files and in results. Pure.

A value is written with the types of JSON: a duration is text such as ``1h30m`` or ``none``, a choice is its name, and a
filter is a text or a mapping. Reading a written value gives the same value again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, cast

from sbredis.cli._durations import NO_LIMIT, duration_of, duration_text
from sbredis.cli._json_values import rule_value_from_json, rule_value_to_json
from sbredis.model import (
    AuthorizationRule,
    Choice,
    CorrelationRuleFilter,
    Duration,
    FalseRuleFilter,
    Field,
    Flag,
    ListOf,
    RuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
    Whole,
    rule_as_kept,
)

__all__ = [
    "filter_text",
    "read_action",
    "read_filter",
    "read_text",
    "read_value",
    "same_value",
    "sql_text",
    "written",
    "written_action",
    "written_filter",
]

_SQL_KEYS = {"sql", "parameters"}


# -- properties --------------------------------------------------------------------------------------------------------


def read_value(field: Field[Any, Any], given: object) -> Any:
    """Return the value of a property that was written as ``given``; ``None`` is the default.

    Raises :class:`ValueError` or :class:`TypeError` if it is of a wrong type or beyond a limit.
    """
    if given is None:
        return field.default
    plain: Any = given
    if isinstance(field, Duration):
        if not isinstance(given, str):
            raise TypeError(f"{field.name} must be a duration such as 30s, 5m, 1h30m or none")
        plain = timedelta.max if given.lower() == NO_LIMIT else duration_of(given)
    elif isinstance(field, Choice) and isinstance(given, str):
        plain = next((each.value for each in field.settable if each.value.lower() == given.lower()), given)
    value = field.read(plain)
    field.check(value)
    return value


def read_text(field: Field[Any, Any], text: str) -> Any:
    """Return the value of a property that was written as the text of an option. Raises as :func:`read_value`."""
    if isinstance(field, Whole):
        try:
            return read_value(field, int(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a whole number" if not text.lstrip("-").isdigit() else error) from None
    if isinstance(field, Flag):
        return read_value(field, text.lower() == "true")
    return read_value(field, json.loads(text) if isinstance(field, ListOf) else text)


def same_value(field: Field[Any, Any], one: Any, other: Any) -> bool:
    """Return whether two values of a property mean the same.

    The values in a filter or an action also need the same types: a rule distinguishes ``1`` from ``true``.
    """
    return field.same(one, other) and _value_types(one) == _value_types(other)


def _value_types(given: object) -> dict[str, type] | None:
    """Return the types of the values in a filter or an action, by their names; ``None`` for anything else."""
    if not isinstance(given, CorrelationRuleFilter | SqlRuleFilter | SqlRuleAction):
        return None
    values = given.properties if isinstance(given, CorrelationRuleFilter) else given.parameters
    return {name: type(value) for name, value in (values or {}).items()}


def written(value: object) -> Any:
    """Return a property's value as it is written."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, AuthorizationRule):
        return rule_as_kept(value)
    if isinstance(value, CorrelationRuleFilter | SqlRuleFilter):
        return written_filter(value)
    if isinstance(value, SqlRuleAction):
        return written_action(value)
    return [written(each) for each in cast("list[object]", value)] if isinstance(value, list) else value


# -- rules -------------------------------------------------------------------------------------------------------------


def written_filter(given: RuleFilter) -> Any:
    """Return a filter as it is written: an SQL text, ``True`` or ``False``, or a mapping."""
    if isinstance(given, TrueRuleFilter | FalseRuleFilter):
        return isinstance(given, TrueRuleFilter)
    if isinstance(given, SqlRuleFilter):
        return _written_sql(given)
    found: dict[str, Any] = {name: value for name, value in _compared(given).items() if value is not None}
    return found | ({"properties": _written_values(given.properties)} if given.properties else {})


def written_action(given: SqlRuleAction | None) -> Any:
    """Return an action as it is written: an SQL text, or a mapping if it has parameters."""
    return None if given is None else _written_sql(given)


def _written_sql(given: SqlRuleFilter | SqlRuleAction) -> Any:
    if given.parameters:
        return {"sql": given.sql_expression, "parameters": _written_values(given.parameters)}
    return given.sql_expression


def _compared(given: CorrelationRuleFilter) -> dict[str, str | None]:
    """Return the system properties that a filter compares, with their values."""
    return {name: getattr(given, name) for name in CorrelationRuleFilter.__slots__ if name != "properties"}


def _written_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and values as :func:`_read_values` reads them: a name may begin with ``$``."""
    return {name: rule_value_to_json(value) for name, value in values.items()}


def read_filter(given: object) -> RuleFilter:
    """Return the filter that is written like this. Raises :class:`ValueError` or :class:`TypeError` if it is not one.

    The SQL text and the types of values are not checked.
    """
    if given is True or given is None:
        return TrueRuleFilter()
    if given is False:
        return FalseRuleFilter()
    if not isinstance(given, Mapping):
        return SqlRuleFilter(*_read_sql(given, "filter"))
    named = cast("Mapping[str, Any]", given)
    if "sql" not in named:
        unknown = [str(name) for name in named if name not in CorrelationRuleFilter.__slots__]
        if unknown:
            known = ", ".join(CorrelationRuleFilter.__slots__)
            raise ValueError(f"a filter has no {unknown[0]!r}: it has sql and parameters, or some of {known}")
        if not named:
            raise ValueError("an empty filter matches nothing in particular: write true for all messages")
        compared: dict[str, Any] = dict(named)
        if "properties" in compared:
            compared["properties"] = _read_values(compared["properties"], "properties")
        return CorrelationRuleFilter(**compared)
    return SqlRuleFilter(*_read_sql(named, "filter"))


def read_action(given: object) -> SqlRuleAction | None:
    """Return the action that is written like this. Raises as :func:`read_filter`."""
    return None if given is None else SqlRuleAction(*_read_sql(given, "action"))


def _read_sql(given: object, what: str) -> tuple[str, Mapping[str, Any] | None]:
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Any]", given)
        unknown = [str(name) for name in named if name not in _SQL_KEYS]
        if unknown:
            raise ValueError(f"the {what} has no {unknown[0]!r}: it has sql and parameters")
        parameters = None if named.get("parameters") is None else _read_values(named["parameters"], "parameters")
        return _read_sql(named.get("sql"), what)[0], parameters
    if not isinstance(given, str):
        raise TypeError(f"the {what} must be an SQL text or a mapping, not {given!r}")
    return given, None


def _read_values(given: object, what: str) -> Mapping[str, Any]:
    """Read names and values; a type that JSON does not have is written as in messages."""
    if not isinstance(given, Mapping):
        raise TypeError(f"the {what} must be a mapping of names and values")
    return {str(name): rule_value_from_json(value) for name, value in cast("Mapping[object, Any]", given).items()}


def filter_text(given: RuleFilter) -> str:
    """Return a filter on one line."""
    if isinstance(given, TrueRuleFilter | FalseRuleFilter):
        return "all messages" if isinstance(given, TrueRuleFilter) else "no message"
    if isinstance(given, CorrelationRuleFilter):
        system = _compared(given)
        own = {f"user.{name}" if name in system else name: each for name, each in (given.properties or {}).items()}
        compared = [(name, value) for name, value in (*system.items(), *own.items()) if value is not None]
        return ", ".join(f"{name} = {_shown(value)}" for name, value in compared)
    return sql_text(given)


def sql_text(given: SqlRuleFilter | SqlRuleAction) -> str:
    """Return an SQL text with its parameters, on one line."""
    used = ", ".join(f"{name} = {_shown(value)}" for name, value in (given.parameters or {}).items())
    return " ".join((given.sql_expression or "").split()) + (f"  ({used})" if used else "")


def _shown(value: object) -> str:
    return str(rule_value_to_json(value)["$duration"]) if isinstance(value, timedelta) else repr(value)
