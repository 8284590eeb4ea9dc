"""Functions that evaluate one filter, or one action, for one message."""

from __future__ import annotations

from typing import Any

from sbredis.rules import JudgedCopy, MessageView, Rule, RuleBook, SqlAction, SqlFilter, TrueFilter


def answer(text: str, user: dict[str, Any] | None = None, *, system: dict[str, Any] | None = None, **given: Any) -> str:
    """Return ``yes``, ``no``, or the reason why a filter fails. ``given`` are the parameters of the filter."""
    book = RuleBook([([Rule("r", SqlFilter(text, given))], True)])
    copies = book.judge(MessageView(system or {}, user or {}))
    if not copies:
        return "no"
    return "yes" if copies[0].error is None else reason(copies[0])


def truth(text: str, user: dict[str, Any] | None = None, **more: Any) -> str:
    """Return ``true``, ``false`` or ``unknown``."""
    if answer(text, user, **more) == "yes":
        return "true"
    return "false" if answer(f"NOT ({text})", user, **more) == "yes" else "unknown"


def done(text: str, user: dict[str, Any], system: dict[str, Any] | None = None, **given: Any) -> JudgedCopy:
    """Return the copy that an action makes of a message."""
    (copy,) = RuleBook([([Rule("r", TrueFilter(), SqlAction(text, given))], True)]).judge(
        MessageView(system or {}, user)
    )
    return copy


def reason(copy: JudgedCopy) -> str:
    assert copy.error is not None
    return copy.error.partition(" failed: ")[2]
