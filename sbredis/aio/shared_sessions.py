"""Sessions that share a consumer: for frameworks such as the worker, which hold many sessions at a time.

The functions accept several sessions at once, and release each of them with the call that finds nothing more in it.
"""

# These functions are a part of the receiver of a session.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sbredis.receiving import SessionInbox, free_sessions, require_not_forwarding, require_sessions

if TYPE_CHECKING:
    from sbredis.aio._session_receiver import ServiceBusSessionReceiver
    from sbredis.model import ServiceBusReceivedMessage

__all__ = [
    "accept_sessions",
    "has_no_messages",
    "is_released",
    "others_wait",
    "receive_or_release",
    "releasing",
]


async def accept_sessions(
    make: Callable[[], ServiceBusSessionReceiver], most: int, first: int, wait: float
) -> list[ServiceBusSessionReceiver]:
    """Accept up to ``most`` free sessions, each with up to ``first`` messages, as soon as there are any.

    Return receivers that ``make`` has made; none if no session became free within the time to wait.
    """
    receiver = make()
    try:
        deadline = receiver._deadline(wait)
        with receiver._telemetry.operation("accept_session", receiver.entity_path):
            entity = await receiver._found(deadline)
            await entity.require(require_sessions, deadline)
            await entity.require(require_not_forwarding, deadline)
            found = await free_sessions(entity, first).take(most, wait, gather=False, latest=deadline)
    except BaseException:
        receiver._on_close(receiver)
        raise
    receivers = [receiver, *(make() for _ in found[1:])]
    for each, held in zip(receivers, found, strict=False):
        each._keep(held)
    if not found:
        receiver._on_close(receiver)
        return []
    return receivers


def others_wait(receiver: ServiceBusSessionReceiver, first: int) -> bool:
    """Return whether there were more free sessions than receivers of this client could take."""
    held = receiver._held
    return held is not None and free_sessions(held.entity, first).others_wait


def has_no_messages(receiver: ServiceBusSessionReceiver) -> bool:
    """Return whether a receiver has received all messages that have come."""
    return receiver._inbox is not None and not len(receiver._inbox.buffer)


def is_released(receiver: ServiceBusSessionReceiver) -> bool:
    """Return whether the session of a receiver was released."""
    return receiver._held is None or receiver._held.settled


def releasing(receiver: ServiceBusSessionReceiver, wanted: int) -> AbstractContextManager[None]:
    """Return a context in which the settlement of the last message releases the session, if no more messages are there.

    Otherwise the settlement brings up to ``wanted`` messages.
    """
    inbox = receiver._inbox
    assert isinstance(inbox, SessionInbox)
    return inbox.leaving(wanted)


async def receive_or_release(
    receiver: ServiceBusSessionReceiver, wanted: int
) -> list[ServiceBusReceivedMessage] | None:
    """Return messages of the session that are there now. If there are none, release the session: return ``None``."""
    inbox = receiver._inbox
    assert isinstance(inbox, SessionInbox)
    return await inbox.take_or_leave(wanted)
