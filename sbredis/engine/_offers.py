"""Offers: messages that a partition locks for a receiver that waits, and publishes in its wake. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sbredis.engine._results import FACTS, Delivery, deliveries

__all__ = ["OFFER_MS", "Asked", "Last", "Offer", "read_offer"]

OFFER_MS: Final = 1000
"""The ms for which the messages of an offer are locked, unless the receiver takes the offer."""


class Asked(NamedTuple):
    """The offers for which a waiting receiver asks."""

    token: str
    """The token under which the partition may lock messages for the receiver."""
    most: int
    """The largest number of messages of an offer."""


class Last(NamedTuple):
    """The token that a receiver has named for offers in its last call."""

    token: str
    read: bool
    """Whether the receiver has read an offer under this token, and takes it. Otherwise it declines the offer, if the
    partition has made one.
    """


class Offer(NamedTuple):
    """Messages that a partition has locked for a receiver, and that the receiver may take."""

    token: str
    fence: int
    clock: int
    """The logical clock of the partition, in ms, when the offer was made."""
    lock: int
    """The lock duration in ms."""
    messages: tuple[Delivery, ...]


def read_offer(payload: bytes) -> Offer | None:
    """Return the offer in the message that wakes a receiver, or ``None`` if the message has none."""
    if not payload.startswith(b"+"):
        return None
    texts, at = list[bytes](), 1
    while at < len(payload):
        colon = payload.index(b":", at)
        end = colon + 1 + int(payload[at:colon])
        texts.append(payload[colon + 1 : end])
        at = end
    token, fence, clock, lock, number = texts[:5]
    count = int(number)
    names, records, extras = texts[5 : 5 + count], texts[5 + count : 5 + 2 * count], list[Any](texts[5 + 2 * count :])
    for place in range(0, len(extras), FACTS):
        extras[place] = int(extras[place])
    return Offer(token.decode(), int(fence), int(clock), int(lock), deliveries(names, records, extras))
