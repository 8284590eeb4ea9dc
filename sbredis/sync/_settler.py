"""Settling messages and administering sessions with the lock tokens of messages that another process received."""

# Made by tools/make_sync from sbredis/aio/_settler.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from sbredis import aio
from sbredis._public import public
from sbredis.model import PrimitiveTypes, ServiceBusReceivedMessage
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusSettler"]


@public
class ServiceBusSettler(Facade[aio.ServiceBusSettler]):
    """Settles messages and manages sessions that another process or connection has locked.

    Made by :meth:`ServiceBusClient.get_settler`. Its methods take the :attr:`~ServiceBusReceivedMessage.lock_token` of
    a message, or :attr:`ServiceBusSession.lock_token`, as a UUID or as text. A token is valid as long as the lock
    holds, also after renewals, in every process and on every machine. Nobody needs to call the server for it first.

    A text that is not a lock token, or belongs to another sub-queue, raises :class:`ValueError`, and changes nothing.
    The broker decides whether the lock still holds. If the lock is lost, or is one of another entity or of an entity
    that was deleted, the call raises :class:`~sbredis.exceptions.MessageLockLostError` or
    :class:`~sbredis.exceptions.SessionLockLostError`. All calls may be made concurrently.

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

    def complete_message(self, lock_token: UUID | str, *, timeout: float | None = None) -> None:
        """Settle a message as done: remove it from the queue."""
        self._bridge.call(self._aio.complete_message, lock_token, timeout=timeout)

    def abandon_message(
        self,
        lock_token: UUID | str,
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
            self._aio.abandon_message,
            lock_token,
            delay=delay,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def release_message(
        self, lock_token: UUID | str, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        """Unlock a message without counting a delivery.

        The message returns to its place and can be received again immediately. With ``interrupted``, the next delivery
        reports that the work on the message had begun.
        """
        self._bridge.call(self._aio.release_message, lock_token, interrupted=interrupted, timeout=timeout)

    def defer_message(
        self,
        lock_token: UUID | str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Set a message aside: it can be received again only by its sequence number.

        This counts as a failed delivery. A message that reaches the queue's delivery limit goes to the dead-letter
        queue instead.
        """
        self._bridge.call(
            self._aio.defer_message, lock_token, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def dead_letter_message(
        self,
        lock_token: UUID | str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Move a message to the dead-letter queue, with a reason. One more call reads the message first."""
        self._bridge.call(
            self._aio.dead_letter_message,
            lock_token,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, lock_token: UUID | str, *, timeout: float | None = None) -> datetime:
        """Lock a message for the full duration from now on, and return when the lock ends. The token stays the same.

        The locks on other messages do not change. A message of a session has no lock of its own: renew the lock of the
        session.
        """
        return self._bridge.call(self._aio.renew_message_lock, lock_token, timeout=timeout)

    # -- other messages ------------------------------------------------------------------------------------------------

    def receive_deferred_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        session_lock_token: UUID | str | None = None,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by their sequence numbers, and lock them.

        The messages of a session need the lock on the session: ``session_lock_token`` is its lock token, or the lock
        token of one of its messages. If one of the messages does not exist, the call receives none of them and raises
        :class:`~sbredis.exceptions.MessageNotFoundError`.
        """
        return self._bridge.call(
            self._aio.receive_deferred_messages,
            sequence_numbers,
            session_lock_token=session_lock_token,
            timeout=timeout,
        )

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages as they are in the queue, in any state, without locking or changing them.

        Without a ``sequence_number`` it continues after the messages that this settler has peeked. It may return fewer
        messages than there are. An empty list means that there are no more. With ``session_id`` it returns only
        messages of that session, whose lock it does not need.
        """
        return self._bridge.call(
            self._aio.peek_messages,
            max_message_count,
            sequence_number=sequence_number,
            session_id=session_id,
            timeout=timeout,
        )

    # -- sessions ------------------------------------------------------------------------------------------------------

    def renew_session_lock(self, lock_token: UUID | str, *, timeout: float | None = None) -> datetime:
        """Lock a session for the full duration from now on, and return when the lock ends.

        Like all methods for sessions it takes the lock token of the session, or of one of its messages.
        """
        return self._bridge.call(self._aio.renew_session_lock, lock_token, timeout=timeout)

    def get_session_state(self, lock_token: UUID | str, *, timeout: float | None = None) -> bytes | None:
        """Return the state of a session; ``None`` if the session has no state now."""
        return self._bridge.call(self._aio.get_session_state, lock_token, timeout=timeout)

    def set_session_state(
        self, lock_token: UUID | str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Set the state of a session, up to the size of a message.

        ``None`` removes the state. Text is stored in UTF-8.
        """
        self._bridge.call(self._aio.set_session_state, lock_token, state, timeout=timeout)

    def release_session(self, lock_token: UUID | str, *, timeout: float | None = None) -> None:
        """Release a session with all of its locked messages, so that other receivers can accept it.

        This does not increase the delivery counts of the messages.
        """
        self._bridge.call(self._aio.release_session, lock_token, timeout=timeout)
