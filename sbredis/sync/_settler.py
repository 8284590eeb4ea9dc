"""Settling messages and looking after sessions by handle, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from sbredis.model import PrimitiveTypes

if TYPE_CHECKING:
    from sbredis import aio
    from sbredis.sync._portal import Portal

__all__ = ["ServiceBusSettler"]


class ServiceBusSettler:
    """Settles messages that another process or another connection has received, and looks after sessions likewise.

    Made by :meth:`ServiceBusClient.get_settler`. It receives nothing. Its methods take handles, which
    :meth:`ServiceBusReceiver.get_lock_handle` and :attr:`ServiceBusSession.lock_handle` make.

    What a handle says is checked before anything is changed: one that is malformed, or made for another entity or
    sub-queue, is a :class:`ValueError`. Whether the lock still holds is for the broker to say:
    :class:`~sbredis.exceptions.MessageLockLostError` or :class:`~sbredis.exceptions.SessionLockLostError` if not.
    Several threads may use it at once.
    """

    def __init__(self, portal: Portal, settler: aio.ServiceBusSettler) -> None:
        self._portal = portal
        self._aio = settler

    @property
    def entity_path(self) -> str:
        """The queue or subscription whose messages it settles, with the sub-queue if it is one."""
        return self._aio.entity_path

    def __enter__(self) -> Self:
        """Connect, and find the entity."""
        self._portal.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._aio)

    def close(self) -> None:
        """Settle no more. Locks stay as they are."""
        self._portal.finish(self._aio.close)

    # -- messages ------------------------------------------------------------------------------------------------------

    def complete_message(self, handle: str, *, timeout: float | None = None) -> None:
        """Settle a message as done: it is removed from the queue."""
        self._portal.call(self._aio.complete_message, handle, timeout=timeout)

    def abandon_message(
        self,
        handle: str,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give a message back, to be received again, at once or after a delay; counted as a failed delivery.

        When it was delivered as often as the queue allows, it goes to the dead-letter queue. The application properties
        in ``properties_to_modify`` are changed or added, which takes one more call to read the message.
        """
        self._portal.call(
            self._aio.abandon_message, handle, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(self, handle: str, *, timeout: float | None = None) -> None:
        """Unlock a message without counting a delivery: it returns to its place, and is received again at once."""
        self._portal.call(self._aio.release_message, handle, timeout=timeout)

    def defer_message(
        self,
        handle: str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it is received again by its sequence number only. Counted as a failed delivery.

        When it was delivered as often as the queue allows, it goes to the dead-letter queue instead.
        """
        self._portal.call(self._aio.defer_message, handle, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        handle: str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with why it is there, which takes one more call to read it."""
        self._portal.call(
            self._aio.dead_letter_message,
            handle,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends. The handle stays the same.

        Of a message that belongs to a session, the lock of the session is to be renewed.
        """
        return self._portal.call(self._aio.renew_message_lock, handle, timeout=timeout)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def renew_session_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a session for the full duration from now on, and return when the lock ends."""
        return self._portal.call(self._aio.renew_session_lock, handle, timeout=timeout)

    def get_session_state(self, handle: str, *, timeout: float | None = None) -> bytes | None:
        """What was kept for a session; ``None`` if nothing was, or no longer."""
        return self._portal.call(self._aio.get_session_state, handle, timeout=timeout)

    def set_session_state(
        self, handle: str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Keep something for a session, up to the size of a message; ``None`` for nothing. Text is kept in UTF-8."""
        self._portal.call(self._aio.set_session_state, handle, state, timeout=timeout)

    def release_session(self, handle: str, *, timeout: float | None = None) -> None:
        """Give a session back with all that is held of it, for others to accept it. This counts no delivery."""
        self._portal.call(self._aio.release_session, handle, timeout=timeout)
