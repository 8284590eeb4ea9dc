"""How much a topic may have. Pure."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIMITS", "Limits"]


class Limits(NamedTuple):
    """How much a topic may have, of what; Azure's numbers. The scripts count, and refuse what would be more."""

    subscriptions: int
    sql_filters: int
    """Those that look at something: one that is always true, or never, is not counted."""
    correlation_filters: int


LIMITS = Limits(subscriptions=2_000, sql_filters=2_000, correlation_filters=100_000)
