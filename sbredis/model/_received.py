"""A message that was received or peeked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Never, NoReturn
from uuid import UUID

from sbredis.engine import (
    NEVER,
    Content,
    Delivery,
    LockToken,
    NamedValues,
    Record,
    Value,
    decode,
    decode_changes,
    payload_offset,
    read_record,
    set_system,
)
from sbredis.exceptions import DataLayoutError
from sbredis.model._checks import lifetime, moment
from sbredis.model._enums import ServiceBusMessageState
from sbredis.model._hold import Hold, MessageLease, Reception
from sbredis.model._message import ServiceBusMessage, copied, from_content

__all__ = ["BROKERS_REASONS", "ServiceBusReceivedMessage", "delivered", "hold_of", "lease_of"]

_new: Any = object.__new__
_STATES = {
    "f": ServiceBusMessageState.DEFERRED,
    "g": ServiceBusMessageState.DEFERRED,
    "s": ServiceBusMessageState.SCHEDULED,
}
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_TOO_OFTEN = "MaxDeliveryCountExceeded"
_MOST_LAPSES = 14
"""The number of ends of holders up to which a dead letter counts them."""


def _lapsed(times: int) -> str:
    said = "the last time" if times == 1 else f"the last {times} times"
    return (
        "The message was delivered as often as its entity allows, and its holder ended, or lost the lock, "
        f"{'at least ' if times == _MOST_LAPSES else ''}{said}."
    )


BROKERS_REASONS: dict[str, tuple[str, str]] = {
    **{chr(ord("0") + times): (_TOO_OFTEN, _lapsed(times)) for times in range(1, _MOST_LAPSES + 1)},
    "H": ("HeaderSizeExceeded", "The properties of the message are larger than its entity takes."),
    "M": (_TOO_OFTEN, "The message was delivered as often as its entity allows and never completed."),
    "R": ("RecordMissing", "The stored record of the message was missing or damaged, so its content is lost."),
    "S": ("Session ID is null.", "The message has no session, and its entity requires sessions."),
    "T": ("TTLExpiredException", "The message expired and was dead lettered."),
}


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A message that was received or peeked. Receivers make them.

    The sender's data are decoded at the first access.
    """

    __slots__ = ("_hold", "_lifetime", "_record", "auto_renew_error")

    _hold: Hold
    _record: Record
    _lifetime: int | None
    """The time to live that applies, in ms, or the one that the application has assigned."""

    auto_renew_error: Exception | None
    """Why the lock could not be renewed automatically; ``None`` if there was no error."""

    def __init__(self, *_: Never, **__: Never) -> NoReturn:
        raise TypeError(
            "a ServiceBusReceivedMessage is made by a receiver; to make a message that can be sent, use "
            "ServiceBusMessage"
        )

    if not TYPE_CHECKING:  # if type checkers saw this method, they would accept any attribute name

        def __getattr__(self, name: str) -> Any:
            """Give a value to a slot that is empty until its first access."""
            if name == "_content":
                try:
                    content = self._content = current_content(self._hold.delivery)
                except DataLayoutError as error:
                    link = self._hold.reception.link
                    error.entity = None if link is None else link.entity.name
                    raise
                return content
            if name == "_record":
                record = self._record = read_record(self._hold.delivery.record)
                return record
            if name == "_lifetime":
                found = self._lifetime = self._applying_lifetime()
                return found
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _applying_lifetime(self) -> int | None:
        enqueued, expires = self._record.enqueued, self._expires
        if enqueued is None:
            return self._content.time_to_live
        return None if expires >= NEVER else expires - enqueued

    @property
    def _expires(self) -> int:
        own = self._hold.delivery.expires
        return self._record.expires if own is None else own

    def _dead_letter_reasons(self) -> tuple[str | None, str | None]:
        delivery = self._hold.delivery
        if delivery.reason != "-" or self._content.dead_letter_source is None:
            return _dead_letter_reasons(delivery)
        # A dead letter that was forwarded has its reason as application properties.
        reason, description = (
            value if isinstance(value, str) else None
            for value in map((self._content.properties or {}).get, (_REASON, _DESCRIPTION))
        )
        return reason, description

    def _sendable(self) -> ServiceBusMessage:
        content = copied(self._content)
        content.hops = content.enqueued_number = content.dead_letter_source = content.dead_letter_number = None
        if content.raw_amqp is None:  # if not, it does not agree with what has changed
            content.modified = None
        return from_content(content)

    def _facts(self) -> list[str]:
        facts = [f"sequence_number={self.sequence_number}", f"delivery_count={self.delivery_count}"]
        hold = self._hold
        if hold.reception.peeked:
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
        except DataLayoutError as error:
            return [*facts, error.message]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return the state for a copy or a pickle: the message without its lock, which the original keeps."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return None, held | {"_content": copied(self._content), "_hold": self._hold.unlocked()}

    # -- the position in the queue -------------------------------------------------------------------------------------

    @property
    def sequence_number(self) -> int:
        """The rising number that the broker gave the message. On a partitioned entity, the upper 16 of the number's 64
        bits are the partition.
        """
        return self._hold.sequence_number

    @property
    def enqueued_sequence_number(self) -> int:
        """The sequence number in the entity to which the message was sent. It differs from :attr:`sequence_number` only
        if the message was forwarded, or if it is a dead letter.
        """
        number, died_as = self._content.enqueued_number, self._died_as
        if number is not None:
            return number
        return self.sequence_number if died_as is None else died_as

    @property
    def enqueued_time_utc(self) -> datetime:
        """The time at which the message was enqueued. A message that is still scheduled has the time for which it is
        scheduled. If the stored record of the message is lost, the time is the beginning of 1970.
        """
        enqueued = self._record.enqueued
        if enqueued is None:
            enqueued = self._content.scheduled
        return moment(0 if enqueued is None else enqueued)

    @property
    def expires_at_utc(self) -> datetime | None:
        """The time at which the message expires; ``None`` if it never expires."""
        expires = self._expires
        return None if expires >= NEVER else moment(expires)

    @property
    def time_to_live(self) -> timedelta | None:
        """The time from the enqueueing to the expiry, in whole ms: the limit of the entity may have made it shorter
        than the sender has set it. ``None`` if the message never expires.

        A message that is still scheduled has the sender's, because the limit applies when it is enqueued. A message
        that is sent again has the sender's too, unless the application assigns another.
        """
        milliseconds = self._lifetime
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    @time_to_live.setter
    def time_to_live(self, value: timedelta | None) -> None:
        self._lifetime = self._content.time_to_live = None if value is None else lifetime(value)

    @property
    def state(self) -> ServiceBusMessageState:
        """The state of the message when it was peeked. A received message is active, or deferred if it was received by
        its number.
        """
        return _STATES.get(self._hold.delivery.state, ServiceBusMessageState.ACTIVE)

    @property
    def delivery_count(self) -> int:
        """The number of deliveries, including this one: 1 for the first. A peek does not count."""
        hold = self._hold
        return hold.delivery.failures if hold.reception.peeked else hold.delivery.failures + 1

    @property
    def is_modified(self) -> bool:
        """Whether properties have changed since the sender gave the message: by a settlement, by the action of a rule,
        or by the reason of a dead letter.

        If not, ``raw_amqp`` still agrees with all other properties. An addition of sbredis.
        """
        return self._content.modified is not None

    # -- the lock ------------------------------------------------------------------------------------------------------

    @property
    def lock_token(self) -> UUID | None:
        """An identifier of this delivery. It stays the same when the lock is renewed.

        With it, any process can settle the message or renew its lock: see :class:`ServiceBusSettler`. ``None`` for a
        message that is not locked: peeked, received and deleted, or settled.
        """
        hold = self._hold
        if not hold.locked or hold.lease is None:
            return None
        return LockToken(hold.lease.token, hold.lease.partition, hold.name).uuid()

    @property
    def fence(self) -> int | None:
        """A number with which an outside resource can recognise the later of two holders of this message.

        Each lock of a message or a session gets a higher number than all earlier locks in the same partition. In a
        session, it is the number of the lock on the session. It stays the same when the lock is renewed. ``None`` as
        for :attr:`lock_token`. An addition of sbredis.
        """
        hold = self._hold
        return hold.lease.fence if hold.locked and hold.lease is not None else None

    @property
    def interrupted(self) -> bool:
        """Whether the receiver that had the message before was interrupted in its work and released the message.

        If another receiver then released it unread, the next delivery still reports the interruption. See
        :meth:`ServiceBusReceiver.release_message`. An addition of sbredis.
        """
        return self._hold.delivery.interrupted

    @property
    def is_suspect(self) -> bool:
        """Whether the handling of the message may end the process that does it: a *suspect*.

        It is one if at least two deliveries since the last settlement ended with the end of the lock, or one if the
        entity allows at most two deliveries. A receiver gets a suspect alone. Any settlement, such as an abandon, ends
        the suspicion. An addition of sbredis.
        """
        return self._hold.delivery.suspect

    @property
    def locked_until_utc(self) -> datetime | None:
        """The time at which the lock ends, unless it is renewed. ``None`` if the message has no lock of its own, as in
        a session.
        """
        lease = self._hold.lease
        if lease is None or lease.session is not None or not self._hold.locked:
            return None
        return datetime.fromtimestamp(lease.until_utc, UTC)

    # -- the dead letter -----------------------------------------------------------------------------------------------

    @property
    def dead_letter_reason(self) -> str | None:
        """The reason why the message is a dead letter, in a word. The broker or the application has given it.

        A dead letter that was forwarded keeps its reason.
        """
        return self._dead_letter_reasons()[0]

    @property
    def dead_letter_error_description(self) -> str | None:
        """The reason why the message is a dead letter, in a sentence. The broker or the application has given it."""
        return self._dead_letter_reasons()[1]

    @property
    def dead_letter_source(self) -> str | None:
        """The entity in which the message became a dead letter, if it was forwarded from there; otherwise ``None``."""
        return self._content.dead_letter_source

    @property
    def dead_letter_source_sequence_number(self) -> int | None:
        """The sequence number that a dead letter had before it became one; ``None`` for a message that never was one.

        A dead-letter queue numbers its messages itself, so :attr:`sequence_number` is another number. A dead letter
        that was forwarded keeps the number that it had in :attr:`dead_letter_source`. An addition of sbredis.
        """
        died_as = self._died_as
        return self._content.dead_letter_number if died_as is None else died_as

    @property
    def _died_as(self) -> int | None:
        hold = self._hold
        return None if hold.delivery.died_as is None else hold.reception.base + hold.delivery.died_as


def current_content(delivery: Delivery, *, with_reason: bool = True) -> Content:
    """Return the sender's data of a message, with all later changes, and the reason if it is a dead letter."""
    content = decode(delivery.record, payload_offset(delivery.record))
    if delivery.changes:
        changed = decode_changes(delivery.changes)
        if changed.properties is not None:
            content.properties, content.modified = changed.properties, 1
        if changed.system:
            set_system(content, changed.system)
            if changed.system.keys() != {"hops"}:
                content.modified = 1
    if delivery.reason == "-" or not with_reason:
        return content
    added: dict[str, Value] = {}
    reason, description = _dead_letter_reasons(delivery)
    if reason is not None:
        added[_REASON] = reason
    if description is not None:
        added[_DESCRIPTION] = description
    if added:
        content.modified = 1
        content.properties = NamedValues({**(content.properties or {}), **added})
    return content


def _dead_letter_reasons(delivery: Delivery) -> tuple[str | None, str | None]:
    """Return why a message is a dead letter, as a word and as a sentence."""
    if delivery.reason == "-":
        return None, None
    if delivery.reason in BROKERS_REASONS:
        return BROKERS_REASONS[delivery.reason]
    changes = decode_changes(delivery.changes)
    return changes.reason, changes.description


def delivered(delivery: Delivery, reception: Reception, lease: MessageLease | None) -> ServiceBusReceivedMessage:
    """Make a message that was delivered or peeked."""
    message: ServiceBusReceivedMessage = _new(ServiceBusReceivedMessage)
    hold: Hold = _new(Hold)  # setting the slots directly takes half the time of a call of the constructor
    hold.delivery = delivery
    hold.name = delivery.name
    hold.reception = reception
    hold.lease = lease
    hold.settled = False
    hold.watchers = ()
    message._hold = hold  # pyright: ignore[reportPrivateUsage]  # in place of the constructor, as above
    message.auto_renew_error = None
    return message


hold_of: Callable[[ServiceBusReceivedMessage], Hold] = attrgetter("_hold")
"""Return the client's record of a message."""
lease_of: Callable[[ServiceBusReceivedMessage], MessageLease | None] = attrgetter("_hold.lease")
"""Return the lock of a message; ``None`` if it was deleted when it was received."""
