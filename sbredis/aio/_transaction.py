"""Transactions: sends and settlements that happen together, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from sbredis._public import public_name
from sbredis._quoting import quoted
from sbredis.aio._committing import (
    AdvancePart,
    SendPart,
    SettlePart,
    StatePart,
    TransactedKind,
    TransactionPart,
    commit,
)
from sbredis.aio._sender import ServiceBusSender, outbox_of
from sbredis.aio._session import ServiceBusSession, held_session
from sbredis.client import deadline_of
from sbredis.engine import MAXIMUM_CALL_BYTES, MessageId, Outgoing, identifier, is_dead
from sbredis.exceptions import MessageAlreadySettled, MessageSizeExceededError, OperationTimeoutError, Outcome
from sbredis.model import (
    MessageTypes,
    PrimitiveTypes,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    as_messages,
    contents_of,
    duplicate_key,
    keep_id,
    outgoing,
    use_id,
    work_key,
)
from sbredis.receiving import changes_of, delay_of, lock_ended, require_lock, state_bytes
from sbredis.sending import scheduled, sent_key

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.receiving import HeldSession
    from sbredis.sending import Outbox
    from sbredis.telemetry import Telemetry

__all__ = ["ServiceBusTransaction"]

_MOST_MESSAGES = 100
_LONGEST = 120.0
_LONGEST_MARK = 128
_LONGEST_WINDOW = 366 * 86400.0
_REFUSALS = {
    "new": "Enter the transaction first: async with client.transaction() as tx (or with, in sync).",
    "rolled_back": "The transaction was rolled back. Make a new one with client.transaction().",
    "ended": "The transaction has ended. Make a new one with client.transaction().",
}
"""Why a transaction records nothing in each state but open."""


class ServiceBusTransaction:
    """Sends and settlements that happen together, or not at all. Made by :meth:`ServiceBusClient.transaction`.

    The methods only record what to do. The transaction does all of it at the end of its ``async with`` block, in one
    call. If an exception leaves the block, or after :meth:`rollback`, it does nothing: no message is sent, and every
    received message stays locked.

    A transaction takes up to 100 messages, session states, keys and watermarks of up to 4 MB together, for up to two
    minutes. All messages that it settles must be in one slot of the namespace: those of two entities are if one was
    created with ``colocate_with`` the other, and those of partitioned entities need the same key too. Messages that it
    sends to an entity elsewhere wait in that slot, and a client with ``maintenance=True`` moves them. Tasks and threads
    may use the transaction at the same time, until its block ends.
    """

    def __init__(self, connection: Connection, telemetry: Telemetry, timeout: float | None) -> None:
        self._connection = connection
        self._timeout = timeout
        self._reference = connection.reference()
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._parts: list[TransactionPart] = []
        self._undo: list[Callable[[], None]] = []
        """Functions that let the messages keep their ids, because they were not sent."""
        self._named: set[int] = set()
        self._states: dict[HeldSession, StatePart] = {}
        self._keys: dict[bytes, tuple[MessageId, int]] = {}
        self._advances: dict[tuple[Outbox, str], AdvancePart] = {}
        self._watermarks: dict[str, int | None] = {}
        self._count = self._size = 0
        self._begun: float | None = None
        self._state: Literal["new", "open", "rolled_back", "ended"] = "new"
        """It becomes open at the start of the block, rolled_back by a rollback, and ended at the end of the block."""
        self._duplicates: tuple[ServiceBusMessage, ...] = ()

    @property
    def duplicates(self) -> tuple[ServiceBusMessage, ...]:
        """After the block: the messages that duplicate detection has dropped. All others were sent."""
        return self._duplicates

    @property
    def watermarks(self) -> Mapping[str, int | None]:
        """After the block: the watermarks that it has advanced, each with the sequence number that is stored with it:
        that of the last message that was sent with the watermark, or ``None`` if there was none.
        """
        return self._watermarks

    def __repr__(self) -> str:
        state = "open" if self._state == "rolled_back" else self._state
        return f"<ServiceBusTransaction of {len(self._parts)} calls, {state}>"

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise ValueError("The transaction was used already. Make a new one with client.transaction().")
        self._connection.check_open()
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            commits = kind is None and self._state == "open" and bool(self._parts or self._keys)
            self._state = "ended"
        try:
            if commits:
                await self._commit()
                self._undo.clear()
                self._watermarks = {part.name: part.sequence_number for part in self._advances.values()}
        finally:
            self._forget()

    def rollback(self) -> None:
        """Forget everything that was recorded. At the end of the block nothing happens, and locks stay as they are."""
        with self._lock:
            self._check()
            self._state = "rolled_back"
            self._forget()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_messages(self, sender: ServiceBusSender, message: MessageTypes | ServiceBusMessageBatch) -> None:
        """Record a send of a message, several messages or a batch, with a sender of the same client."""
        outbox = self._outbox(sender)
        with self._lock:
            if isinstance(message, ServiceBusMessageBatch):
                contents = contents_of(message)
                undo = [partial(contents.keep_ids, contents.use_ids())]
                made = list(contents.outgoing)
                size = sum(len(one.payload) for one in made)
                self._send(outbox, list(contents.messages), made, size, undo, needs_numbers=False)
            else:
                self._encode_and_send(outbox, as_messages(message), needs_numbers=False)

    def schedule_messages(
        self, sender: ServiceBusSender, messages: MessageTypes, schedule_time_utc: datetime | Sequence[datetime]
    ) -> list[int]:
        """Record messages to be scheduled, as :meth:`ServiceBusSender.schedule_messages` does.

        Returns a list that is empty until the end of the block. Then it has the sequence numbers of the messages.
        """
        outbox = self._outbox(sender)
        with self._lock:
            self._check()
            listed = scheduled(as_messages(messages), schedule_time_utc)
            return self._encode_and_send(outbox, listed, needs_numbers=True)

    def _outbox(self, sender: ServiceBusSender) -> Outbox:
        if not isinstance(sender, ServiceBusSender):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"This transaction sends with senders of its client, sbredis.aio.ServiceBusSender, not with "
                f"{public_name(sender)}."
            )
        outbox = outbox_of(sender)
        if outbox.connection is not self._connection:
            raise ValueError("The sender belongs to another client. Use a sender of the client of the transaction.")
        outbox.check_open()
        return outbox

    def _encode_and_send(self, outbox: Outbox, listed: list[ServiceBusMessage], *, needs_numbers: bool) -> list[int]:
        self._check()
        if self._telemetry.watching:
            self._telemetry.create(outbox.destination, listed)
        made: list[Outgoing] = []
        undo: list[Callable[[], None]] = []
        size = 0
        try:
            for message in listed:
                made.append(one := outgoing(message, detects_duplicates=True))
                size += len(one.payload)
                # Give the id before the next message is encoded, because the same object may be in the list twice.
                undo.append(partial(keep_id, message, use_id(message)))
        except BaseException:
            for each in undo:
                each()
            raise
        return self._send(outbox, listed, made, size, undo, needs_numbers=needs_numbers)

    def _send(
        self,
        outbox: Outbox,
        listed: list[ServiceBusMessage],
        made: list[Outgoing],
        size: int,
        undo: Sequence[Callable[[], None]],
        *,
        needs_numbers: bool,
    ) -> list[int]:
        """Record encoded messages. Return the list that gets their sequence numbers."""
        part = SendPart(outbox, made, listed, needs_numbers)
        try:
            self._record(part, len(made), size)
        except BaseException:
            for each in undo:
                each()
            raise
        self._undo += undo
        return part.numbers

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Record that a message is settled as done."""
        self._settle("complete", message)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is unlocked, as :meth:`ServiceBusReceiver.abandon_message` does."""
        self._settle("abandon", message, delay=delay_of(delay), modify=properties_to_modify)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is set aside, as :meth:`ServiceBusReceiver.defer_message` does."""
        self._settle("defer", message, modify=properties_to_modify)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        """Record that a message is moved to the dead-letter queue, with the reason."""
        self._settle("dead_letter", message, modify=properties_to_modify, reason=reason, description=error_description)

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> None:
        """Record that the lock on a message is renewed: the message is locked for the full duration from the commit on.

        The transaction is refused if the lock has ended. So what it sends is sent only while the lock is held, for
        instance the progress of a long handler. A message of a session has no lock of its own.
        """
        self._settle("renew", message)

    def _settle(
        self,
        kind: TransactedKind,
        message: ServiceBusReceivedMessage,
        *,
        delay: int = 0,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        hold = require_lock(message, kind)
        entity: Entity = hold.reception.link.entity
        if entity.connection is not self._connection:
            raise ValueError("The message was received through another client. Use a transaction of that client.")
        if kind == "renew" and hold.session is not None:
            raise TypeError("A message of a session has no lock of its own: renew the lock of the session.")
        if hold.lock_expired(self._connection.clock.now()):
            raise lock_ended(hold, entity.name)
        if kind == "dead_letter" and is_dead(hold.name):
            raise ValueError("The message is on the dead-letter queue already. Complete it, abandon it or defer it.")
        changes = changes_of(hold, modify, reason, description)
        with self._lock:
            if id(hold) in self._named:
                raise MessageAlreadySettled(
                    "The transaction settles this message or renews its lock already. It does one of both, once."
                )
            key = sent_key(entity, message) if entity.partitioned else None
            self._record(SettlePart(kind, hold, key, changes, delay), 1, len(changes))
            self._named.add(id(hold))

    def set_session_state(self, session: ServiceBusSession, state: str | bytes | bytearray | None) -> None:
        """Record the new state of a session that a receiver of the same client holds. ``None`` removes the state.

        If the block sets the state of a session several times, the last one counts.
        """
        if not isinstance(session, ServiceBusSession):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                "This transaction sets the state of a receiver's session, sbredis.aio.ServiceBusSession, not of "
                f"{public_name(session)}."
            )
        kept = state_bytes(state)
        held = held_session(session)
        if held.entity.connection is not self._connection:
            raise ValueError("The session was accepted through another client. Use a transaction of that client.")
        held.check()
        part = StatePart(held, kept)
        with self._lock:
            before = self._states.get(held)
            self._record(
                part,
                1 if before is None else 0,
                len(kept or b"") - (0 if before is None else len(before.state or b"")),
            )
            if before is not None:
                self._parts.remove(before)
            self._states[held] = part

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
        key = work_key(key)
        stored, milliseconds = duplicate_key(key), _milliseconds(window)
        with self._lock:
            self._check()
            if stored in self._keys:
                raise ValueError(f"The transaction uses the key {quoted(key)} already. Give each key once.")
            self._require_room(1, len(stored))
            self._keys[stored] = (key, milliseconds)
            self._note(1, len(stored))

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
        outbox = self._outbox(sender)
        identifier(name, "name")
        for argument, value in (("to", to), ("expected", expected)):
            if value is not None:
                _check_watermark(argument, value)
        if to is None and expected is None:
            raise ValueError("to and expected are both None: a watermark that is not there cannot be removed.")
        with self._lock:
            if any(known == name and other.destination == outbox.destination for other, known in self._advances):
                raise ValueError(f"The transaction advances the watermark {quoted(name)} already. Advance it once.")
            part = AdvancePart(outbox, name, expected, to)
            self._record(part, 1, len(name) + len(to or ""))
            self._advances[outbox, name] = part

    # -- its end -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._state != "open":
            raise ValueError(_REFUSALS[self._state])

    def _record(self, part: TransactionPart, count: int, size: int) -> None:
        self._check()
        if not count and not size and not isinstance(part, StatePart):
            return  # an empty list of messages
        self._require_room(count, size)
        self._parts.append(part)
        self._note(count, size)

    def _require_room(self, count: int, size: int) -> None:
        if self._count + count > _MOST_MESSAGES:
            raise MessageSizeExceededError(
                f"A transaction takes up to {_MOST_MESSAGES} messages, session states, keys and watermarks, and with "
                f"this call it would have {self._count + count}.",
                outcome=Outcome.NEVER_SENT,
            )
        if self._size + size > MAXIMUM_CALL_BYTES:
            raise MessageSizeExceededError(
                f"A transaction takes up to {MAXIMUM_CALL_BYTES} bytes; with this call it would have "
                f"{self._size + size}.",
                outcome=Outcome.NEVER_SENT,
            )

    def _note(self, count: int, size: int) -> None:
        if self._begun is None:
            self._begun = self._connection.clock.now()
        self._count, self._size = self._count + count, self._size + size

    async def _commit(self) -> None:
        if self._begun is not None and self._connection.clock.now() - self._begun > _LONGEST:
            raise OperationTimeoutError(
                f"The transaction was open for more than {_LONGEST:.0f} seconds after its first call, so it was not "
                "committed. Nothing has changed.",
                outcome=Outcome.NEVER_SENT,
            )
        with self._telemetry.operation("transaction", "", count=self._count):
            deadline = deadline_of(self._timeout)
            self._duplicates = tuple(await commit(self._parts, self._keys, self._count, self._size, deadline))

    def _forget(self) -> None:
        """Forget all parts. Messages that were not sent keep their ids for the next send."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._parts.clear()
        self._named.clear()
        self._states.clear()
        self._keys.clear()
        self._advances.clear()


def _check_watermark(name: str, value: object) -> None:
    """Refuse a value that a watermark cannot have."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")
    if not 1 <= len(value) <= _LONGEST_MARK or not value.isascii() or not value.isprintable():
        raise ValueError(f"{name} must have 1 to {_LONGEST_MARK} printable ASCII characters, unlike {quoted(value)}")


def _milliseconds(window: object) -> int:
    """Return the window of a key in ms."""
    if isinstance(window, timedelta):
        window = window.total_seconds()
    if isinstance(window, bool) or not isinstance(window, (int, float)):
        raise TypeError(f"window must be a timedelta or a number of seconds, not {type(window).__name__}")
    if not 0 < window <= _LONGEST_WINDOW:
        raise ValueError(f"window must be more than 0 seconds and at most 366 days, not {quoted(window)}")
    return max(1, round(window * 1000))
