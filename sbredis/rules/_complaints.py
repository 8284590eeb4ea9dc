"""What the log says of rules that cannot be used, or that break on a defect: each thing once."""

from __future__ import annotations

import logging

__all__ = ["Complaints"]

_log = logging.getLogger("sbredis.rules")


class Complaints:
    """What has been said, so that it is said once, however many messages meet it, and however many books.

    Any number of threads may use it.
    """

    def __init__(self) -> None:
        self._said: set[tuple[str, str, str, str]] = set()

    def unusable(self, subscription: str, rule: str, what: str, reason: str) -> None:
        """Say that a filter or an action cannot be compiled."""
        if self._first(subscription, rule, what, reason):
            _log.error(
                "the %s of rule %r of %s cannot be used, and fails on every message that comes to it: %s",
                *(what, rule, subscription, reason),
            )

    def defect(self, subscription: str, rule: str, what: str, error: Exception) -> None:
        """Say that a filter or an action broke on a message, and where."""
        if self._first(subscription, rule, what, type(error).__name__):
            _log.error("the %s of rule %r of %s broke on a defect", what, rule, subscription, exc_info=error)

    def _first(self, subscription: str, rule: str, what: str, why: str) -> bool:
        key = subscription, rule, what, why
        if key in self._said:
            return False
        self._said.add(key)
        return True
