"""Redriving dead letters: the budget and the result as an application sees them, and the message after a redrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from sbredis._quoting import quoted
from sbredis.engine import (
    MAXIMUM_CHANGES_BYTES,
    NEVER,
    Changes,
    Content,
    Delivery,
    Recipient,
    Redrive,
    decode,
    decode_changes,
    encode_changes,
    payload_offset,
)
from sbredis.exceptions import DataLayoutError, MessageSizeExceededError, Outcome
from sbredis.model._message import content_of
from sbredis.model._received import ServiceBusReceivedMessage, hold_of

if TYPE_CHECKING:
    from sbredis.engine import Value

__all__ = ["RedriveBudget", "RedriveResult", "readable_content", "redrive_of", "redriven_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveBudget:
    """The share of messages that may die again before a redrive stops by itself.

    The redrive counts the messages that it moved within the last ``window`` seconds. If at least ``minimum`` messages
    were moved in this time, and more than the ``share`` of them are in the dead-letter queue again, the redrive stops.

    A redrive without a rate moves ``minimum`` messages first. It then waits until receivers have handled them, but at
    most ``window`` seconds, and moves twice as many.
    """

    share: float = 0.1
    """From 0 to less than 1. With 0, the first message that dies again stops the redrive."""
    minimum: int = 20
    """The number of messages that must have been moved before the share counts."""
    window: float = 60.0
    """In seconds; the constructor takes a timedelta too. A message that dies later does not count."""

    def __init__(self, *, share: float = 0.1, minimum: int = 20, window: timedelta | float = 60.0) -> None:
        if isinstance(window, timedelta):
            window = window.total_seconds()
        if type(share) not in (int, float):
            raise TypeError(f"share must be a number, not {type(share).__name__}")
        if type(window) not in (int, float):
            raise TypeError(f"window must be a timedelta or a number of seconds, not {type(window).__name__}")
        if not 0 <= share < 1:
            raise ValueError(f"share must be from 0 to less than 1, not {quoted(share)}")
        if type(minimum) is not int or minimum < 1:
            raise ValueError(f"minimum must be a whole number from 1 on, not {quoted(minimum)}")
        if not 0 < window <= 86400:
            raise ValueError(f"window must be more than 0 seconds and at most a day, not {quoted(window)}")
        for name, value in (("share", share), ("minimum", minimum), ("window", window)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveResult:
    """What a redrive did, or what a dry run has found."""

    matched: int
    """The number of dead letters that the redrive was for."""
    moved: int
    """The number of messages that were moved. Each of them was moved once. In a dry run 0."""
    skipped: int
    """The number of messages that stay: a receiver holds them or was faster, their destination does not take them, they
    have no session although the entity requires sessions, or their properties would be too large.
    """
    died_again: int
    """The number of messages that were moved and found in a dead-letter queue again, within the window of the budget.
    Without a budget they are not counted.
    """
    completed: bool
    """Whether the redrive has gone through all dead letters that were there at its start. If not, it was stopped by its
    budget.
    """
    stopped_because: str
    """Why the redrive has ended, in a sentence."""
    cursor: str
    """The place where the redrive has ended. If you give it to another redrive of the same queue, that redrive goes on
    there, and leaves out the messages that became dead letters after the start of the first one.
    """
    by_reason: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of matched messages for each reason."""
    by_fingerprint: Mapping[str, int] = field(default_factory=dict[str, int])
    """The number of matched messages for each fingerprint: the reason and the first line of the description, with ``#``
    in place of each number.
    """


def readable_content(message: ServiceBusReceivedMessage) -> Content | None:
    """Return the content of a message with all changes; ``None`` if this release cannot read it."""
    try:
        return content_of(message)
    except DataLayoutError:
        return None


def redrive_of(
    message: ServiceBusReceivedMessage,
    modify: Mapping[str, Value] | None,
    recipient: Recipient | None = None,
    *,
    longest: int = NEVER,
) -> Redrive:
    """Return a dead letter after a redrive: its time to live begins again, and it has no reason and no description.

    The properties in ``modify`` are added to its application properties, or replace them. A transfer dead letter has a
    ``recipient``. ``longest`` is the longest time to live that the topic of a subscription allows, in ms.
    """
    delivery = hold_of(message).delivery
    content = readable_content(message)
    own = None if content is None else content.time_to_live
    time_to_live = own if longest >= NEVER else min(longest, NEVER if own is None else own)
    if content is None:
        return Redrive(delivery.name, time_to_live, b"" if recipient is None else recipient.changes())
    return Redrive(delivery.name, time_to_live, redriven_changes(delivery, modify, recipient, hops=content.hops))


def redriven_changes(
    delivery: Delivery,
    modify: Mapping[str, Value] | None,
    recipient: Recipient | None = None,
    *,
    hops: int | None = None,
) -> bytes:
    """Return the changed properties of a dead letter that is redriven: with ``modify``, and without a reason.

    ``hops`` is how often the message was forwarded. After the redrive, it may be forwarded as often as a new one.
    """
    before = decode_changes(delivery.changes)
    properties = before.properties
    if modify:
        if properties is None:
            properties = decode(delivery.record, payload_offset(delivery.record)).properties or {}
        properties = {**properties, **modify}
    after = Changes(properties, system={**(before.system or {}), "hops": 0} if hops else before.system)
    changes = encode_changes(after) if recipient is None else recipient.changes(after)
    if len(changes) > MAXIMUM_CHANGES_BYTES:
        raise MessageSizeExceededError(
            f"The properties of message {delivery.name} would have {len(changes)} bytes. At most "
            f"{MAXIMUM_CHANGES_BYTES} bytes are allowed: store fewer or smaller properties.",
            outcome=Outcome.NEVER_SENT,
        )
    return changes
