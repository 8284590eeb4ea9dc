"""The registry's record of a rule, and its text. Pure.

The record is ``1 <kind> <stamp> <created> <description>``. The scripts read the fields before the description, to count
the filters of a topic. The description is JSON, which the folder ``rules`` writes and reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from sbredis._quoting import quoted
from sbredis._unreadable import decodes, unreadable
from sbredis.engine import name_key, rule_name
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
"""The largest size of a rule, as JSON."""

MAXIMUM_RULES = 1000
"""The largest number of rules of a new subscription, in at most 1 MB of JSON. More rules may be added later."""

_MAXIMUM_BYTES = 1024 * 1024
_WHAT = "A rule of a subscription"
_RECORD = re.compile(rb"1 [sct] (?P<stamp>[\w-]{12}) (?P<created>[0-9]{1,15}) (?P<description>\{.*\})", re.DOTALL)


class KeptRule(NamedTuple):
    """A rule as the registry records it."""

    rule: Rule
    created_at: int
    """The time of the rule's creation, in ms since 1970 by the server's clock. Changes of the rule do not affect it."""
    stamp: str
    """The stamp of the last change.

    A client may name the stamp in a change. The change then fails if another client has changed the rule.
    """


def rule_key(name: str) -> str:
    """Return the form in which the names of rules are compared; raise :class:`ValueError` if the name is not valid."""
    return name_key(rule_name(name))


def place_of(path: str, rule: str) -> str:
    """Return the place of a rule in the order of all rules: the path of its subscription, a blank, its name.

    No name contains a blank, so the blank ends the path.
    """
    return f"{name_key(path)} {rule_key(rule)}"


def kind_of(rule: Rule) -> Literal["s", "c", "t"]:
    """Return the kind of a rule, which decides how it is counted.

    It counts as an SQL filter (``s``) or as a correlation filter (``c``). A rule that is always true or always false is
    not counted (``t``).
    """
    if isinstance(rule.filter, (TrueFilter, FalseFilter)):
        return "t"
    return "c" if isinstance(rule.filter, CorrelationFilter) else "s"


def encode_rule(rule: Rule) -> str:
    """Return the JSON of a rule, with its fields in order, in ASCII; raise :class:`ValueError` if it is too large."""
    if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"a rule must be a sbredis.rules.Rule, not {type(rule).__name__}")
    rule_key(rule.name)
    text = json.dumps(rule_to_json(rule), sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > MAXIMUM_RULE_BYTES:
        raise ValueError(f"the rule {quoted(rule.name)} has {len(text)} bytes; at most {MAXIMUM_RULE_BYTES} are stored")
    return text


def require_rules(rules: Iterable[Rule]) -> None:
    """Refuse rules with which a subscription cannot be created. This is checked before anything is sent."""
    known: set[str] = set()
    size = 0
    for rule in rules:
        size += len(encode_rule(rule))
        if rule_key(rule.name) in known:
            raise ValueError(f"two rules have the name {quoted(rule.name)}; names are compared without regard to case")
        known.add(rule_key(rule.name))
    if len(known) > MAXIMUM_RULES or size > _MAXIMUM_BYTES:
        raise ValueError(
            f"{len(known)} rules have {size} bytes together; a subscription can be created with at most "
            f"{MAXIMUM_RULES} rules of {_MAXIMUM_BYTES} bytes together: add the other rules afterwards"
        )


@decodes(_WHAT)
def decode_rule(text: bytes) -> KeptRule:
    """Read a rule's record; raise :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read."""
    found = _RECORD.fullmatch(text)
    if not found:
        raise unreadable(_WHAT, "it does not begin like a rule")
    description: Any = json.loads(found["description"])
    return KeptRule(rule_from_json(description), int(found["created"]), found["stamp"].decode())
