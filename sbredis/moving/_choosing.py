"""Choose messages by a filter in the language of rules: the client judges them, so the server does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sbredis.client import facts_of
from sbredis.model import (
    CorrelationRuleFilter,
    RuleFilter,
    RuleProperties,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    SqlRuleFilter,
    readable_content,
    rule_created,
)
from sbredis.rules import Constant, MessageView, RuleBook

__all__ = ["Condition", "condition_of"]

Condition: TypeAlias = Callable[[ServiceBusReceivedMessage], bool]


def condition_of(matching: str | RuleFilter) -> Condition:
    """Return the function that says whether a message matches a filter. A message that is not readable never does.

    The filter can also use properties that the broker sets after the rules of a topic are evaluated, such as
    ``sys.SequenceNumber`` and ``sys.DeadLetterReason``. Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the
    filter is not valid.
    """
    given = SqlRuleFilter(matching) if isinstance(matching, str) else matching
    if not isinstance(given, (SqlRuleFilter, CorrelationRuleFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(
            f"matching must be the text of a filter, an SqlRuleFilter or a CorrelationRuleFilter, not "
            f"{type(given).__name__}"
        )
    book = RuleBook([([rule_created(RuleProperties("redrive", filter=given))], False)])

    def matches(message: ServiceBusReceivedMessage) -> bool:
        facts = _facts(message)
        return facts is not None and bool(book.judge(facts))

    return matches


def _facts(message: ServiceBusReceivedMessage) -> MessageView | None:
    """Return a message as filters see it, with what the broker has set."""
    content = readable_content(message)
    if content is None:
        return None
    facts = facts_of(content)
    set_by_broker: dict[str, Constant | None] = {
        "sequencenumber": message.sequence_number,
        "enqueuedsequencenumber": message.enqueued_sequence_number,
        "enqueuedtimeutc": None if message.state is ServiceBusMessageState.SCHEDULED else message.enqueued_time_utc,
        "expiresatutc": message.expires_at_utc,
        "timetolive": message.time_to_live,
        "deliverycount": message.delivery_count,
        "deadlettersource": message.dead_letter_source,
        "deadletterreason": message.dead_letter_reason,
        "deadlettererrordescription": message.dead_letter_error_description,
    }
    known = {name: value for name, value in set_by_broker.items() if value is not None}
    return MessageView({**facts.system, **known}, facts.user)
