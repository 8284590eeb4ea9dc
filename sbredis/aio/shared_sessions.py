"""Sessions that share a consumer: for frameworks such as the worker, which hold many sessions at a time.

The functions accept several sessions at once, and release each of them with the call that finds nothing more in it.
"""

# These functions are a part of the receiver of a session.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sbredis.model import hold_of, taking_of
from sbredis.receiving import SessionInbox, free_sessions, require_not_forwarding, require_sessions

if TYPE_CHECKING:
    from sbredis.aio._session_receiver import ServiceBusSessionReceiver
    from sbredis.model import ServiceBusReceivedMessage

__all__ = [
    "accept_sessions",
    "asking",
    "has_messages",
    "is_empty",
    "is_released",
    "kept_messages",
    "others_wait_elsewhere",
    "receive_or_release",
]


async def accept_sessions(
    receiver: ServiceBusSessionReceiver, most: int, first: int, wait: float
) -> list[ServiceBusSessionReceiver]:
    """Accept up to ``most`` free sessions, each with up to ``first`` messages, as soon as there are any.

    The receiver waits for the sessions: until they come, its inbox is that of the free sessions. Then it gets the first
    one. Each further session has a receiver that takes messages in the same way (:func:`~sbredis.model.taking_of`).
    Return the receivers; none if no session became free within the time to wait. The receivers let go of sessions
    without messages when others wait.
    """
    try:
        deadline = receiver._deadline(wait)
        with receiver._telemetry.operation("accept_session", receiver.entity_path):
            entity = await receiver._found(deadline)
            await entity.require(require_sessions, deadline)
            await entity.require(require_not_forwarding, deadline)
            taking = taking_of(receiver)
            sessions = taking.inbox = free_sessions(entity, first, taking.hands)
            found = await sessions.take(most, wait, gather=False, latest=deadline)
    except BaseException:
        receiver._among.discard(receiver)
        raise
    receivers = [receiver, *(receiver._another() for _ in found[1:])]
    for each, held in zip(receivers, found, strict=False):
        each._keep(held)
        taking_of(each).yields = True
        each._lookup.found = entity
        each._inbox_of(entity)
    if not found:
        receiver._among.discard(receiver)
        return []
    return receivers


def others_wait_elsewhere(receiver: ServiceBusSessionReceiver, first: int) -> bool:
    """Return whether other partitions than that of its session have said that there are more free sessions."""
    held, hands = receiver._held, taking_of(receiver).hands
    return held is not None and free_sessions(held.entity, first, hands).more_elsewhere(held.partition_client.number)


def has_messages(receiver: ServiceBusSessionReceiver) -> bool:
    """Return whether messages have come that a receiver has not received, with its session or after it."""
    return receiver._inbox is not None and len(receiver._inbox.buffer) > 0


def kept_messages(receiver: ServiceBusSessionReceiver, wanted: int) -> list[ServiceBusReceivedMessage]:
    """Receive up to ``wanted`` messages that have come already. Do not wait."""
    inbox = receiver._inbox
    assert isinstance(inbox, SessionInbox)
    messages = inbox.take_kept(wanted)
    for message in messages:
        receiver._peekings.received(hold_of(message))
    receiver._hand_over(messages)
    if receiver._telemetry.watching:
        with receiver._telemetry.operation("receive", receiver.entity_path) as operation:
            operation.received(messages)
    return messages


def is_empty(receiver: ServiceBusSessionReceiver) -> bool:
    """Return whether the session of a receiver had no more messages at the last call, and none have come since."""
    inbox = receiver._inbox
    return isinstance(inbox, SessionInbox) and inbox.is_empty


def is_released(receiver: ServiceBusSessionReceiver) -> bool:
    """Return whether the session of a receiver was released."""
    return receiver._held is None or receiver._held.settled


def asking(
    receiver: ServiceBusSessionReceiver, wanted: int, first: int, *, others: bool, in_company: bool = False
) -> AbstractContextManager[None]:
    """Return a context in which the settlement of the last message also brings up to ``wanted`` further messages.

    The settlement releases the session instead if it has no more messages, and ``others`` wait in other partitions, or
    in this one. Then it may bring the next session to :func:`accept_sessions`. With ``in_company`` it shares a call
    with the settlements of this turn of the event loop.
    """
    inbox, held = receiver._inbox, receiver._held
    assert isinstance(inbox, SessionInbox)
    assert held is not None
    hands = taking_of(receiver).hands
    beside = free_sessions(held.entity, first, hands).driver_with_more(held.partition_client.number)
    return inbox.leaving(wanted, others=others, beside=beside, in_company=in_company)


async def receive_or_release(
    receiver: ServiceBusSessionReceiver, wanted: int, *, others: bool
) -> list[ServiceBusReceivedMessage] | None:
    """Return messages of the session that are there now, or ``None`` if the session was released instead.

    It is released if there are none, and ``others`` wait in other partitions, or in this one.
    """
    inbox = receiver._inbox
    assert isinstance(inbox, SessionInbox)
    return await inbox.take_or_leave(wanted, others=others)
