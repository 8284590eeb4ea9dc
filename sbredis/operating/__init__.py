"""The parts that tools for operators share: plans, findings, facts, messages as lines. They print nothing.

The command line uses them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbredis.operating._browsing import (
        PAGE,
        Matches,
        WrongUseError,
        browse,
        choice_of,
        dead_letters_of,
        entity_of,
        first_of,
        found_by_number,
        names_dead_letters,
        source_of,
    )
    from sbredis.operating._declared import LONGEST_FILE, DeclaredEntity, MistakesError, read_declarations
    from sbredis.operating._exporting import export_text
    from sbredis.operating._facts import EntityFacts, read_entities
    from sbredis.operating._filters import (
        filter_text,
        read_action,
        read_filter,
        sql_text,
        under_mistake,
        written_action,
        written_filter,
    )
    from sbredis.operating._findings import (
        Finding,
        Severity,
        findings_of_entities,
        findings_of_servers,
        form_of,
        gathered,
        nodes_in,
        version_of,
    )
    from sbredis.operating._inspecting import MessageCount, existing_in, held_in, inspect_entity, messages_in
    from sbredis.operating._kinds import (
        KINDS,
        QUEUE,
        RULE,
        SUBSCRIPTION,
        TOPIC,
        EntityKind,
        Existing,
        Key,
        Names,
        first_sentence,
        path_of,
        plain_text,
    )
    from sbredis.operating._measures import STATES, Measures, json_of, prometheus_of
    from sbredis.operating._message_lines import bytes_field, fields_of, message_of, read_line, shown_body
    from sbredis.operating._planning import (
        ChangePlan,
        PlanStep,
        make_plan,
        plan_json,
        plan_lines,
        plan_summary,
        undeclared,
    )
    from sbredis.operating._properties import read_text, read_value, same_value, written
    from sbredis.operating._samples import Sample, Sight, gets_all, row_of
    from sbredis.operating._sampling import Sampler
    from sbredis.operating._values import (
        duration_of,
        duration_text,
        from_json,
        rule_value_from_json,
        to_json,
    )

__all__ = [
    "KINDS",
    "LONGEST_FILE",
    "PAGE",
    "QUEUE",
    "RULE",
    "STATES",
    "SUBSCRIPTION",
    "TOPIC",
    "ChangePlan",
    "DeclaredEntity",
    "EntityFacts",
    "EntityKind",
    "Existing",
    "Finding",
    "Key",
    "Matches",
    "Measures",
    "MessageCount",
    "MistakesError",
    "Names",
    "PlanStep",
    "Sample",
    "Sampler",
    "Severity",
    "Sight",
    "WrongUseError",
    "browse",
    "bytes_field",
    "choice_of",
    "dead_letters_of",
    "duration_of",
    "duration_text",
    "entity_of",
    "existing_in",
    "export_text",
    "fields_of",
    "filter_text",
    "findings_of_entities",
    "findings_of_servers",
    "first_of",
    "first_sentence",
    "form_of",
    "found_by_number",
    "from_json",
    "gathered",
    "gets_all",
    "held_in",
    "inspect_entity",
    "json_of",
    "make_plan",
    "message_of",
    "messages_in",
    "names_dead_letters",
    "nodes_in",
    "path_of",
    "plain_text",
    "plan_json",
    "plan_lines",
    "plan_summary",
    "prometheus_of",
    "read_action",
    "read_declarations",
    "read_entities",
    "read_filter",
    "read_line",
    "read_text",
    "read_value",
    "row_of",
    "rule_value_from_json",
    "same_value",
    "shown_body",
    "source_of",
    "sql_text",
    "to_json",
    "undeclared",
    "under_mistake",
    "version_of",
    "written",
    "written_action",
    "written_filter",
]

_MODULES = {
    "_browsing": (
        "PAGE",
        "Matches",
        "WrongUseError",
        "browse",
        "choice_of",
        "dead_letters_of",
        "entity_of",
        "first_of",
        "found_by_number",
        "names_dead_letters",
        "source_of",
    ),
    "_declared": ("LONGEST_FILE", "DeclaredEntity", "MistakesError", "read_declarations"),
    "_exporting": ("export_text",),
    "_facts": ("EntityFacts", "read_entities"),
    "_filters": (
        "filter_text",
        "read_action",
        "read_filter",
        "sql_text",
        "under_mistake",
        "written_action",
        "written_filter",
    ),
    "_findings": (
        "Finding",
        "Severity",
        "findings_of_entities",
        "findings_of_servers",
        "form_of",
        "gathered",
        "nodes_in",
        "version_of",
    ),
    "_inspecting": ("MessageCount", "existing_in", "held_in", "inspect_entity", "messages_in"),
    "_kinds": (
        "KINDS",
        "QUEUE",
        "RULE",
        "SUBSCRIPTION",
        "TOPIC",
        "EntityKind",
        "Existing",
        "Key",
        "Names",
        "first_sentence",
        "path_of",
        "plain_text",
    ),
    "_measures": ("STATES", "Measures", "json_of", "prometheus_of"),
    "_message_lines": ("bytes_field", "fields_of", "message_of", "read_line", "shown_body"),
    "_planning": ("ChangePlan", "PlanStep", "make_plan", "plan_json", "plan_lines", "plan_summary", "undeclared"),
    "_properties": ("read_text", "read_value", "same_value", "written"),
    "_samples": ("Sample", "Sight", "gets_all", "row_of"),
    "_sampling": ("Sampler",),
    "_values": ("duration_of", "duration_text", "from_json", "rule_value_from_json", "to_json"),
}
"""The names of each module. It is imported when one of them is used, so that a command imports only what it needs."""
_PLACES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(importlib.import_module(_PLACES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
