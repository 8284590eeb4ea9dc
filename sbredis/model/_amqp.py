"""A message in the terms of AMQP 1.0: a view of the same content that a :class:`ServiceBusMessage` shows.

What AMQP knows and :class:`~sbredis.engine.Content` has a field for is that field: ``properties.group_id`` is the
session id, ``header.time_to_live`` the time to live, the annotation ``x-opt-partition-key`` the partition key. All else
is kept in the content's annotations, one entry a section, and travels with the message.
"""

# The modules of this package share what a message is made of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, cast
from uuid import UUID

from sbredis.engine import Content, Value
from sbredis.model._checks import body_bytes, due_time, id_text, lifetime, moment, named_values, require_one_key, text

__all__ = [
    "AmqpAnnotatedMessage",
    "AmqpMessageBodyType",
    "AmqpMessageHeader",
    "AmqpMessageProperties",
    "body_of",
    "tidy",
    "view",
]

T = TypeVar("T")
S = TypeVar("S", bound="_Section")
_Names: TypeAlias = Mapping[str, Any] | Mapping[bytes, Any] | Mapping[str | bytes, Any]

_HEADER, _PROPERTIES, _FOOTER = "header", "properties", "footer"
_ANNOTATIONS, _DELIVERY_ANNOTATIONS = "message-annotations", "delivery-annotations"
_VALUE, _SEQUENCE = "value", "sequence"
_PARTITION_KEY, _SCHEDULED = "x-opt-partition-key", "x-opt-scheduled-enqueue-time"
_UNSET: Any = object()
_WHOLE = (str, bytes, bytearray, memoryview, Mapping)
"""What can be gone through, and is not meant so."""


class AmqpMessageBodyType(StrEnum):
    """What the body of an AMQP message is made of."""

    DATA = "data"
    """Bytes."""
    SEQUENCE = "sequence"
    """A list of values."""
    VALUE = "value"
    """A single value."""


# -- sections ----------------------------------------------------------------------------------------------------------


class _Field(Generic[T]):
    """One entry of a section, kept in a field of the content or in its annotations."""

    def __init__(self, check: Callable[[object, str], T | None], doc: str, kept_as: str | None = None) -> None:
        self.check = check
        self.kept_as = kept_as
        self.__doc__ = doc

    def __set_name__(self, owner: type[_Section], name: str) -> None:
        self.name = name

    def __get__(self, section: _Section | None, owner: type[_Section]) -> T | None:
        if section is None:
            return None
        content = section._content
        if self.kept_as is not None:
            return cast("T | None", getattr(content, self.kept_as))
        return cast("T | None", _entries(content, section._section).get(self.name))

    def __set__(self, section: _Section, value: object) -> None:
        kept = None if value is None else self.check(value, self.name)
        content = section._content
        if self.kept_as is not None:
            if self.kept_as == "session_id":
                require_one_key(content.partition_key, cast("str | None", kept))
            elif self.kept_as == "message_id":
                content.assigned = None  # it is the application's own from now on
            setattr(content, self.kept_as, kept)
        elif kept is not None:
            _live_entries(content, section._section)[self.name] = cast("Value", kept)
        else:
            _entries(content, section._section).pop(self.name, None)


class _Section(MutableMapping[str, Any]):
    """Entries of a fixed set of names, as attributes and as a mapping; one that is not set is ``None``."""

    __slots__ = ("_content",)

    _content: Content
    _section: ClassVar[str]
    _names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        cls._names = tuple(name for name, value in vars(cls).items() if isinstance(value, _Field))

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
            raise KeyError(f"{name!r}; there are {', '.join(self._names)}")
        return name

    @classmethod
    def _view(cls, content: Content) -> Self:
        section = cls.__new__(cls)
        section._content = content
        return section

    def _replace(self, value: Mapping[str, Any] | None) -> None:
        """Take over all entries; none if one of them is refused."""
        checked = type(self)(**(value or {}))
        if isinstance(checked, AmqpMessageProperties):
            group: Any = checked.group_id
            require_one_key(self._content.partition_key, group)
        for name, entry in checked.items():
            self[name] = entry


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, as {value} is")
    return value


def _priority(value: object, name: str) -> int:
    if _whole(value, name) > 255:
        raise ValueError(f"{name} is a number from 0 to 255, not {value}")
    return cast("int", value)


def _truth(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True, False or None, not {type(value).__name__}")
    return value


def _lifetime(value: object, name: str) -> int | None:
    milliseconds = _whole(value, name)
    try:
        return lifetime(timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def _word(value: object, name: str) -> str:
    """Text, which AMQP's clients give as bytes, too."""
    return text(_as_text(value), name)


def _id(value: object, name: str) -> str:
    """A message id, which AMQP allows to be a number or a UUID, too."""
    return id_text(_as_text(value), name)


def _correlation(value: object, name: str) -> str:
    return text(_as_text(value), name)


def _group(value: object, name: str) -> str:
    return id_text(value.decode() if isinstance(value, bytes) else value, name, may_be_empty=True)


def _user(value: object, name: str) -> str | bytes:
    return value if isinstance(value, bytes) else text(value, name)


def _as_text(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return str(value) if isinstance(value, (UUID, int)) and not isinstance(value, bool) else value


class AmqpMessageHeader(_Section):
    """How a message is to be handled on its way. Usable as a mapping as well."""

    __slots__ = ()

    _section = _HEADER

    delivery_count = _Field(_whole, "How many deliveries failed before; kept, but not counted here.")
    time_to_live = _Field(_lifetime, "The message's time to live, in ms.", "time_to_live")
    durable = _Field(_truth, "Whether it should survive a restart; kept, without an effect.")
    first_acquirer = _Field(_truth, "Whether nobody had it before; kept, without an effect.")
    priority = _Field(_priority, "How urgent it is, 0 to 255; kept, without an effect.")

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


class AmqpMessageProperties(_Section):
    """What a message is and for whom. Usable as a mapping as well."""

    __slots__ = ()

    _section = _PROPERTIES

    message_id = _Field(_id, "The message id.", "message_id")
    user_id = _Field(_user, "Who sent it.")
    to = _Field(_word, "For whom it is.", "to")
    subject = _Field(_word, "The message's subject.", "subject")
    reply_to = _Field(_word, "Where an answer is to be sent.", "reply_to")
    correlation_id = _Field(_correlation, "What it is about or answers.", "correlation_id")
    content_type = _Field(_word, "What the body is, as a media type.", "content_type")
    content_encoding = _Field(_word, "How the body is encoded, for example compressed.")
    creation_time = _Field(_whole, "When it was made, in ms since 1970.")
    absolute_expiry_time = _Field(_whole, "When it is to expire, in ms since 1970; kept, without an effect.")
    group_id = _Field(_group, "The session id.", "session_id")
    group_sequence = _Field(_whole, "Its number within its group; kept, without an effect.")
    reply_to_group_id = _Field(_group, "The session in which to answer.", "reply_to_session_id")

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

    ``data_body`` is bytes or text, or several of these, which become one; ``value_body`` a value and ``sequence_body``
    a list of values of the types that an application property may have. Sections may be given as mappings. Those that
    are set are copied; those that are read are the message's own, and what is changed in them is changed in it.
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
            if isinstance(sequence_body, _WHOLE):
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

    @property
    def body(self) -> Any:
        """The value or list of values; of bytes a list with these as its only item, to be joined or gone through."""
        kind, body = body_of(self._content)
        return [body] if kind is AmqpMessageBodyType.DATA else body

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """What the body is made of."""
        return body_of(self._content)[0]

    @property
    def header(self) -> AmqpMessageHeader:
        """How it is to be handled on its way."""
        return AmqpMessageHeader._view(self._content)

    @header.setter
    def header(self, value: AmqpMessageHeader | Mapping[str, Any] | None) -> None:
        self.header._replace(value)

    @property
    def properties(self) -> AmqpMessageProperties:
        """What it is and for whom."""
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
        self._content.properties = None if value is None else named_values(value, "application_properties")

    @property
    def annotations(self) -> dict[str, Value]:
        """What brokers on the way are to know.

        Of the annotations of Azure, ``x-opt-partition-key`` and ``x-opt-scheduled-enqueue-time`` may be set: when they
        are, or else when the message is sent, they become the message's partition key and scheduled time.
        """
        return _live_entries(self._content, _ANNOTATIONS)

    @annotations.setter
    def annotations(self, value: _Names | None) -> None:
        values = named_values(value or {}, "annotations")
        _take_known(values, self._content)
        _set_entries(self._content, _ANNOTATIONS, values)

    @property
    def delivery_annotations(self) -> dict[str, Value]:
        """What the next on the way is to know; kept, without an effect."""
        return _live_entries(self._content, _DELIVERY_ANNOTATIONS)

    @delivery_annotations.setter
    def delivery_annotations(self, value: _Names | None) -> None:
        _set_entries(self._content, _DELIVERY_ANNOTATIONS, named_values(value or {}, "delivery_annotations"))

    @property
    def footer(self) -> dict[str, Value]:
        """What can be said only after the body, such as a checksum."""
        return _live_entries(self._content, _FOOTER)

    @footer.setter
    def footer(self, value: _Names | None) -> None:
        _set_entries(self._content, _FOOTER, named_values(value or {}, "footer"))

    def __str__(self) -> str:
        """The body as text: bytes read as UTF-8, with a replacement character for what is not."""
        body = body_of(self._content)[1]
        return body.decode(errors="replace") if isinstance(body, bytes) else str(body)

    def __repr__(self) -> str:
        return f"<AmqpAnnotatedMessage body_type={self.body_type.value}, {self.properties!r}>"


def view(content: Content) -> AmqpAnnotatedMessage:
    """The message of this content, in the terms of AMQP."""
    message = AmqpAnnotatedMessage.__new__(AmqpAnnotatedMessage)
    message._content = content
    return message


def body_of(content: Content) -> tuple[AmqpMessageBodyType, Any]:
    """The kind of the body, and the body."""
    annotations = content.annotations
    if annotations is not None:
        if _VALUE in annotations:
            return AmqpMessageBodyType.VALUE, annotations[_VALUE]
        if _SEQUENCE in annotations:
            return AmqpMessageBodyType.SEQUENCE, annotations[_SEQUENCE]
    return AmqpMessageBodyType.DATA, content.body


def tidy(content: Content) -> None:
    """Make of the annotations that were set one by one what they mean, as it is done with those set together."""
    for section in (_ANNOTATIONS, _DELIVERY_ANNOTATIONS, _FOOTER):
        values = _entries(content, section)
        if any(type(name) is not str for name in values):
            _set_entries(content, section, values := named_values(values, section))
        if section is _ANNOTATIONS and values:
            _take_known(values, content)


def _data(given: object) -> bytes:
    if isinstance(given, Iterable) and not isinstance(given, _WHOLE):
        return b"".join(body_bytes(part) for part in cast("Iterable[object]", given))
    return body_bytes(cast("Any", given))


def _entries(content: Content, section: str) -> dict[str, Value]:
    """A section as it is; an empty dictionary that nobody keeps if there is none."""
    found = None if content.annotations is None else content.annotations.get(section)
    return found if isinstance(found, dict) else {}


def _live_entries(content: Content, section: str) -> dict[str, Value]:
    """A section that is made if there is none."""
    if content.annotations is None:
        content.annotations = {}
    found = content.annotations.get(section)
    if not isinstance(found, dict):
        found = content.annotations[section] = {}
    return found


def _set_entries(content: Content, section: str, values: dict[str, Value]) -> None:
    if values:
        if content.annotations is None:
            content.annotations = {}
        content.annotations[section] = values
    elif content.annotations is not None:
        content.annotations.pop(section, None)


def _take_known(values: dict[str, Value], content: Content) -> None:
    """Move the annotations that are fields of the content there; if one is refused, none is moved."""
    key, scheduled = values.get(_PARTITION_KEY), values.get(_SCHEDULED)
    if key is not None:
        key = id_text(key.decode() if isinstance(key, bytes) else key, _PARTITION_KEY)
        require_one_key(key, content.session_id)
    if scheduled is not None:
        scheduled = due_time(moment(_whole(scheduled, _SCHEDULED)) if isinstance(scheduled, int) else scheduled)
    if key is not None:
        content.partition_key = key
    if scheduled is not None:
        content.scheduled = scheduled
    values.pop(_PARTITION_KEY, None)
    values.pop(_SCHEDULED, None)
