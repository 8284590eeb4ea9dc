"""Filters and actions of rules as people write them, in options, in files and in results; where a mistake is. Pure.

A filter is written as a text or a mapping. Reading a written filter gives the same filter again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from sbredis.model import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from sbredis.operating._values import rule_value_from_json, rule_value_to_json

__all__ = [
    "filter_text",
    "read_action",
    "read_filter",
    "sql_text",
    "under_mistake",
    "written_action",
    "written_filter",
]

_SQL_KEYS = {"sql", "parameters"}
_SHOWN, _BEFORE_CARET = 100, 60
"""The width of the part of a long line that is shown, and the largest part of it before the caret."""
_LINE_END = re.compile(r"\r\n|\r|\n")


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


def under_mistake(text: str, line: int, column: int) -> str:
    """Return a line of a text with a caret under one of its characters. Both are counted from 1."""
    lines = _LINE_END.split(text)
    shown = "".join(each if each.isprintable() else " " for each in lines[min(line, len(lines)) - 1])
    start = at = min(column - 1, len(shown))
    left = _BEFORE_CARET
    while start and (left := left - _width(shown[start - 1])) >= 0:
        start -= 1
    end, left = start, _SHOWN
    while end < len(shown) and (left := left - _width(shown[end])) >= 0:
        end += 1
    return f"  {shown[start:end]}\n  {' ' * sum(map(_width, shown[start:at]))}^"


def _width(character: str) -> int:
    """Return the number of columns that a character takes on a terminal."""
    if unicodedata.category(character) in {"Mn", "Me"}:  # it is drawn over the character before it
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
