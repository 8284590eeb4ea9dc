"""Logging of rules that cannot be used, or that fail because of a defect: each problem once."""

from __future__ import annotations

import logging

__all__ = ["Complaints"]

_log = logging.getLogger("sbredis.rules")


class Complaints:
    """Remembers the problems that were logged, so that each is logged once for all messages and all books.

    Any number of threads may use it.
    """

    def __init__(self) -> None:
        self._unusable: set[tuple[str, str, str, str]] = set()
        self._defects: set[tuple[str, str, str, str]] = set()

    def unusable(self, subscription: str, rule: str, what: str, reason: str) -> None:
        """Log that a filter or an action cannot be compiled."""
        if _is_first(self._unusable, (subscription, rule.lower(), what, reason)):
            _log.error(
                "the %s of rule %r of %s cannot be used, and fails on every message that reaches it: %s",
                *(what, rule, subscription, reason),
            )

    def defect(self, subscription: str, rule: str, what: str, error: Exception) -> None:
        """Log that a filter or an action failed on a message because of a defect, with the traceback."""
        if _is_first(self._defects, (subscription, rule, what, type(error).__name__)):
            _log.error("the %s of rule %r of %s failed because of a defect", what, rule, subscription, exc_info=error)

    def usable(self, subscription: str, rule: str) -> None:
        """Forget that the filter of a rule was unusable, so that it is logged again if it becomes unusable again."""
        if self._unusable:
            mine = subscription, rule.lower(), "filter"
            self._unusable = {key for key in self._unusable if key[:3] != mine}


def _is_first(said: set[tuple[str, str, str, str]], key: tuple[str, str, str, str]) -> bool:
    if key in said:
        return False
    said.add(key)
    return True
