"""A message in the terms of AMQP 1.0. It is another view of the content that a :class:`ServiceBusMessage` shows.

If :class:`~sbredis.engine.Content` has a field for an item of AMQP, that field stores the item.
``properties.group_id`` is the session id, ``header.time_to_live`` the time to live, the annotation
``x-opt-partition-key`` the partition key. All other items are kept in the content's annotations, which have one item
for each section. They travel with the message.
"""

# The functions of this module are the interface to the content of a message, so they use its slot.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, cast
from uuid import UUID

from sbredis.engine import Content, NamedValues, Value
from sbredis.model._body import Body, Sections
from sbredis.model._checks import (
    body_bytes,
    due_time,
    encoded_bytes,
    id_text,
    lifetime,
    moment,
    named_values,
    property_values,
    require_one_key,
    text,
)
from sbredis.model._enums import Listed
from sbredis.model._message_ids import correlation, message_identifier

__all__ = [
    "BODY_SECTIONS",
    "AmqpAnnotatedMessage",
    "AmqpMessageBodyType",
    "AmqpMessageHeader",
    "AmqpMessageProperties",
    "amqp_content_of",
    "body_of",
    "tidy",
    "view",
]

_Names: TypeAlias = Mapping[str, Any] | Mapping[bytes, Any] | Mapping[str | bytes, Any]

_FOOTER = "footer"
_ANNOTATIONS, _DELIVERY_ANNOTATIONS = "message-annotations", "delivery-annotations"
_VALUE, _SEQUENCE = "value", "sequence"
BODY_SECTIONS = frozenset({_VALUE, _SEQUENCE})
"""The names of the annotations that hold a body in a content."""
_PARTITION_KEY, _SCHEDULED = "x-opt-partition-key", "x-opt-scheduled-enqueue-time"
_UNSET: Any = object()
_NOT_A_LIST = (str, bytes, bytearray, memoryview, Mapping)
"""Types that are iterable, but are not meant as a list of sections."""


T = TypeVar("T")
S = TypeVar("S", bound="_AmqpSection")

_HEADER, _PROPERTIES = "header", "properties"
_MOST = (1 << 64) - 1


class AmqpMessageBodyType(Listed, StrEnum):
    """The kinds of body that an AMQP message can have."""

    DATA = "data"
    """Bytes."""
    SEQUENCE = "sequence"
    """A list of values."""
    VALUE = "value"
    """A single value."""


# -- the sections: where their items are kept, the header and the properties -------------------------------------------


def _items_of(content: Content, section: str) -> dict[str, Value]:
    """Return the stored section. If there is none, return an empty dictionary that is not stored."""
    found = None if content.annotations is None else content.annotations.get(section)
    return found if isinstance(found, dict) else {}


def _live_items(content: Content, section: str) -> dict[str, Value]:
    """Return a section; create it if there is none."""
    if content.annotations is None:
        content.annotations = {}
    found = content.annotations.get(section)
    if isinstance(found, NamedValues):
        return found
    # After decoding, a section is a plain dict. A section that was never used does not exist yet.
    live = NamedValues(found) if isinstance(found, dict) else NamedValues()
    content.annotations[section] = live
    return live


def _set_items(content: Content, section: str, values: dict[str, Value]) -> None:
    if values:
        if content.annotations is None:
            content.annotations = {}
        content.annotations[section] = values
    elif content.annotations is not None:
        content.annotations.pop(section, None)


class _SectionItem(Generic[T]):
    """One item of a section, kept in a field of the content or in its annotations."""

    def __init__(self, check: Callable[[object, str], T | None], doc: str, kept_as: str | None = None) -> None:
        self.check = check
        self.kept_as = kept_as
        self.__doc__ = doc

    def __set_name__(self, owner: type[_AmqpSection], name: str) -> None:
        self.name = name

    def __get__(self, section: _AmqpSection | None, owner: type[_AmqpSection]) -> T | None:
        if section is None:
            return None
        content = section._content
        if self.kept_as is not None:
            return cast("T | None", getattr(content, self.kept_as))
        return cast("T | None", _items_of(content, section._section).get(self.name))

    def __set__(self, section: _AmqpSection, value: object) -> None:
        kept = None if value is None else self.check(value, self.name)
        content = section._content
        if self.kept_as is not None:
            if self.kept_as == "session_id":
                require_one_key(content.partition_key, cast("str | None", kept))
            elif self.kept_as == "message_id":
                content.assigned = None  # the application chose the new id, so sbredis has not assigned it
            setattr(content, self.kept_as, kept)
        elif kept is not None:
            _live_items(content, section._section)[self.name] = cast("Value", kept)
        else:
            _items_of(content, section._section).pop(self.name, None)


class _AmqpSection(MutableMapping[str, Any]):
    """Items with a fixed set of names, as attributes and as a mapping. An item that is not set is ``None``."""

    __slots__ = ("_content",)

    _content: Content
    _section: ClassVar[str]
    _names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        cls._names = tuple(name for name, value in vars(cls).items() if isinstance(value, _SectionItem))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, self._known(name))

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, self._known(name), value)

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.items() if value is not None)
        return f"{type(self).__name__}({shown})"

    def _known(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(f"there is no {name!r}; the names are {', '.join(self._names)}")
        return name

    @classmethod
    def _view(cls, content: Content) -> Self:
        section = cls.__new__(cls)
        section._content = content
        return section

    def _replace(self, value: Mapping[str, Any] | None) -> None:
        """Replace all items. If one is refused, replace none."""
        checked = type(self)(**(value or {}))
        if isinstance(checked, AmqpMessageProperties):
            group: Any = checked.group_id
            require_one_key(self._content.partition_key, group)
        for name, item in checked.items():
            self[name] = item


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, but is {value}")
    return value


def _number(value: object, name: str) -> int:
    number = _whole(value, name)
    if number > _MOST:
        raise ValueError(f"{name} is a whole number that does not fit into 64 bits: it may be from 0 to 2**64 - 1")
    return number


def _priority(value: object, name: str) -> int:
    if _whole(value, name) > 255:
        raise ValueError(f"{name} must be a number from 0 to 255, not {value}")
    return cast("int", value)


def _bool(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True, False or None, not {type(value).__name__}")
    return value


def _lifetime(value: object, name: str) -> int | None:
    milliseconds = _whole(value, name)
    try:
        return lifetime(timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def _text(value: object, name: str) -> str:
    """Return checked text. AMQP clients may give the text as bytes."""
    return text(_as_text(value, name), name)


def _session_id(value: object, name: str) -> str:
    return id_text(_as_text(value, name), name, may_be_empty=True)


def _user(value: object, name: str) -> str | bytes:
    if isinstance(value, bytes):
        text("-" * len(value), name)  # bytes have the same limit as text
        return value
    return text(value, name)


def _as_text(value: object, name: str) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name} must be text, but these bytes are not valid UTF-8") from None


class AmqpMessageHeader(_AmqpSection):
    """How brokers should handle a message. It is also a mapping."""

    __slots__ = ()

    _section = _HEADER

    delivery_count = _SectionItem(_number, "The number of failed deliveries before; kept, but not counted here.")
    time_to_live = _SectionItem(_lifetime, "The message's time to live, in ms.", "time_to_live")
    durable = _SectionItem(_bool, "Whether the message should survive a restart; kept, without an effect.")
    first_acquirer = _SectionItem(_bool, "Whether no receiver has had the message before; kept, without an effect.")
    priority = _SectionItem(_priority, "The priority of the message, 0 to 255; kept, without an effect.")

    def __init__(
        self,
        *,
        delivery_count: int | None = None,
        time_to_live: int | None = None,
        durable: bool | None = None,
        first_acquirer: bool | None = None,
        priority: int | None = None,
    ) -> None:
        self._content = Content()
        self.delivery_count = delivery_count
        self.time_to_live = time_to_live
        self.durable = durable
        self.first_acquirer = first_acquirer
        self.priority = priority


class AmqpMessageProperties(_AmqpSection):
    """The standard properties of a message, such as its id and its recipient. It is also a mapping."""

    __slots__ = ()

    _section = _PROPERTIES

    message_id = _SectionItem(message_identifier, "The message id.", "message_id")
    user_id = _SectionItem(_user, "The user who sent the message.")
    to = _SectionItem(_text, "The recipient of the message.", "to")
    subject = _SectionItem(_text, "The message's subject.", "subject")
    reply_to = _SectionItem(_text, "The address for an answer.", "reply_to")
    correlation_id = _SectionItem(correlation, "The message or matter that this message refers to.", "correlation_id")
    content_type = _SectionItem(_text, "The media type of the body.", "content_type")
    content_encoding = _SectionItem(_text, "The encoding of the body, for example its compression.")
    creation_time = _SectionItem(_number, "The time of creation, in ms since 1970.")
    absolute_expiry_time = _SectionItem(_number, "The time of expiry, in ms since 1970; kept, without an effect.")
    group_id = _SectionItem(_session_id, "The session id.", "session_id")
    group_sequence = _SectionItem(_number, "The number of the message in its group; kept, without an effect.")
    reply_to_group_id = _SectionItem(_session_id, "The session for an answer.", "reply_to_session_id")

    def __init__(
        self,
        *,
        message_id: str | bytes | UUID | int | None = None,
        user_id: str | bytes | None = None,
        to: str | bytes | None = None,
        subject: str | bytes | None = None,
        reply_to: str | bytes | None = None,
        correlation_id: str | bytes | UUID | int | None = None,
        content_type: str | bytes | None = None,
        content_encoding: str | bytes | None = None,
        creation_time: int | None = None,
        absolute_expiry_time: int | None = None,
        group_id: str | bytes | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | bytes | None = None,
    ) -> None:
        self._content = Content()
        self.message_id = message_id
        self.user_id = user_id
        self.to = to
        self.subject = subject
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.creation_time = creation_time
        self.absolute_expiry_time = absolute_expiry_time
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.reply_to_group_id = reply_to_group_id


# -- the message -------------------------------------------------------------------------------------------------------


class AmqpAnnotatedMessage:
    """A message in the terms of AMQP, with exactly one of three kinds of body.

    ``data_body`` is bytes or text, or several of these, which are joined. ``value_body`` is a value, and
    ``sequence_body`` a list of values, of the types that an application property may have. Sections may be given as
    mappings. A section that you assign is copied. A section that you read belongs to the message: changing it changes
    the message. ``raw_amqp`` is the encoded message, for receivers that need exactly these bytes.
    """

    __slots__ = ("_content",)

    def __init__(
        self,
        *,
        data_body: str | bytes | Iterable[str | bytes] = _UNSET,
        value_body: Any = _UNSET,
        sequence_body: Iterable[Any] = _UNSET,
        header: AmqpMessageHeader | Mapping[str, Any] | None = None,
        footer: _Names | None = None,
        delivery_annotations: _Names | None = None,
        properties: AmqpMessageProperties | Mapping[str, Any] | None = None,
        application_properties: _Names | None = None,
        annotations: _Names | None = None,
        raw_amqp: bytes | None = None,
    ) -> None:
        bodies = [body for body in (data_body, value_body, sequence_body) if body is not _UNSET]
        if len(bodies) != 1:
            raise ValueError(
                f"a message has exactly one of data_body, value_body and sequence_body, and not {len(bodies)} of them"
            )
        content = self._content = Content()
        if data_body is not _UNSET:
            content.body = _data(data_body)
        elif value_body is not _UNSET:
            content.annotations = named_values({_VALUE: value_body}, "value_body")
        else:
            if isinstance(sequence_body, _NOT_A_LIST):
                raise TypeError("sequence_body must be a list of values, not text, bytes or a mapping")
            content.annotations = named_values({_SEQUENCE: list(sequence_body)}, "sequence_body")
        if header is not None:
            self.header = header
        if properties is not None:
            self.properties = properties
        if application_properties is not None:
            self.application_properties = application_properties
        if annotations is not None:
            self.annotations = annotations
        if delivery_annotations is not None:
            self.delivery_annotations = delivery_annotations
        if footer is not None:
            self.footer = footer
        if raw_amqp is not None:
            self.raw_amqp = raw_amqp

    @property
    def body(self) -> Any:
        """The body: a value or a list of values. A body of bytes is a list with these bytes as its only item."""
        kind, body = body_of(self._content)
        return Sections([body]) if kind is AmqpMessageBodyType.DATA else body

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The kind of the body."""
        return body_of(self._content)[0]

    @property
    def header(self) -> AmqpMessageHeader:
        """How brokers should handle the message."""
        return AmqpMessageHeader._view(self._content)

    @header.setter
    def header(self, value: AmqpMessageHeader | Mapping[str, Any] | None) -> None:
        self.header._replace(value)

    @property
    def properties(self) -> AmqpMessageProperties:
        """The standard properties of the message, such as its id, subject and recipient."""
        return AmqpMessageProperties._view(self._content)

    @properties.setter
    def properties(self, value: AmqpMessageProperties | Mapping[str, Any] | None) -> None:
        self.properties._replace(value)

    @property
    def application_properties(self) -> dict[str, Value] | None:
        """The application's own properties; ``None`` if there are none."""
        return self._content.properties

    @application_properties.setter
    def application_properties(self, value: _Names | None) -> None:
        self._content.properties = None if value is None else property_values(value, "application_properties")

    @property
    def annotations(self) -> dict[str, Value]:
        """Annotations for brokers on the way.

        You may set two of Azure's annotations: ``x-opt-partition-key`` and ``x-opt-scheduled-enqueue-time``. They
        become the partition key and the scheduled time of the message immediately, or at the latest when the message is
        sent.
        """
        return _live_items(self._content, _ANNOTATIONS)

    @annotations.setter
    def annotations(self, value: _Names | None) -> None:
        values = named_values(value or {}, "annotations")
        _take_known(values, self._content)
        _set_items(self._content, _ANNOTATIONS, values)

    @property
    def delivery_annotations(self) -> dict[str, Value]:
        """Annotations for the next node on the way. They are kept and have no effect."""
        return _live_items(self._content, _DELIVERY_ANNOTATIONS)

    @delivery_annotations.setter
    def delivery_annotations(self, value: _Names | None) -> None:
        _set_items(self._content, _DELIVERY_ANNOTATIONS, named_values(value or {}, "delivery_annotations"))

    @property
    def footer(self) -> dict[str, Value]:
        """Data that can be computed only after the body, such as a checksum."""
        return _live_items(self._content, _FOOTER)

    @footer.setter
    def footer(self, value: _Names | None) -> None:
        _set_items(self._content, _FOOTER, named_values(value or {}, "footer"))

    @property
    def raw_amqp(self) -> bytes | None:
        """The encoded message as an application gave it; see :attr:`ServiceBusMessage.raw_amqp`."""
        return self._content.raw_amqp

    @raw_amqp.setter
    def raw_amqp(self, value: bytes | None) -> None:
        self._content.raw_amqp = None if value is None else encoded_bytes(value, "raw_amqp")

    def __str__(self) -> str:
        """Return the body as text: bytes are read as UTF-8, with a replacement character for invalid bytes."""
        body = body_of(self._content)[1]
        return body.decode(errors="replace") if isinstance(body, bytes) else str(body)

    def __repr__(self) -> str:
        return f"<AmqpAnnotatedMessage body_type={self.body_type.value}, {self.properties!r}>"


def view(content: Content) -> AmqpAnnotatedMessage:
    """Return a view of this content in the terms of AMQP."""
    message = AmqpAnnotatedMessage.__new__(AmqpAnnotatedMessage)
    message._content = content
    return message


amqp_content_of: Callable[[AmqpAnnotatedMessage], Content] = attrgetter("_content")
"""Return the content of an AMQP message itself, not a copy."""


def body_of(content: Content) -> tuple[AmqpMessageBodyType, Any]:
    """Return the kind of the body, and the body."""
    annotations = content.annotations
    if annotations is not None:
        if _VALUE in annotations:
            return AmqpMessageBodyType.VALUE, annotations[_VALUE]
        if _SEQUENCE in annotations:
            return AmqpMessageBodyType.SEQUENCE, annotations[_SEQUENCE]
    body = content.body
    if type(body) is not Body:
        body = content.body = Body(body)  # made at the first access, and then kept
    return AmqpMessageBodyType.DATA, body


def tidy(content: Content) -> None:
    """Apply annotations that were set one by one, exactly as if they had been set together."""
    for section in (_ANNOTATIONS, _DELIVERY_ANNOTATIONS, _FOOTER):
        values = _items_of(content, section)
        if any(type(name) is not str for name in values):
            _set_items(content, section, values := named_values(values, section))
        if section is _ANNOTATIONS and values:
            _take_known(values, content)


def _data(given: object) -> bytes:
    if isinstance(given, Iterable) and not isinstance(given, _NOT_A_LIST):
        return b"".join(body_bytes(part) for part in cast("Iterable[object]", given))
    return body_bytes(cast("Any", given))


def _take_known(values: dict[str, Value], content: Content) -> None:
    """Move each annotation for which the content has a field into that field. If one is refused, move none."""
    key, scheduled = values.get(_PARTITION_KEY), values.get(_SCHEDULED)
    if key is not None:
        key = id_text(_as_text(key, _PARTITION_KEY), _PARTITION_KEY)
        require_one_key(key, content.session_id)
    if scheduled is not None:
        scheduled = due_time(moment(_whole(scheduled, _SCHEDULED)) if isinstance(scheduled, int) else scheduled)
    if key is not None:
        content.partition_key = key
    if scheduled is not None:
        content.scheduled = scheduled
    values.pop(_PARTITION_KEY, None)
    values.pop(_SCHEDULED, None)
