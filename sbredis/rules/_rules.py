"""Rules as callers give them: a filter that chooses messages, and an action that changes the copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sbredis.rules._values import Constant, Value

__all__ = [
    "CORRELATED",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "Rule",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "UnreadableFilter",
]


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A filter in the language of rules. ``parameters`` has a value for each ``@name`` in the text.

    The keys are these names, with or without the ``@``.
    """

    text: str
    parameters: Mapping[str, Constant] = field(default_factory=dict[str, Constant], hash=False)


@dataclass(frozen=True, slots=True)
class UnreadableFilter:
    """A filter that this release cannot read. It fails on every message; no rule with it can be stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """The filter that every message matches."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """The filter that no message matches."""


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """A filter that a message matches if the message has all the given values."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value], hash=False)


CORRELATED: dict[str, str] = {
    "correlation_id": "correlationid",
    "message_id": "messageid",
    "to": "to",
    "reply_to": "replyto",
    "subject": "label",
    "session_id": "sessionid",
    "reply_to_session_id": "replytosessionid",
    "content_type": "contenttype",
}
"""A mapping from the fields of a correlation filter to the system properties with which they are compared."""


@dataclass(frozen=True, slots=True)
class SqlAction:
    """An action in the language of rules. ``parameters`` are like those of a filter."""

    text: str
    parameters: Mapping[str, Constant] = field(default_factory=dict[str, Constant], hash=False)


Filter: TypeAlias = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter | UnreadableFilter


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter with a name, and the action on the copies that it makes."""

    name: str
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
