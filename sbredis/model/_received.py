"""A message as it is received or peeked."""

# The modules of this package share what a message is made of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Never, NoReturn
from uuid import UUID

from sbredis.engine import (
    NEVER,
    Content,
    Delivery,
    NamedValues,
    Record,
    Value,
    decode,
    decode_changes,
    payload_offset,
    read_record,
)
from sbredis.model._checks import moment
from sbredis.model._enums import ServiceBusMessageState
from sbredis.model._hold import Hold, MessageLease, Source
from sbredis.model._message import ServiceBusMessage, copied, from_content

__all__ = ["ServiceBusReceivedMessage", "delivered", "hold_of"]

_new: Any = object.__new__
_STATES = {
    "f": ServiceBusMessageState.DEFERRED,
    "g": ServiceBusMessageState.DEFERRED,
    "s": ServiceBusMessageState.SCHEDULED,
}
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_BROKERS_REASONS: dict[str, tuple[str, str]] = {
    "H": ("HeaderSizeExceeded", "The properties of the message are larger than its entity takes."),
    "M": ("MaxDeliveryCountExceeded", "The message was delivered as often as its entity allows and never completed."),
    "S": ("Session ID is null.", "The message has no session, and its entity requires sessions."),
    "T": ("TTLExpiredException", "The message expired and was dead lettered."),
}


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A message that was received or peeked. Receivers make them.

    What its sender gave is read when it is first asked for.
    """

    __slots__ = ("_hold", "_record", "auto_renew_error")

    _hold: Hold
    _record: Record

    auto_renew_error: Exception | None
    """Why its lock could not be renewed automatically; ``None`` as long as nothing went wrong."""

    def __init__(self, *_: Never, **__: Never) -> NoReturn:
        raise TypeError(
            "a ServiceBusReceivedMessage is made by a receiver; for a message to be sent see ServiceBusMessage"
        )

    if not TYPE_CHECKING:  # a type checker would take it that every name is an attribute

        def __getattr__(self, name: str) -> Any:
            """Fill the slots that are filled when they are first asked for."""
            if name == "_content":
                content = self._content = self._read()
                return content
            if name == "_record":
                record = self._record = read_record(self._hold.delivery.record)
                return record
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _read(self) -> Content:
        """What the sender gave, with what was changed since."""
        delivery = self._hold.delivery
        content = decode(delivery.record, payload_offset(delivery.record))
        if delivery.changes:
            changed = decode_changes(delivery.changes)
            if changed.properties is not None:
                content.properties = changed.properties
            for name, value in (changed.system or {}).items():
                setattr(content, name, value)
        if delivery.reason == "-":
            return content
        added: dict[str, Value] = {}
        reason, description = self._death()
        if reason is not None:
            added[_REASON] = reason
        if description is not None:
            added[_DESCRIPTION] = description
        if added:
            content.properties = NamedValues({**(content.properties or {}), **added})
        return content

    def _death(self) -> tuple[str | None, str | None]:
        """Why it is a dead letter, in a word and in a sentence."""
        reason = self._hold.delivery.reason
        if reason == "-":
            return None, None
        if reason in _BROKERS_REASONS:
            return _BROKERS_REASONS[reason]
        changes = decode_changes(self._hold.delivery.changes)
        return changes.reason, changes.description

    def _sendable(self) -> ServiceBusMessage:
        return from_content(copied(self._content))

    def _facts(self) -> list[str]:
        facts = [f"sequence_number={self.sequence_number}", f"delivery_count={self.delivery_count}"]
        hold = self._hold
        if hold.source.peeked:
            facts.append(f"peeked, {self.state.name.lower()}")
        elif hold.settled:
            facts.append("settled")
        elif hold.lease is not None and hold.lease.session is not None:
            facts.append("locked with its session")
        elif (until := self.locked_until_utc) is not None:
            facts.append(f"locked until {until.isoformat(timespec='milliseconds')}")
        else:
            facts.append("not locked")
        try:
            return facts + super()._facts()
        except ValueError as error:
            return [*facts, f"unreadable: {error}"]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """What a copy and a pickle hold: what it says and said of itself, without its lock, which is the original's."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return None, held | {"_content": copied(self._content), "_hold": self._hold.unlocked()}

    # -- its place in the queue ----------------------------------------------------------------------------------------

    @property
    def sequence_number(self) -> int:
        """The number the broker gave it, rising; on a partitioned entity the upper 16 of 64 bits are the partition."""
        return self._hold.sequence_number

    @property
    def enqueued_sequence_number(self) -> int:
        """The number the broker gave it where it was sent to; it differs from the other only when it was forwarded."""
        return self.sequence_number

    @property
    def enqueued_time_utc(self) -> datetime | None:
        """When it was enqueued; ``None`` as long as it is scheduled."""
        enqueued = self._record.enqueued
        return None if enqueued is None else moment(enqueued)

    @property
    def expires_at_utc(self) -> datetime | None:
        """When it expires; ``None`` if it never does."""
        own = self._hold.delivery.expires
        expires = self._record.expires if own is None else own
        return None if expires >= NEVER else moment(expires)

    @property
    def state(self) -> ServiceBusMessageState:
        """Its state when it was peeked. A received message is active, or deferred if it was received by its number."""
        return _STATES.get(self._hold.delivery.state, ServiceBusMessageState.ACTIVE)

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this delivery included: 1 at the first. A peek is no delivery."""
        hold = self._hold
        return hold.delivery.failures if hold.source.peeked else hold.delivery.failures + 1

    # -- its lock ------------------------------------------------------------------------------------------------------

    @property
    def lock_token(self) -> UUID | None:
        """Identifies this delivery, through all renewals of its lock.

        ``None`` for a message that is not locked: peeked, received and deleted, or settled.
        """
        hold = self._hold
        if not hold.locked or hold.first_lease is None:
            return None
        return UUID(bytes=blake2b(f"{hold.first_lease.token} {hold.name}".encode(), digest_size=16).digest())

    @property
    def locked_until_utc(self) -> datetime | None:
        """When its lock ends unless it is renewed; ``None`` if it has no lock of its own, as a message of a session."""
        lease = self._hold.lease
        if lease is None or lease.session is not None or not self._hold.locked:
            return None
        return datetime.fromtimestamp(lease.until_utc, UTC)

    # -- its death -----------------------------------------------------------------------------------------------------

    @property
    def dead_letter_reason(self) -> str | None:
        """Why it is a dead letter, in a word: the broker's, or what the application gave."""
        return self._death()[0]

    @property
    def dead_letter_error_description(self) -> str | None:
        """Why it is a dead letter, in a sentence: the broker's, or what the application gave."""
        return self._death()[1]

    @property
    def dead_letter_source(self) -> str | None:
        """The entity in which it became a dead letter, if it was forwarded from there; else ``None``."""
        return None


def delivered(delivery: Delivery, source: Source, lease: MessageLease | None) -> ServiceBusReceivedMessage:
    """The message that was given out or shown."""
    message: ServiceBusReceivedMessage = _new(ServiceBusReceivedMessage)
    hold: Hold
    hold = message._hold = _new(Hold)  # slot by slot: half the price of a constructor
    hold.delivery = delivery
    hold.name = delivery.name
    hold.source = source
    hold.lease = hold.first_lease = lease
    hold.settled = False
    hold.watchers = ()
    message.auto_renew_error = None
    return message


def hold_of(message: ServiceBusReceivedMessage) -> Hold:
    """What this client knows of a message."""
    return message._hold
