"""What the registry keeps of a rule, and the text in which it keeps it. Pure.

It is ``1 <kind> <stamp> <created> <description>``. What stands before the description is the scripts', which count the
filters of a topic; the description is JSON, as the folder ``rules`` makes it and reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, NoReturn

from sbredis._quoting import quoted
from sbredis.engine import name_key, rule_name
from sbredis.exceptions import DataLayoutError
from sbredis.rules import CorrelationFilter, FalseFilter, Rule, TrueFilter, rule_from_json, rule_to_json

__all__ = [
    "MAXIMUM_RULES",
    "MAXIMUM_RULE_BYTES",
    "KeptRule",
    "decode_rule",
    "encode_rule",
    "kind_of",
    "place_of",
    "require_rules",
    "rule_key",
]

MAXIMUM_RULE_BYTES = 64 * 1024
"""What a rule may weigh, as JSON."""

MAXIMUM_RULES = 1000
"""How many rules a subscription may be created with, and, as JSON, at most a MB of them. Others may follow."""

_MAXIMUM_BYTES = 1024 * 1024
_SHOWN = 60
_RECORD = re.compile(rb"1 [sct] (?P<stamp>[\w-]{12}) (?P<created>[0-9]{1,15}) (?P<description>\{.*\})", re.DOTALL)


class KeptRule(NamedTuple):
    """A rule as the registry knows it."""

    rule: Rule
    created_at: int
    """In ms since 1970, by the server's clock. A change of the rule leaves it as it is."""
    stamp: str
    """Of its last change: who wants to change this rule, and no later one, names it."""


def rule_key(name: str) -> str:
    """The form in which the names of rules are compared; :class:`ValueError` for what is no name of one."""
    return name_key(rule_name(name))


def place_of(path: str, rule: str) -> str:
    """Where a rule stands among all: behind its subscription's path, which ends before a blank as no name goes on."""
    return f"{name_key(path)} {rule_key(rule)}"


def kind_of(rule: Rule) -> Literal["s", "c", "t"]:
    """How a rule is counted: by its SQL filter, its correlation filter, or, where it looks at nothing, not at all."""
    if isinstance(rule.filter, (TrueFilter, FalseFilter)):
        return "t"
    return "c" if isinstance(rule.filter, CorrelationFilter) else "s"


def encode_rule(rule: Rule) -> str:
    """The JSON of a rule, with its fields in order; ASCII. :class:`ValueError` for one that is too large."""
    if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"a subscription has rules of sbredis.rules, not {type(rule).__name__}")
    rule_key(rule.name)
    text = json.dumps(rule_to_json(rule), sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > MAXIMUM_RULE_BYTES:
        raise ValueError(f"the rule {quoted(rule.name)} takes {len(text)} bytes; at most {MAXIMUM_RULE_BYTES} are kept")
    return text


def require_rules(rules: Iterable[Rule]) -> None:
    """Refuse, before anything is sent, rules that one subscription cannot be created with."""
    known: set[str] = set()
    size = 0
    for rule in rules:
        size += len(encode_rule(rule))
        if rule_key(rule.name) in known:
            raise ValueError(f"two rules are called {quoted(rule.name)}; names are compared without regard to case")
        known.add(rule_key(rule.name))
    if len(known) > MAXIMUM_RULES or size > _MAXIMUM_BYTES:
        raise ValueError(
            f"{len(known)} rules of {size} bytes; a subscription is created with at most {MAXIMUM_RULES} rules of "
            f"{_MAXIMUM_BYTES} bytes: create the others afterwards"
        )


def decode_rule(text: bytes) -> KeptRule:
    """A rule as the registry keeps it; :class:`~sbredis.exceptions.DataLayoutError` for what is none."""
    found = _RECORD.fullmatch(text)
    if not found:
        _unreadable(text, "it does not begin as a rule does")
    try:
        description: Any = json.loads(found["description"])
        return KeptRule(rule_from_json(description), int(found["created"]), found["stamp"].decode())
    except (ValueError, TypeError, KeyError) as error:
        _unreadable(text, str(error))


def _unreadable(text: bytes, why: str) -> NoReturn:
    raise DataLayoutError(
        f"The rule {text[:_SHOWN]!r}… of a subscription cannot be read: {why}. "
        "If a newer release of sbredis has written it, install that one."
    ) from None
