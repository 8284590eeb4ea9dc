"""Decide whether an error that ends ``async with receiver`` is the fault of the messages in hand. Pure."""

from __future__ import annotations

from typing import cast

from sbredis.exceptions import MessageLockLostError, SessionLockLostError

__all__ = ["is_failed_delivery"]

_LOST = (MessageLockLostError, SessionLockLostError)


def is_failed_delivery(error: BaseException | None) -> bool:
    """Return whether a handler that ended with this error has failed to handle the messages in its hands.

    A cancellation, an interruption, the end of the program and a lost lock say nothing about a message. A group of
    errors counts if one of its errors counts.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(is_failed_delivery, group.exceptions))
    return isinstance(error, Exception) and not isinstance(error, _LOST)
