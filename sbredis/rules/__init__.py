"""The language of rules: filters that choose messages, and actions that change the copies. It does no I/O.

``docs/rules.md`` defines the language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.rules._book import Complaints, JudgedCopy, RuleBook
    from sbredis.rules._checks import check_action, check_filter
    from sbredis.rules._message_view import SETTABLE, SYSTEM_PROPERTIES, MessageView
    from sbredis.rules._rules import (
        CorrelationFilter,
        FalseFilter,
        Filter,
        Rule,
        SqlAction,
        SqlFilter,
        TrueFilter,
        UnreadableFilter,
    )
    from sbredis.rules._stored import rule_from_json, rule_to_json
    from sbredis.rules._values import Constant, Value

__all__ = [
    "SETTABLE",
    "SYSTEM_PROPERTIES",
    "Complaints",
    "Constant",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "JudgedCopy",
    "MessageView",
    "Rule",
    "RuleBook",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "UnreadableFilter",
    "Value",
    "check_action",
    "check_filter",
    "rule_from_json",
    "rule_to_json",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_book": ("Complaints", "JudgedCopy", "RuleBook"),
            "_checks": ("check_action", "check_filter"),
            "_message_view": ("SETTABLE", "SYSTEM_PROPERTIES", "MessageView"),
            "_rules": (
                "CorrelationFilter",
                "FalseFilter",
                "Filter",
                "Rule",
                "SqlAction",
                "SqlFilter",
                "TrueFilter",
                "UnreadableFilter",
            ),
            "_stored": ("rule_from_json", "rule_to_json"),
            "_values": ("Constant", "Value"),
        },
    )
