"""The options of rules: what a rule matches, and what it changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sbredis.cli._parameters import RULE_VALUE
from sbredis.model import CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter

__all__ = ["RULE_OPTIONS", "rule_properties"]

_COMPARED = [name for name in CorrelationRuleFilter.__slots__ if name != "properties"]


def _pairs(name: str, text: str) -> click.Option:
    metavar = "NAME=TEXT|NAME:=JSON"
    return click.Option([name], type=RULE_VALUE, metavar=metavar, multiple=True, help=f"{text} Repeatable.")


RULE_OPTIONS: Sequence[click.Parameter] = (
    click.Option(["--filter"], metavar="SQL", help='The messages to match, such as "priority >= 8".'),
    _pairs("--parameter", "The value of a @parameter of the filter, such as least:=8."),
    _pairs("--match", f"Match messages by a property: {', '.join(_COMPARED)}."),
    _pairs("--match-property", "Match messages by an application property, such as size:=3."),
    click.Option(["--match-all"], is_flag=True, help="Match all messages."),
    click.Option(["--match-none"], is_flag=True, help="Match no message."),
    click.Option(["--action"], metavar="SQL", help="What to change in the copy; an empty text removes the action."),
    _pairs("--action-parameter", "The value of a @parameter of the action."),
)


def rule_properties(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter and the action that the options set. Raises :class:`click.UsageError` if they contradict."""
    sql, action, compared = given["filter"], given["action"], dict(given["match"])
    by_property = dict(given["match_property"])
    if sum((sql is not None, bool(compared or by_property), given["match_all"], given["match_none"])) > 1:
        raise click.UsageError("Give one of --filter, --match with --match-property, --match-all and --match-none.")
    if given["parameter"] and sql is None:
        raise click.UsageError("--parameter needs --filter.")
    if given["action_parameter"] and not action:
        raise click.UsageError("--action-parameter needs --action.")
    if unknown := [name for name in compared if name not in _COMPARED]:
        raise click.UsageError(f"--match compares {', '.join(_COMPARED)}, and not {unknown[0]!r}.")
    found: dict[str, Any] = {}
    if sql is not None:
        found["filter"] = SqlRuleFilter(sql, _parameters(given["parameter"]))
    elif compared or by_property:
        found["filter"] = CorrelationRuleFilter(**compared, properties=by_property or None)
    elif given["match_all"] or given["match_none"]:
        found["filter"] = TrueRuleFilter() if given["match_all"] else FalseRuleFilter()
    if action is not None:
        found["action"] = SqlRuleAction(action, _parameters(given["action_parameter"])) if action else None
    return found


def _parameters(given: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    return {f"@{name.removeprefix('@')}": value for name, value in given} or None
