"""Decide whether an error that ends ``async with receiver`` counts as a failed delivery of unsettled messages. Pure."""

from __future__ import annotations

from typing import cast

from sbredis.exceptions import MessageLockLostError, SessionLockLostError

__all__ = ["is_failed_delivery"]

_LOST = (MessageLockLostError, SessionLockLostError)


def is_failed_delivery(error: BaseException | None) -> bool:
    """Return whether a handler that ended with this error has failed to handle its unsettled messages.

    A cancellation, an interruption, the end of the program and a lost lock are not caused by a message, so they do not
    count. A group of errors counts if one of its errors counts.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(is_failed_delivery, group.exceptions))
    return isinstance(error, Exception) and not isinstance(error, _LOST)
