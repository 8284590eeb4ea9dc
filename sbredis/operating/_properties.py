"""The values of properties as people write them: in options, in files and in results. Pure.

A value is written with the types of JSON: a duration is text such as ``1h30m`` or ``none``, a choice is its name, and a
filter is a text or a mapping. Reading a written value gives the same value again.
"""

from __future__ import annotations

import json
from datetime import timedelta
from enum import Enum
from typing import Any, cast

from sbredis.model import (
    AuthorizationRule,
    Choice,
    CorrelationRuleFilter,
    Duration,
    Field,
    Flag,
    ListOf,
    SqlRuleAction,
    SqlRuleFilter,
    Whole,
    WholeOrNone,
    rule_as_kept,
)
from sbredis.operating._filters import written_action, written_filter
from sbredis.operating._values import NO_LIMIT, duration_of, duration_text

__all__ = ["read_text", "read_value", "same_value", "written"]


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
    if isinstance(field, Whole | WholeOrNone):
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
