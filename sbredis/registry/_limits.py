"""The limits of a topic. Pure."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIMITS", "Limits"]


class Limits(NamedTuple):
    """The limits of a topic, with Azure's numbers. The scripts enforce them."""

    subscriptions: int
    sql_filters: int
    """The largest number of SQL filters; a filter that is always true or always false is not counted."""
    correlation_filters: int


LIMITS = Limits(subscriptions=2_000, sql_filters=2_000, correlation_filters=100_000)
