"""The registry's record of a rule, and its text. Pure.

The record is ``2 <kind> <stamp> <created> <description>``. The scripts read the fields before the description, to count
the filters of a topic. The description is JSON, which the folder ``rules`` writes and reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from sbredis import rules
from sbredis._quoting import quoted
from sbredis.engine import name_key, rule_name
from sbredis.registry._entity import LATEST
from sbredis.registry._unreadable import read_json, reason_of, unreadable

if TYPE_CHECKING:
    from sbredis.rules import Rule

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
    "rule_name_at",
    "rule_path",
]

MAXIMUM_RULE_BYTES = 64 * 1024
"""The largest size of a rule, as JSON."""

MAXIMUM_RULES = 1000
"""The largest number of rules of a new subscription, in at most 1 MB of JSON. More rules may be added later."""

_MAXIMUM_BYTES = 1024 * 1024
_RECORD = re.compile(rb"2 [sct] (?P<stamp>[\w-]{12}) (?P<created>[0-9]{1,15}) (?P<description>\{.*\})", re.DOTALL)


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
    if isinstance(rule.filter, (rules.TrueFilter, rules.FalseFilter)):
        return "t"
    return "c" if isinstance(rule.filter, rules.CorrelationFilter) else "s"


def encode_rule(rule: Rule) -> str:
    """Return the JSON of a rule, with its fields in order, in ASCII; raise :class:`ValueError` if it is too large."""
    if not isinstance(rule, rules.Rule):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"a rule must be a sbredis.rules.Rule, not {type(rule).__name__}")
    rule_key(rule.name)
    text = json.dumps(rules.rule_to_json(rule), sort_keys=True, separators=(",", ":"), allow_nan=False)
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


def decode_rule(text: bytes, place: str | None = None) -> KeptRule:
    """Read a rule's record; raise :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read.

    ``place`` is the place at which the registry has the rule, if the caller knows it.
    """
    found = _RECORD.fullmatch(text)
    path = None if place is None else rule_path(place)
    if not found:
        raise unreadable("rule", path, text, "it does not begin like a rule")
    try:
        kept = KeptRule(
            rules.rule_from_json(read_json(found["description"])), int(found["created"]), found["stamp"].decode()
        )
        if kept.created_at > LATEST:
            raise ValueError(f"the time {kept.created_at} is after the year 9999")  # noqa: TRY301 -- as all mistakes
        if place is not None and rule_key(kept.rule.name) != rule_name_at(place):
            raise ValueError(f"it describes the rule {quoted(kept.rule.name)}")  # noqa: TRY301 -- as all mistakes
    except Exception as error:  # noqa: BLE001 -- whatever the record contains, it costs this rule alone
        raise unreadable("rule", path, text, reason_of(error)) from None
    return kept


def rule_name_at(place: str) -> str:
    """Return the name of the rule at a place, in lower case."""
    return place.partition(" ")[2]


def rule_path(place: str) -> str:
    """Return the path of the rule at a place, as errors name it."""
    subscription, _, name = place.partition(" ")
    return f"{subscription}/rules/{name}"
