"""A message that an application makes."""

# The functions of this module are the interface to the content of a message, so they use its slot.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias, Unpack, cast
from uuid import UUID

from sbredis.engine import Content, MessageId, Outgoing, Value, decode, encode, encode_plain
from sbredis.model._amqp import (
    BODY_SECTIONS,
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    amqp_content_of,
    body_of,
    tidy,
    view,
)
from sbredis.model._body import Body
from sbredis.model._checks import (
    MAXIMUM_PROPERTY_BYTES,
    body_bytes,
    due_time,
    encoded_bytes,
    id_text,
    lifetime,
    moment,
    property_values,
    require_one_key,
    require_single,
    require_small_header,
    text,
    text_keys,
)
from sbredis.model._keywords import AZURE_MESSAGE, NoOptions, refuse_unknown
from sbredis.model._message_ids import comparable_id, correlation, duplicate_key, message_identifier

__all__ = [
    "MessageType",
    "MessageTypes",
    "PrimitiveTypes",
    "PropertyMapping",
    "ServiceBusMessage",
    "as_message",
    "as_messages",
    "content_of",
    "copied",
    "from_content",
    "keep_id",
    "keep_id_of",
    "message_key",
    "outgoing",
    "prepared",
    "routing_key",
    "use_id",
]

_new: Any = object.__new__

PrimitiveTypes: TypeAlias = "bool | int | float | Decimal | str | bytes | datetime | UUID | None"
"""The values that an application property may have: text, bytes, a number, a truth value, a time, a UUID or ``None``. A
number is a whole number of 64 bits, signed or unsigned, a floating-point number or a decimal."""

PropertyMapping: TypeAlias = Mapping[str, Any] | Mapping[bytes, Any] | Mapping[str | bytes, Any]
"""Application properties as a caller gives them: names that are bytes are read as UTF-8, and each value is one of
:data:`PrimitiveTypes`."""


class ServiceBusMessage:
    """A message to be sent.

    ``body`` is bytes, text (sent in UTF-8) or ``None``. ``application_properties`` are the application's own; the rules
    of a topic's subscriptions can examine them. Every other argument sets the property of the same name; see its
    documentation. ``encoding``, which Azure's library has, gives a warning and is ignored.

    A text may have up to 32 KB. All parts except the body may have up to 64 KB together. Raises :class:`TypeError` or
    :class:`ValueError` for values that cannot be sent, at the latest when the message is sent.
    """

    __slots__ = ("__weakref__", "_content")

    _content: Content

    def __init__(  # noqa: C901 -- a line or two for each field
        self,
        body: str | bytes | bytearray | memoryview | None,
        *,
        application_properties: PropertyMapping | None = None,
        session_id: str | None = None,
        message_id: MessageId | None = None,
        scheduled_enqueue_time_utc: datetime | None = None,
        time_to_live: timedelta | None = None,
        content_type: str | None = None,
        correlation_id: MessageId | None = None,
        subject: str | None = None,
        partition_key: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        reply_to_session_id: str | None = None,
        raw_amqp: bytes | None = None,
        **kwargs: Unpack[NoOptions],
    ) -> None:
        # an unset field reads as the default, which is a class attribute of Content
        content = self._content = _new(Content)
        content.body = body if type(body) is bytes else body_bytes(body)
        if message_id is not None:
            content.message_id = message_identifier(message_id, "message_id")
        if application_properties is not None:
            content.properties = property_values(application_properties, "application_properties")
        if session_id is not None:
            content.session_id = id_text(session_id, "session_id", may_be_empty=True)
        if subject is not None:
            content.subject = text(subject, "subject")
        if content_type is not None:
            content.content_type = text(content_type, "content_type")
        if correlation_id is not None:
            content.correlation_id = correlation(correlation_id, "correlation_id")
        if time_to_live is not None:
            content.time_to_live = lifetime(time_to_live)
        if scheduled_enqueue_time_utc is not None:
            content.scheduled = due_time(scheduled_enqueue_time_utc)
        if partition_key is not None:
            self.partition_key = partition_key
        if to is not None:
            content.to = text(to, "to")
        if reply_to is not None:
            content.reply_to = text(reply_to, "reply_to")
        if reply_to_session_id is not None:
            content.reply_to_session_id = id_text(reply_to_session_id, "reply_to_session_id", may_be_empty=True)
        if raw_amqp is not None:
            content.raw_amqp = encoded_bytes(raw_amqp, "raw_amqp")
        if len(kwargs) > 0:
            refuse_unknown(ServiceBusMessage, kwargs, AZURE_MESSAGE)

    # -- the body ------------------------------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """The body, as bytes. For ``b"".join``, ``next`` and ``list`` it is one piece, as with Azure's library.

        ``bytes(message.body)`` gives plain bytes, whose iteration gives each byte as a number. If :attr:`body_type` is
        not ``DATA``, the body is the value or the list that was sent. ``raw_amqp_message.body`` is the same object,
        with a type that lets type checkers accept a value or a list.
        """
        content = self._content
        if content.annotations is not None:
            body: bytes = body_of(content)[1]
            return body
        body = content.body
        if type(body) is bytes:
            body = content.body = Body(body)  # a Body is made only when the application reads the body
        return body

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The kind of the body: ``DATA`` for bytes, as for every message that was not made as an AMQP message."""
        return body_of(self._content)[0]

    def __str__(self) -> str:
        """Return the body as text: bytes are read as UTF-8, with a replacement character for invalid bytes."""
        body: Any = body_of(self._content)[1]
        return body.decode(errors="replace") if isinstance(body, bytes) else str(body)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._facts())}>"

    def _facts(self) -> list[str]:
        """Return facts about the message for logs. They never include the body."""
        content = self._content
        ids = ("message_id", "session_id", "partition_key", "correlation_id", "subject")
        facts = [f"{name}={value!r}" for name in ids if (value := getattr(content, name)) is not None]
        if content.properties:
            facts.append(f"{len(content.properties)} application properties")
        facts.append(f"body of {len(content.body)} bytes")
        return facts

    # -- properties for applications -----------------------------------------------------------------------------------

    @property
    def application_properties(self) -> dict[str, PrimitiveTypes] | None:
        """The application's own properties, by name; ``None`` if there are none.

        The dictionary belongs to the message: changes in it are sent. A dictionary that you assign is copied. Names are
        text; a name in bytes finds the same entry.
        """
        return cast("dict[str, PrimitiveTypes] | None", self._content.properties)

    @application_properties.setter
    def application_properties(self, value: PropertyMapping | None) -> None:
        self._content.properties = None if value is None else property_values(value, "application_properties")

    @property
    def message_id(self) -> MessageId | None:
        """The id of the message: 1 to 128 characters. An entity that detects duplicates uses it to detect repetitions.

        It may also be a UUID, a whole number of 64 bits without a sign, or 1 to 128 bytes. A receiver gets the id
        exactly as it was given. Duplicate detection and rules use the id's text.

        A message without an id gets one when it is sent. It keeps an assigned id if the send fails or its outcome is
        unknown; otherwise it gets a new id when it is sent again. An id that the application has set is never changed.
        """
        return self._content.message_id

    @message_id.setter
    def message_id(self, value: MessageId | None) -> None:
        self._content.message_id = None if value is None else message_identifier(value, "message_id")
        self._content.assigned = None

    @property
    def correlation_id(self) -> MessageId | None:
        """An id of the message or matter that this message refers to, so that applications can match messages.

        It may have any type that a message id may have. A receiver gets it exactly as it was given.
        """
        return self._content.correlation_id

    @correlation_id.setter
    def correlation_id(self, value: MessageId | None) -> None:
        self._content.correlation_id = None if value is None else correlation(value, "correlation_id")

    @property
    def content_type(self) -> str | None:
        """The media type of the body, for example ``application/json``."""
        return self._content.content_type

    @content_type.setter
    def content_type(self, value: str | None) -> None:
        self._content.content_type = None if value is None else text(value, "content_type")

    @property
    def subject(self) -> str | None:
        """The subject of the message, a word by which rules can select; also known as its label."""
        return self._content.subject

    @subject.setter
    def subject(self, value: str | None) -> None:
        self._content.subject = None if value is None else text(value, "subject")

    @property
    def to(self) -> str | None:
        """The recipient of the message, for applications and rules. The broker does not route by it."""
        return self._content.to

    @to.setter
    def to(self, value: str | None) -> None:
        self._content.to = None if value is None else text(value, "to")

    @property
    def reply_to(self) -> str | None:
        """The queue or topic for an answer."""
        return self._content.reply_to

    @reply_to.setter
    def reply_to(self, value: str | None) -> None:
        self._content.reply_to = None if value is None else text(value, "reply_to")

    @property
    def reply_to_session_id(self) -> str | None:
        """The session for an answer: up to 128 characters."""
        return self._content.reply_to_session_id

    @reply_to_session_id.setter
    def reply_to_session_id(self, value: str | None) -> None:
        self._content.reply_to_session_id = (
            None if value is None else id_text(value, "reply_to_session_id", may_be_empty=True)
        )

    # -- properties for the broker -------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str | None:
        """The session of the message: up to 128 characters; the empty text is also an id.

        The messages of a session are received in their order, by one receiver at a time.
        """
        return self._content.session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        content = self._content
        if value is not None:
            value = id_text(value, "session_id", may_be_empty=True)
            require_one_key(content.partition_key, value)
        content.session_id = value

    @property
    def partition_key(self) -> str | None:
        """The partition key: 1 to 128 characters. Messages with the same key go to the same partition.

        Partitioned entities use it. If the message also has a session id, both must be equal.
        """
        return self._content.partition_key

    @partition_key.setter
    def partition_key(self, value: str | None) -> None:
        content = self._content
        if value is not None:
            value = id_text(value, "partition_key")
            require_one_key(value, content.session_id)
        content.partition_key = value

    @property
    def time_to_live(self) -> timedelta | None:
        """How long the message lives after it is enqueued, in whole ms; ``None`` for the limit of the entity.

        A time that is longer than the broker can count, such as ``timedelta.max``, is kept as ``None``.
        """
        milliseconds = self._content.time_to_live
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    @time_to_live.setter
    def time_to_live(self, value: timedelta | None) -> None:
        self._content.time_to_live = None if value is None else lifetime(value)

    @property
    def scheduled_enqueue_time_utc(self) -> datetime | None:
        """The time at which the message is to be enqueued, in UTC and whole ms; ``None`` to enqueue it when it is sent.

        A time that you assign must have a time zone. Any time zone is accepted.
        """
        milliseconds = self._content.scheduled
        return None if milliseconds is None else moment(milliseconds)

    @scheduled_enqueue_time_utc.setter
    def scheduled_enqueue_time_utc(self, value: datetime | None) -> None:
        self._content.scheduled = None if value is None else due_time(value)

    @property
    def raw_amqp_message(self) -> AmqpAnnotatedMessage:
        """The same message in the terms of AMQP. Changes in it change this message."""
        return view(self._content)

    @property
    def raw_amqp(self) -> bytes | None:
        """The message as its sender encoded it in AMQP, for a receiver that needs exactly these bytes.

        sbredis keeps these bytes beside the fields, and a receiver gets them unchanged, with each value in the type
        that the sender gave it. sbredis itself uses only the fields. The bytes count towards the size of the message.
        If they contain the body as it is, it is stored and counted once. The actions of rules, settlements and sbredis
        itself, for example when it adds a message id, change only the fields.
        """
        return self._content.raw_amqp

    @raw_amqp.setter
    def raw_amqp(self, value: bytes | None) -> None:
        self._content.raw_amqp = None if value is None else encoded_bytes(value, "raw_amqp")

    def _sendable(self) -> ServiceBusMessage:
        """Return the message to send in place of this one."""
        return self


MessageType: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
"""A value that is accepted as a message: a message, an AMQP message, or a mapping of the arguments of a message."""

MessageTypes: TypeAlias = (
    MessageType | Iterable[ServiceBusMessage] | Iterable[AmqpAnnotatedMessage] | Iterable[Mapping[str, Any]]
)
"""One value that is accepted as a message, or several."""


# -- values that are accepted as a message -----------------------------------------------------------------------------

_FIELDS = frozenset(
    {
        "application_properties",
        "body",
        "content_type",
        "correlation_id",
        "message_id",
        "partition_key",
        "raw_amqp",
        "reply_to",
        "reply_to_session_id",
        "scheduled_enqueue_time_utc",
        "session_id",
        "subject",
        "time_to_live",
        "to",
    }
)


_AS_BODY = "To send the mapping itself, make a body of it: ServiceBusMessage(json.dumps(mapping))"


def as_message(value: object) -> ServiceBusMessage:
    """Return the message for a value: the same message, or one made from an AMQP message or a mapping.

    A received message is copied as its sender gave it, so that sending the copy does not change the received message.
    """
    if isinstance(value, ServiceBusMessage):
        return value._sendable()
    if isinstance(value, AmqpAnnotatedMessage):
        return from_content(amqp_content_of(value))
    if isinstance(value, Mapping):
        return _from_mapping(value)  # pyright: ignore[reportUnknownArgumentType]  # _from_mapping checks the keys
    raise TypeError(
        f"a message must be a ServiceBusMessage, an AmqpAnnotatedMessage or a mapping, not {type(value).__name__}"
        f"; make one with ServiceBusMessage({'body' if isinstance(value, (str, bytes)) else 'json.dumps(…)'})"
    )


def as_messages(value: object) -> list[ServiceBusMessage]:
    """Return the messages for one value that is accepted as a message, or for several."""
    if type(value) is ServiceBusMessage:
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        return [as_message(item) for item in cast("Iterable[object]", value)]
    return [as_message(value)]  # pyright: ignore[reportUnknownArgumentType]  # as_message checks the type


content_of: Callable[[ServiceBusMessage], Content] = attrgetter("_content")
"""Return the content of a message itself, not a copy."""


def from_content(content: Content) -> ServiceBusMessage:
    """Make a message that owns this content."""
    message = ServiceBusMessage.__new__(ServiceBusMessage)
    message._content = content
    return message


def copied(content: Content) -> Content:
    """Return a copy of a content, so that a change of a dictionary in the copy does not change the original, and the
    reverse.
    """
    return replace(
        content,
        properties=None if content.properties is None else text_keys(content.properties),
        annotations=None if content.annotations is None else text_keys(content.annotations),
    )


def _from_mapping(given: Mapping[Any, Any]) -> ServiceBusMessage:
    unknown = [name for name in given if name not in _FIELDS]
    if unknown:
        shown = ", ".join([*map(repr, unknown[:3]), "…"][: len(unknown)])
        raise TypeError(f"{shown} cannot be in a message; it may have {', '.join(sorted(_FIELDS))}. {_AS_BODY}")
    if "body" not in given:
        raise TypeError(
            f"a mapping that describes a message must have the key body, whose value may be None. {_AS_BODY}"
        )
    return ServiceBusMessage(**given)


# -- the ids that sbredis assigns to messages without an id ------------------------------------------------------------
#
# An assigned id belongs to one send. If the send fails, or its outcome is unknown, the message keeps the id, so that an
# entity that detects duplicates recognises the repetition. If the same object is sent again in any other case, it is a
# new message and gets a new id. An id that the application gave is never changed.


class _Ids:
    """Message ids that no other process makes: 72 random bits of this process, and a number."""

    __slots__ = ("number", "prefix")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Draw the random part: at the start, and in a forked process, which must not repeat its parent's ids."""
        self.prefix = secrets.token_urlsafe(9)
        self.number = count(1)


_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.begin)


def _assign_id(content: Content) -> str:
    """Assign a new id to a message, and return the id."""
    content.message_id = content.assigned = message_id = f"{_ids.prefix}{next(_ids.number):x}"
    content.id_used = False
    return message_id


def use_id(message: ServiceBusMessage) -> str | None:
    """Mark the message as being sent under its id. Return the id if sbredis assigned it."""
    content = message._content
    content.id_used = True
    return content.assigned if content.message_id is content.assigned else None


def keep_id(message: ServiceBusMessage, message_id: str | None) -> None:
    """Record that the send under this assigned id has failed: the next send of the message uses the id again."""
    content = message._content
    if message_id is not None and content.message_id is content.assigned and content.assigned == message_id:
        content.id_used = False


def keep_id_of(message: ServiceBusMessage, made: Outgoing | bytes) -> None:
    """Record that the send of a message in this form has failed: the next send uses the same id."""
    message_id = decode(made if isinstance(made, bytes) else made.payload).message_id
    keep_id(message, message_id if isinstance(message_id, str) else None)


# -- sending: the encoding of a message, and the key that chooses its partition ----------------------------------------


def outgoing(message: ServiceBusMessage, *, detects_duplicates: bool) -> Outgoing:
    """Return a message in the form for a partition, like :func:`prepared`."""
    made = prepared(message, detects_duplicates=detects_duplicates)
    return Outgoing(made) if isinstance(made, bytes) else made


def prepared(message: ServiceBusMessage, *, detects_duplicates: bool, sent: bool = False) -> Outgoing | bytes:
    """Return a message in the form for a partition: only its payload, if the partition needs nothing else of it.

    The message gets a new id if it has none, or if another send has used the id that sbredis assigned to it. With
    ``sent``, it is marked as being sent under its id; :func:`keep_id_of` undoes this.

    Raises :class:`TypeError` or :class:`ValueError` for a property that cannot be kept, and
    :class:`~sbredis.exceptions.MessageSizeExceededError` for properties that are too large.
    """
    content = message._content
    fields = content.__dict__
    if len(fields) == 1 and (body := fields.get("body")) is not None:
        # The application has set nothing but a body. The steps below do the same, in three times the time.
        assigned = _assign_id(content)
        content.id_used = sent
        payload = encode_plain(assigned, body)
        return Outgoing(payload, message_id=assigned.encode()) if detects_duplicates else payload
    message_id = content.message_id
    if message_id is None or (content.id_used and message_id is content.assigned):
        message_id = _assign_id(content)
    if content.annotations is not None:
        tidy(content)
    payload = encode(content) if content.properties is None else _with_properties(content, content.properties)
    if len(payload) > MAXIMUM_PROPERTY_BYTES and len(payload) - len(content.body) > MAXIMUM_PROPERTY_BYTES:
        require_small_header(content, BODY_SECTIONS)
    if sent:
        content.id_used = True
    due = content.scheduled
    if due is None and content.time_to_live is None and not detects_duplicates:
        return payload
    return Outgoing(
        payload,
        content.time_to_live,
        message_id=duplicate_key(message_id) if detects_duplicates else b"",
        due=None if due is None else max(due, 0),
    )


def _with_properties(content: Content, properties: dict[str, Value]) -> bytes:
    try:
        payload = encode(content)
    except TypeError:
        names: Iterable[object] = properties  # after the check, the application may have added names that are not text
        if not any(isinstance(name, bytes) for name in names):
            raise
        content.properties = properties = text_keys(properties)
        payload = encode(content)
    require_single(properties)  # the application may have changed them since they were set
    return payload


def message_key(message: ServiceBusMessage) -> str | bytes | None:
    """Return the message id. It chooses the partition if the entity detects duplicates and the message has no other
    key.
    """
    message_id = message._content.message_id
    return None if message_id is None else comparable_id(message_id)


def routing_key(message: ServiceBusMessage) -> str | None:
    """Return the key that chooses the partition: the session id or the partition key; ``None`` for any partition."""
    content = message._content
    if content.annotations is not None:
        tidy(content)
    return content.partition_key if content.session_id is None else content.session_id
