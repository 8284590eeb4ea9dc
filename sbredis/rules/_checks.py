"""Checks of rules: before a rule is stored, and again when it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from sbredis._quoting import quoted
from sbredis.rules._parser import RuleParser
from sbredis.rules._rules import (
    CORRELATED,
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlAction,
    SqlFilter,
    TrueFilter,
    UnreadableFilter,
)
from sbredis.rules._syntax import Parameter, Predicate, SetTo, Statement
from sbredis.rules._tokens import wrong
from sbredis.rules._values import Constant, as_constant, expressible

__all__ = [
    "LONGEST",
    "MOST_STATEMENTS",
    "check_action",
    "check_filter",
    "correlated",
    "read_action",
    "read_filter",
]

LONGEST = 1024
"""The largest number of characters of a filter or an action."""
MOST_STATEMENTS = 32
"""The largest number of statements of an action."""


def check_filter(filter: Filter) -> None:  # noqa: A002 -- it is called so everywhere
    """Refuse a filter that cannot be used.

    Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the text has a syntax error or uses a parameter that is not
    given. Raises :class:`ValueError` if a limit is exceeded, a value is out of range, or a correlation filter has no
    conditions; and :class:`TypeError` for a value of a wrong type.
    """
    given = cast("object", filter)
    if isinstance(given, SqlFilter):
        read_filter(given)
    elif isinstance(given, CorrelationFilter):
        correlated(given)
    elif isinstance(given, UnreadableFilter):
        raise ValueError(given.reason)  # noqa: TRY004 -- bad data, of the right type
    elif not isinstance(given, TrueFilter | FalseFilter):
        raise TypeError(
            f"a filter must be a SqlFilter, CorrelationFilter, TrueFilter or FalseFilter, not {type(given).__name__}"
        )


def check_action(action: SqlAction) -> None:
    """Refuse an action that cannot be used. Raises the errors of :func:`check_filter`.

    This also refuses an action that sets an application property to a duration, because it would fail on every message.
    A rule that was stored before this check existed still fails in this way.
    """
    given = cast("object", action)
    if not isinstance(given, SqlAction):
        raise TypeError(f"an action must be a SqlAction, not {type(given).__name__}")
    statements, parameters = read_action(given)
    for statement in statements:
        match statement:
            case SetTo(target, Parameter(name, at)) if not target.system and isinstance(parameters[name], timedelta):
                raise wrong(given.text, at, f"@{name} is a duration, but an application property cannot be one")
            case _:
                pass


def read_filter(given: SqlFilter) -> tuple[Predicate, dict[str, Constant]]:
    """Check and parse a filter: return its tree, and its parameters by their names in lower case."""
    parser = RuleParser(_text(given.text, "a filter"))
    predicate = parser.filter()
    return predicate, _parameters(given.text, given.parameters, parser.parameters)


def read_action(given: SqlAction) -> tuple[list[Statement], dict[str, Constant]]:
    """Check and parse an action: return its statements, and its parameters by their names in lower case."""
    parser = RuleParser(_text(given.text, "an action"))
    statements = parser.action()
    if len(statements) > MOST_STATEMENTS:
        raise ValueError(f"an action may have {MOST_STATEMENTS} statements, but this one has {len(statements)}")
    return statements, _parameters(given.text, given.parameters, parser.parameters)


def correlated(given: CorrelationFilter) -> dict[tuple[bool, str], Constant]:
    """Return the wanted values of a correlation filter.

    The key of each value is a pair: whether the property is a system property, and its name in lower case.
    """
    wanted: dict[tuple[bool, str], Constant] = {}
    for name, key in CORRELATED.items():
        value: object = getattr(given, name)
        if value is None:
            continue
        # Callers may call this property `label` or `subject`.
        what = f"{'label or subject' if name == 'subject' else name} of a correlation filter"
        if not isinstance(value, str):
            raise TypeError(f"{what} must be str or None, not {type(value).__name__}")
        wanted[True, key] = expressible(value, what)
    for name, value in _named(given.properties, "the properties of a correlation filter").items():
        what = f"property {quoted(name)} of a correlation filter"
        if not name:
            raise ValueError("a property of a correlation filter has an empty name")
        if value is None:
            raise TypeError(f"{what} cannot be None, because nothing is equal to null")
        if (False, name.lower()) in wanted:
            raise ValueError(f"{what} is given twice; upper and lower case are the same")
        wanted[False, name.lower()] = as_constant(value, what)
    if not wanted:
        raise ValueError("a correlation filter needs at least one property; use TrueRuleFilter to match all messages")
    return wanted


def _text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"the text of {what} must be str, not {type(text).__name__}")
    if len(text) > LONGEST:
        raise ValueError(f"{what} may have {LONGEST:,} characters, but this one has {len(text):,}")
    return expressible(text, f"the text of {what}")


def _named(mapping: object, what: str) -> dict[str, object]:
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(mapping).__name__}")
    named: dict[str, object] = {}
    for name, value in cast("Mapping[object, object]", mapping).items():
        if not isinstance(name, str):
            raise TypeError(f"the names of {what} must be str, not {type(name).__name__}")
        named[expressible(name, f"a name among {what}")] = value
    return named


def _parameters(text: str, given: object, used: list[Parameter]) -> dict[str, Constant]:
    parameters: dict[str, Constant] = {}
    for name, value in _named(given, "the parameters").items():
        key = name.removeprefix("@").lower()
        if not key:
            raise ValueError("a parameter has an empty name")
        if key in parameters:
            raise ValueError(f"parameter @{key} is given twice; upper and lower case are the same")
        parameters[key] = as_constant(value, f"parameter @{key}")
    for parameter in used:
        if parameter.name not in parameters:
            raise wrong(text, parameter.at, f"parameter @{parameter.name} has no value")
    return parameters
