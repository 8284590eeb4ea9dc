"""A message in the terms of AMQP 1.0. It is another view of the content that a :class:`ServiceBusMessage` shows.

If :class:`~sbredis.engine.Content` has a field for an entry of AMQP, that field stores the entry.
``properties.group_id`` is the session id, ``header.time_to_live`` the time to live, the annotation
``x-opt-partition-key`` the partition key. All other entries are kept in the content's annotations, which have one item
for each section. They travel with the message.
"""

# The modules of this package use private parts of each other's messages.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias, cast

from sbredis.engine import Content, Value
from sbredis.model._amqp_sections import (
    AmqpMessageHeader,
    AmqpMessageProperties,
    as_text,
    entries,
    live_entries,
    set_entries,
    whole,
)
from sbredis.model._body import Body, Sections
from sbredis.model._checks import (
    body_bytes,
    due_time,
    encoded_bytes,
    id_text,
    moment,
    named_values,
    property_values,
    require_one_key,
)
from sbredis.model._listed import Listed

__all__ = [
    "BODY_SECTIONS",
    "AmqpAnnotatedMessage",
    "AmqpMessageBodyType",
    "AmqpMessageHeader",
    "AmqpMessageProperties",
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


class AmqpMessageBodyType(Listed, StrEnum):
    """The kinds of body that an AMQP message can have."""

    DATA = "data"
    """Bytes."""
    SEQUENCE = "sequence"
    """A list of values."""
    VALUE = "value"
    """A single value."""


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
        return live_entries(self._content, _ANNOTATIONS)

    @annotations.setter
    def annotations(self, value: _Names | None) -> None:
        values = named_values(value or {}, "annotations")
        _take_known(values, self._content)
        set_entries(self._content, _ANNOTATIONS, values)

    @property
    def delivery_annotations(self) -> dict[str, Value]:
        """Annotations for the next node on the way. They are kept and have no effect."""
        return live_entries(self._content, _DELIVERY_ANNOTATIONS)

    @delivery_annotations.setter
    def delivery_annotations(self, value: _Names | None) -> None:
        set_entries(self._content, _DELIVERY_ANNOTATIONS, named_values(value or {}, "delivery_annotations"))

    @property
    def footer(self) -> dict[str, Value]:
        """Data that can be computed only after the body, such as a checksum."""
        return live_entries(self._content, _FOOTER)

    @footer.setter
    def footer(self, value: _Names | None) -> None:
        set_entries(self._content, _FOOTER, named_values(value or {}, "footer"))

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
        values = entries(content, section)
        if any(type(name) is not str for name in values):
            set_entries(content, section, values := named_values(values, section))
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
        key = id_text(as_text(key, _PARTITION_KEY), _PARTITION_KEY)
        require_one_key(key, content.session_id)
    if scheduled is not None:
        scheduled = due_time(moment(whole(scheduled, _SCHEDULED)) if isinstance(scheduled, int) else scheduled)
    if key is not None:
        content.partition_key = key
    if scheduled is not None:
        content.scheduled = scheduled
    values.pop(_PARTITION_KEY, None)
    values.pop(_SCHEDULED, None)
