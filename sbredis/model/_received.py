"""A message as it is received or peeked."""

# The modules of this package share what a message is made of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from sbredis.model._enums import ServiceBusMessageState, ServiceBusReceiveMode
from sbredis.model._message import ServiceBusMessage, copied, from_content

__all__ = ["Lease", "ServiceBusReceivedMessage", "delivered"]

_new: Any = object.__new__
_PEEK_LOCK = ServiceBusReceiveMode.PEEK_LOCK
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


@dataclass(slots=True, eq=False)
class Lease:
    """The lock that the messages of one receive call share."""

    token: str
    """Under which the partition holds them."""
    until: float
    """When it ends at the latest by the clock of this process, with a margin."""
    until_utc: float
    """When it ends, in seconds since 1970, to be shown."""
    session: str | None = None
    """Whose lock it is, where messages belong to sessions: it stands over theirs."""


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A message that was received or peeked. Receivers make them.

    What its sender gave is read when it is first asked for.
    """

    __slots__ = (
        "_base",
        "_delivery",
        "_lease",
        "_mode",
        "_name",
        "_origin",
        "_owner",
        "_peeked",
        "_record",
        "_settled",
        "_watchers",
        "auto_renew_error",
    )

    _base: int
    _delivery: Delivery
    _lease: Lease | None
    _mode: ServiceBusReceiveMode
    _name: str
    _origin: str
    _owner: object
    _peeked: bool
    _record: Record
    _settled: bool
    _watchers: tuple[Callable[[ServiceBusReceivedMessage], None], ...]

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
                record = self._record = read_record(self._delivery.record)
                return record
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _read(self) -> Content:
        """What the sender gave, with what was changed since."""
        delivery = self._delivery
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
        reason = self._delivery.reason
        if reason == "-":
            return None, None
        if reason in _BROKERS_REASONS:
            return _BROKERS_REASONS[reason]
        changes = decode_changes(self._delivery.changes)
        return changes.reason, changes.description

    def _sendable(self) -> ServiceBusMessage:
        return from_content(copied(self._content))

    def _let_go(self) -> None:
        """Nobody needs to watch over its lock any more."""
        watchers, self._watchers = self._watchers, ()
        for watcher in watchers:
            watcher(self)

    def _lock_expired(self, now: float) -> bool:
        """Whether its lock has ended by the clock of this process."""
        lease = self._lease
        return lease is not None and lease.until <= now

    def _facts(self) -> list[str]:
        facts = [f"sequence_number={self.sequence_number}", f"delivery_count={self.delivery_count}"]
        if self._peeked:
            facts.append(f"peeked, {self.state.name.lower()}")
        elif self._settled:
            facts.append("settled")
        elif self._lease is not None and self._lease.session is not None:
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
        return None, held | {"_content": copied(self._content), "_lease": None, "_owner": None, "_watchers": ()}

    # -- its place in the queue ----------------------------------------------------------------------------------------

    @property
    def sequence_number(self) -> int:
        """The number the broker gave it, rising; on a partitioned entity the upper 16 of 64 bits are the partition."""
        name = self._name
        return self._base + int(name[1:] if name[0] == "d" else name)

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
        own = self._delivery.expires
        expires = self._record.expires if own is None else own
        return None if expires >= NEVER else moment(expires)

    @property
    def state(self) -> ServiceBusMessageState:
        """Its state when it was peeked. A received message is active, or deferred if it was received by its number."""
        return _STATES.get(self._delivery.state, ServiceBusMessageState.ACTIVE)

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this delivery included: 1 at the first. A peek is no delivery."""
        failures = self._delivery.failures
        return failures if self._peeked else failures + 1

    # -- its lock ------------------------------------------------------------------------------------------------------

    @property
    def lock_token(self) -> UUID | None:
        """Identifies this delivery, through all renewals of its lock.

        ``None`` for a message that is not locked: peeked, received and deleted, or settled.
        """
        if not self._holds():
            return None
        return UUID(bytes=blake2b(f"{self._origin} {self._name}".encode(), digest_size=16).digest())

    @property
    def locked_until_utc(self) -> datetime | None:
        """When its lock ends unless it is renewed; ``None`` if it has no lock of its own, as a message of a session."""
        lease = self._lease
        if lease is None or lease.session is not None or not self._holds():
            return None
        return datetime.fromtimestamp(lease.until_utc, UTC)

    def _holds(self) -> bool:
        return not (self._settled or self._peeked or self._lease is None or self._mode is not _PEEK_LOCK)

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


def delivered(
    delivery: Delivery,
    base: int,
    receive_mode: ServiceBusReceiveMode,
    lease: Lease | None,
    owner: object,
    *,
    peeked: bool = False,
) -> ServiceBusReceivedMessage:
    """The message that was given out or shown.

    ``base`` is what the numbers of its partition begin after, ``owner`` the receiver that answers for it.
    """
    message: ServiceBusReceivedMessage = _new(ServiceBusReceivedMessage)
    message._delivery = delivery
    message._name = delivery.name
    message._base = base
    message._mode = receive_mode
    message._lease = lease
    message._origin = "" if lease is None else lease.token
    message._owner = owner
    message._peeked = peeked
    message._settled = False
    message._watchers = ()
    message.auto_renew_error = None
    return message
