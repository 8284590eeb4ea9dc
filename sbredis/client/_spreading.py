"""Decide how many copies of a topic's messages one call makes, so that no call holds its server for long. Pure.

A call opens each subscription that gets a copy, and gives the copy to a receiver if one waits there, so a subscription
costs more than a further copy in it. The times below are those of a server whose receivers all wait.

If a send would take longer than :data:`MOST_WORK`, its messages wait on the topic, and the client with the role
``route`` *spreads* them: it makes their copies with several calls. Each call takes the next subscriptions, in the order
of their incarnations, with all their copies. So every subscription gets its copies by one call and by one version of
its rules. ``lua/publish.lua`` says what the partition remembers meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["AT_LEAST_TOGETHER", "AT_ONCE", "MOST_WORK", "most_messages", "next_subscriptions", "work_of"]

MOST_WORK: Final = 10_000.0
"""The µs for which one call may hold the server, as estimated here."""
AT_ONCE: Final = 1
"""The due time of a message that waits only to be spread, as ``lua/publish.lua`` says."""
_SUBSCRIPTION = 70.0
_COPY = 3.5
_BYTE = 0.002
"""The µs that changed properties take, for each of their bytes."""
AT_LEAST_TOGETHER: Final = 10
"""Messages that are spread together cost less than each by itself, because a call opens each subscription once."""


def work_of(subscriptions: int, copies: int, size: int) -> float:
    """Return the µs that a call takes. ``size`` are the bytes of the changed properties of all copies."""
    return subscriptions * _SUBSCRIPTION + copies * _COPY + size * _BYTE


def most_messages(copies: float, subscriptions: int) -> int:
    """Return the number of messages for one call, if each has so many copies in some of the ``subscriptions``."""
    copies = max(1.0, copies)
    apart = MOST_WORK / (copies * (_SUBSCRIPTION + _COPY))  # if no two messages go to the same subscription
    if apart * copies <= subscriptions:
        return max(1, int(apart))
    return max(1, int((MOST_WORK - subscriptions * _SUBSCRIPTION) / (copies * _COPY)))


def next_subscriptions(copies: Mapping[str, tuple[int, int]], reached: str) -> tuple[Sequence[str], str]:
    """Return the subscriptions for the next call of a spread, and the bound that the call brings the messages to.

    ``copies`` has the number of copies and the bytes of their changed properties for each subscription that gets some,
    by its incarnation. Those up to ``reached`` have their copies. The bound is empty if no others are left.
    """
    left = sorted(incarnation for incarnation in copies if incarnation > reached)
    work = 0.0
    for at, incarnation in enumerate(left):
        work += work_of(1, *copies[incarnation])
        if work > MOST_WORK and at:
            return left[:at], left[at - 1]
    return left, ""
