"""Transactions: sends and settlements that happen together, or not at all."""

# Made by tools/make_sync from sbredis/aio/_transaction.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.engine import MessageId
from sbredis.model import (
    MessageTypes,
    PrimitiveTypes,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
)
from sbredis.sync._facade import Facade, twin_for
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._session import ServiceBusSession

__all__ = ["ServiceBusTransaction"]


@public
class ServiceBusTransaction(Facade[aio.ServiceBusTransaction]):
    """Sends and settlements that happen together, or not at all. Made by :meth:`ServiceBusClient.transaction`.

    The methods only record what to do. The transaction does all of it at the end of its ``with`` block, in one
    call. If an exception leaves the block, or after :meth:`rollback`, it does nothing: no message is sent, and every
    received message stays locked.

    A transaction takes up to 100 messages, session states, keys and watermarks of up to 4 MB together, for up to two
    minutes. All messages that it settles must be in one slot of the namespace: those of two entities are if one was
    created with ``colocate_with`` the other, and those of partitioned entities need the same key too. Messages that it
    sends to an entity elsewhere wait in that slot, and a client with ``maintenance=True`` moves them. Tasks and threads
    may use the transaction at the same time, until its block ends.
    """

    @property
    def duplicates(self) -> tuple[ServiceBusMessage, ...]:
        """After the block: the messages that duplicate detection has dropped. All others were sent."""
        return self._aio.duplicates

    @property
    def watermarks(self) -> Mapping[str, int | None]:
        """After the block: the watermarks that it has advanced, each with the sequence number that is stored with it:
        that of the last message that was sent with the watermark, or ``None`` if there was none.
        """
        return self._aio.watermarks

    def __enter__(self) -> Self:
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._bridge.call(self._aio.__aexit__, None, None, None)
        else:
            # Nothing is committed. If the client is closed, the error of the block must stay the error that is raised.
            self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    def rollback(self) -> None:
        """Forget everything that was recorded. At the end of the block nothing happens, and locks stay as they are."""
        self._bridge.run(self._aio.rollback)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_messages(self, sender: ServiceBusSender, message: MessageTypes | ServiceBusMessageBatch) -> None:
        """Record a send of a message, several messages or a batch, with a sender of the same client."""
        self._bridge.run(
            self._aio.send_messages,
            twin_for(sender, ServiceBusSender, "A transaction sends with a sbredis.ServiceBusSender, not with a"),
            message,
        )

    def schedule_messages(
        self, sender: ServiceBusSender, messages: MessageTypes, schedule_time_utc: datetime | Sequence[datetime]
    ) -> list[int]:
        """Record messages to be scheduled, as :meth:`ServiceBusSender.schedule_messages` does.

        Returns a list that is empty until the end of the block. Then it has the sequence numbers of the messages.
        """
        return self._bridge.run(
            self._aio.schedule_messages,
            twin_for(sender, ServiceBusSender, "A transaction sends with a sbredis.ServiceBusSender, not with a"),
            messages,
            schedule_time_utc,
        )

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Record that a message is settled as done."""
        self._bridge.run(self._aio.complete_message, message)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is unlocked, as :meth:`ServiceBusReceiver.abandon_message` does."""
        self._bridge.run(self._aio.abandon_message, message, delay=delay, properties_to_modify=properties_to_modify)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is set aside, as :meth:`ServiceBusReceiver.defer_message` does."""
        self._bridge.run(self._aio.defer_message, message, properties_to_modify=properties_to_modify)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is moved to the dead-letter queue, with the reason."""
        self._bridge.run(
            self._aio.dead_letter_message, message, reason, error_description, properties_to_modify=properties_to_modify
        )

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> None:
        """Record that the lock on a message is renewed: the message is locked for the full duration from the commit on.

        The transaction is refused if the lock has ended. So what it sends is sent only while the lock is held, for
        instance the progress of a long handler. A message of a session has no lock of its own.
        """
        self._bridge.run(self._aio.renew_message_lock, message)

    def set_session_state(self, session: ServiceBusSession, state: str | bytes | bytearray | None) -> None:
        """Record the new state of a session that a receiver of the same client holds. ``None`` removes the state.

        If the block sets the state of a session several times, the last one counts.
        """
        self._bridge.run(
            self._aio.set_session_state,
            twin_for(
                session, ServiceBusSession, "A transaction sets the state of a sbredis.ServiceBusSession, not of a"
            ),
            state,
        )

    # -- once ----------------------------------------------------------------------------------------------------------

    def once(self, key: MessageId, window: timedelta | float) -> None:
        """Record a key of the work that the transaction does. The transaction remembers the key for the time
        ``window``, and is refused with :class:`~sbredis.exceptions.KeyAlreadyUsedError` if an earlier transaction has
        used the key and the key's window has not ended.

        The key is remembered by the first entity in which the transaction settles a message or sets a session state;
        without these, by the first entity to which it sends. On a partitioned entity, each partition has keys of its
        own. So transactions that do the same work must have the same first entity and, if that is partitioned, the
        same message key.

        ``key`` is what a message id may be: 1 to 128 characters or bytes, a UUID, or a whole number of 64 bits without
        a sign. Keys with the same text are the same key: 7 and ``"7"``. ``window`` is a timedelta or a number of
        seconds, up to 366 days. A transaction can use several keys.
        """
        self._bridge.run(self._aio.once, key, window)

    # -- watermarks ----------------------------------------------------------------------------------------------------

    def advance(self, sender: ServiceBusSender, name: str, to: str | None, *, expected: str | None) -> None:
        """Record a new value of a watermark: a short text that an entity keeps for good under a name.

        The transaction is refused with :class:`~sbredis.exceptions.WatermarkChangedError`, which tells the present
        value, if the watermark does not have the ``expected`` value; ``None`` means that there is no watermark of this
        name. So if several clients advance a watermark from the same value, exactly one of them succeeds, together with
        everything else in its transaction. ``to=None`` removes the watermark.

        The watermark belongs to the entity of ``sender``. On a partitioned entity its name decides its partition, as a
        message key does: messages of the same transaction need the name as their ``partition_key`` or ``session_id``.
        The partition keeps the sequence number of the last message that was sent to the entity together with a new
        value (:attr:`watermarks`).

        ``name`` has 1 to 128 characters, a value 1 to 128 printable ASCII characters. A partition keeps up to 10,000
        watermarks, until they are removed or the entity is deleted.
        """
        self._bridge.run(
            self._aio.advance,
            twin_for(sender, ServiceBusSender, "A transaction sends with a sbredis.ServiceBusSender, not with a"),
            name,
            to,
            expected=expected,
        )
