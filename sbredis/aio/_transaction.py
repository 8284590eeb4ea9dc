"""Transactions: sends and settlements that happen together, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from sbredis._public import public_name
from sbredis.aio._sender import ServiceBusSender, outbox_of
from sbredis.aio._transacting import Part, SendPart, SettleKind, SettlePart, StatePart, commit
from sbredis.aio.calls._arguments import deadline_of
from sbredis.aio.receiving._changes import changes_of, delay_of
from sbredis.aio.receiving._held_session import state_bytes
from sbredis.aio.receiving._lost_locks import lock_ended
from sbredis.aio.receiving._session import ServiceBusSession, held_session
from sbredis.aio.receiving._settling import require_lock
from sbredis.aio.sending._sendable import scheduled
from sbredis.engine import MAXIMUM_CALL_BYTES, decode
from sbredis.exceptions import MessageAlreadySettled, MessageSizeExceededError, OperationTimeoutError, Outcome
from sbredis.model import (
    MessageTypes,
    PrimitiveTypes,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    as_messages,
    from_content,
    keep_id,
    outgoing,
    use_id,
)

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.telemetry._telemetry import Telemetry

__all__ = ["ServiceBusTransaction"]

_MOST_MESSAGES = 100
_LONGEST = 120.0


class ServiceBusTransaction:
    """Sends and settlements that happen together, or not at all. Made by :meth:`ServiceBusClient.transaction`.

    The methods only record what to do. The transaction does all of it at the end of its ``async with`` block, in one
    call. If an exception leaves the block, or after :meth:`rollback`, it does nothing: no message is sent, and every
    received message stays locked.

    A transaction takes up to 100 messages of up to 4 MB together, for up to two minutes. All its entities must share a
    partition of the namespace: partitioned entities do if the messages have the same key, and other entities do if one
    was created with ``colocate_with`` the other. Tasks and threads may use it at the same time, until its block ends.
    """

    def __init__(self, connection: Connection, telemetry: Telemetry) -> None:
        self._connection = connection
        self._share = connection.share()
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._parts: list[Part] = []
        self._ids: list[tuple[ServiceBusMessage, str | None]] = []
        self._named: set[int] = set()
        self._count = self._size = 0
        self._begun: float | None = None
        self._state: Literal["new", "open", "ended"] = "new"
        self._rolled_back = False
        self._duplicates: tuple[ServiceBusMessage, ...] = ()

    @property
    def duplicates(self) -> tuple[ServiceBusMessage, ...]:
        """After the block: the messages that duplicate detection has dropped. All others were sent."""
        return self._duplicates

    def __repr__(self) -> str:
        return f"<ServiceBusTransaction of {len(self._parts)} calls, {self._state}>"

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
            self._state = "ended"
        try:
            if kind is None and self._parts and not self._rolled_back:
                await self._commit()
                self._ids.clear()
        finally:
            self._forget()

    def rollback(self) -> None:
        """Forget everything that was recorded. At the end of the block nothing happens, and locks stay as they are."""
        with self._lock:
            self._check()
            self._rolled_back = True
            self._forget()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_messages(self, sender: ServiceBusSender, message: MessageTypes) -> None:
        """Record a send of a message, or of several messages, with a sender of the same client."""
        self._send(sender, as_messages(message))

    def schedule_messages(
        self, sender: ServiceBusSender, messages: MessageTypes, schedule_time_utc: datetime | Sequence[datetime]
    ) -> list[int]:
        """Record messages to be scheduled, as :meth:`ServiceBusSender.schedule_messages` does.

        Returns a list that is empty until the end of the block. Then it has the sequence numbers of the messages.
        """
        return self._send(sender, scheduled(as_messages(messages), schedule_time_utc)).numbers

    def _send(self, sender: ServiceBusSender, listed: list[ServiceBusMessage]) -> SendPart:
        if not isinstance(sender, ServiceBusSender):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"A transaction sends with a ServiceBusSender, not {public_name(sender)}.")
        outbox = outbox_of(sender)
        if outbox.connection is not self._connection:
            raise ValueError("The sender belongs to another client. Use a sender of the client of the transaction.")
        outbox.check_open()
        if self._telemetry.watching:
            self._telemetry.create(outbox.destination, listed)
        made = [outgoing(message, detects_duplicates=True) for message in listed]
        copies = [from_content(decode(one.payload)) for one in made]
        part = SendPart(outbox, copies, made, listed)
        with self._lock:
            self._record(part, len(listed), sum(len(one.payload) for one in made))
            self._ids += [(message, use_id(message)) for message in listed]
        return part

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

    def _settle(
        self,
        kind: SettleKind,
        message: ServiceBusReceivedMessage,
        *,
        delay: int = 0,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        hold = require_lock(message, kind)
        entity: Entity = hold.source.owner  # type: ignore[assignment]
        if entity.runtime is not self._connection:
            raise ValueError("The message was received through another client. Use a transaction of that client.")
        if hold.lock_expired(self._connection.clock.now()):
            raise lock_ended(hold, entity.name)
        if kind == "dead_letter" and hold.name.startswith("d"):
            raise ValueError("The message is on the dead-letter queue already. Complete it, abandon it or defer it.")
        changes = b""
        if modify is not None or reason is not None or description is not None:
            changes = changes_of(hold, modify, reason, description)
        with self._lock:
            if id(hold) in self._named:
                raise MessageAlreadySettled("The transaction settles this message already. It can be settled once.")
            self._record(SettlePart(kind, hold, changes, delay), 1, len(changes))
            self._named.add(id(hold))

    def set_session_state(self, session: ServiceBusSession, state: str | bytes | bytearray | None) -> None:
        """Record the new state of a session that a receiver of the same client holds. ``None`` removes the state.

        If the block sets the state of a session several times, the last one counts.
        """
        if not isinstance(session, ServiceBusSession):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"A transaction sets the state of a receiver's session, not of {public_name(session)}.")
        kept = state_bytes(state)
        held = held_session(session)
        if held.entity.runtime is not self._connection:
            raise ValueError("The session was accepted through another client. Use a transaction of that client.")
        held.check()
        with self._lock:
            self._record(StatePart(held, kept), 0, len(kept or b""))

    # -- its end -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._state == "new":
            raise ValueError("Enter the transaction first: async with client.transaction() as tx (or with, in sync).")
        if self._state == "ended":
            raise ValueError("The transaction has ended. Make a new one with client.transaction().")
        if self._rolled_back:
            raise ValueError("The transaction was rolled back. Make a new one with client.transaction().")

    def _record(self, part: Part, count: int, size: int) -> None:
        self._check()
        if self._count + count > _MOST_MESSAGES:
            raise MessageSizeExceededError(
                f"A transaction takes up to {_MOST_MESSAGES} messages, and this would be number {self._count + count}.",
                outcome=Outcome.NEVER_SENT,
            )
        if self._size + size > MAXIMUM_CALL_BYTES:
            raise MessageSizeExceededError(
                f"A transaction takes up to {MAXIMUM_CALL_BYTES} bytes; with this call it would have "
                f"{self._size + size}.",
                outcome=Outcome.NEVER_SENT,
            )
        if self._begun is None:
            self._begun = time.monotonic()
        self._parts.append(part)
        self._count, self._size = self._count + count, self._size + size

    async def _commit(self) -> None:
        if self._begun is not None and time.monotonic() - self._begun > _LONGEST:
            raise OperationTimeoutError(
                f"The transaction was open for more than {_LONGEST:.0f} seconds after its first call, so it was not "
                "committed. Nothing has changed.",
                outcome=Outcome.NEVER_SENT,
            )
        with self._telemetry.operation("transaction", "", count=self._count):
            self._duplicates = tuple(await commit(self._parts, deadline_of(None)))

    def _forget(self) -> None:
        """Forget all parts. Messages that were not sent keep their ids for the next send."""
        for message, message_id in self._ids:
            keep_id(message, message_id)
        self._ids.clear()
        self._parts.clear()
        self._named.clear()
