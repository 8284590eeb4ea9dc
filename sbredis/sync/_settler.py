"""Settling messages and administering sessions with handles of locks that another process holds."""

# Made by tools/make_sync from sbredis/aio/_settler.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.model import PrimitiveTypes
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusSettler"]


@public
class ServiceBusSettler(Facade[aio.ServiceBusSettler]):
    """Settles messages and manages sessions that another process or connection has locked.

    Made by :meth:`ServiceBusClient.get_settler`. A settler receives no messages. Its methods take handles, which
    :meth:`ServiceBusReceiver.get_lock_handle` and :attr:`ServiceBusSession.lock_handle` make.

    The settler checks a handle before it changes anything. A handle that is malformed, or was made for another entity
    or sub-queue, raises :class:`ValueError`. The broker decides whether the lock still holds. If the lock is lost, the
    call raises :class:`~sbredis.exceptions.MessageLockLostError` or :class:`~sbredis.exceptions.SessionLockLostError`.
    All calls may be made concurrently.

    Several threads may use the settler at the same time.
    """

    @property
    def entity_path(self) -> str:
        """The path of the queue or subscription whose messages the settler settles, and of its sub-queue if any."""
        return self._aio.entity_path

    def __enter__(self) -> Self:
        """Connect, and look up the entity."""
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop settling. Locks are not changed."""
        self._bridge.finish(self._aio.close)

    # -- messages ------------------------------------------------------------------------------------------------------

    def complete_message(self, handle: str, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        self._bridge.call(self._aio.complete_message, handle, timeout=timeout)

    def abandon_message(
        self,
        handle: str,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Unlock a message, so that it can be received again immediately or after a delay.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue. The application properties in ``properties_to_modify`` are changed or added. For this, one more call
        reads the message.
        """
        self._bridge.call(
            self._aio.abandon_message, handle, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(self, handle: str, *, interrupted: bool = False, timeout: float | None = None) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. With ``interrupted``, the next delivery
        reports that the work on the message had begun.
        """
        self._bridge.call(self._aio.release_message, handle, interrupted=interrupted, timeout=timeout)

    def defer_message(
        self,
        handle: str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it can be received again only by its sequence number.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue instead.
        """
        self._bridge.call(self._aio.defer_message, handle, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        handle: str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with a reason. One more call reads the message first."""
        self._bridge.call(
            self._aio.dead_letter_message,
            handle,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends. The handle stays the same.

        A message of a session has no lock of its own: renew the lock of the session.
        """
        return self._bridge.call(self._aio.renew_message_lock, handle, timeout=timeout)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def renew_session_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        """Lock a session for the full duration from now on, and return when the lock ends."""
        return self._bridge.call(self._aio.renew_session_lock, handle, timeout=timeout)

    def get_session_state(self, handle: str, *, timeout: float | None = None) -> bytes | None:
        """Return the state of a session; ``None`` if the session has no state now."""
        return self._bridge.call(self._aio.get_session_state, handle, timeout=timeout)

    def set_session_state(
        self, handle: str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Set the state of a session, up to the size of a message.

        ``None`` removes the state. Text is stored in UTF-8.
        """
        self._bridge.call(self._aio.set_session_state, handle, state, timeout=timeout)

    def release_session(self, handle: str, *, timeout: float | None = None) -> None:
        """Release a session with all of its locked messages, so that other receivers can accept it.

        This does not increase the delivery counts of the messages.
        """
        self._bridge.call(self._aio.release_session, handle, timeout=timeout)
