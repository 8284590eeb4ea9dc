"""A plan as text for people, and as JSON for programs. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from sbredis._counting import counted
from sbredis.cli._declared import DeclaredEntity
from sbredis.cli._kinds import path_of
from sbredis.cli._planning import ChangePlan, PlanStep
from sbredis.cli._values import written

__all__ = ["plan_json", "plan_lines", "plan_summary"]

_SIGNS = {"create": "+", "update": "~", "delete": "-"}


def plan_lines(plan: ChangePlan) -> Iterator[str]:
    """Return the lines of a plan: each step with its changes, and what is spared."""
    for step in plan.steps:
        yield f"{_SIGNS[step.action]} {step.kind.word} {step.path}"
        for change in step.changes:
            before = "" if step.action == "create" else f"{_shown(change.before)} -> "
            yield f"    {change.name}: {before}{_shown(change.after)}"
        for rule in step.rules or ():
            values = "; ".join(f"{name}: {_shown(value)}" for name, value in rule.properties.items())
            yield f"    rule {rule.names[-1]}" + (f" ({values})" if values else "")
    for spared in plan.spared:
        yield f"! {spared.kind.word} {path_of(spared.names)} is kept: {spared.reason}"
    yield plan_summary(plan)


def plan_summary(plan: ChangePlan) -> str:
    """Return one line with the number of steps."""
    if not plan.steps:
        return "no changes"
    counts = [(sum(step.action == action for step in plan.steps), action) for action in _SIGNS]
    return f"{counted(len(plan.steps), 'change')}: " + ", ".join(f"{count} to {action}" for count, action in counts)


def plan_json(plan: ChangePlan) -> dict[str, Any]:
    """Return a plan for programs."""
    spared = [{"kind": each.kind.word, "name": path_of(each.names), "reason": each.reason} for each in plan.spared]
    return {"changes": [_step_json(step) for step in plan.steps], "kept": spared}


def _step_json(step: PlanStep) -> dict[str, Any]:
    found: dict[str, Any] = {"action": step.action, "kind": step.kind.word, "name": step.path}
    if step.action != "delete":
        found["properties"] = {
            change.name: {"before": written(change.before), "after": written(change.after)} for change in step.changes
        }
    if step.rules is not None:
        found["rules"] = {rule.names[-1]: _rule_json(rule) for rule in step.rules}
    return found


def _rule_json(rule: DeclaredEntity) -> dict[str, Any]:
    return {name: written(value) for name, value in rule.properties.items()}


def _shown(value: object) -> str:
    plain = written(value)
    if plain is None or plain == []:
        return "nothing"
    if isinstance(plain, dict | list):
        return yaml.safe_dump(
            plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=sys.maxsize
        ).rstrip("\n")
    return {True: "true", False: "false"}[plain] if isinstance(plain, bool) else str(plain)
