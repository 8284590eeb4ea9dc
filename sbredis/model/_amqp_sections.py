"""The sections of an AMQP message: where their entries are kept, the header and the properties."""

# The modules of this package use private parts of each other's messages.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar, cast
from uuid import UUID

from sbredis.engine import Content, NamedValues, Value
from sbredis.model._checks import id_text, lifetime, require_one_key, text
from sbredis.model._id_kinds import correlation, message_identifier

__all__ = ["AmqpMessageHeader", "AmqpMessageProperties", "as_text", "entries", "live_entries", "set_entries", "whole"]

T = TypeVar("T")
S = TypeVar("S", bound="_Section")

_HEADER, _PROPERTIES = "header", "properties"
_MOST = (1 << 64) - 1


def entries(content: Content, section: str) -> dict[str, Value]:
    """Return the stored section. If there is none, return an empty dictionary that is not stored."""
    found = None if content.annotations is None else content.annotations.get(section)
    return found if isinstance(found, dict) else {}


def live_entries(content: Content, section: str) -> dict[str, Value]:
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


def set_entries(content: Content, section: str, values: dict[str, Value]) -> None:
    if values:
        if content.annotations is None:
            content.annotations = {}
        content.annotations[section] = values
    elif content.annotations is not None:
        content.annotations.pop(section, None)


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
        return cast("T | None", entries(content, section._section).get(self.name))

    def __set__(self, section: _Section, value: object) -> None:
        kept = None if value is None else self.check(value, self.name)
        content = section._content
        if self.kept_as is not None:
            if self.kept_as == "session_id":
                require_one_key(content.partition_key, cast("str | None", kept))
            elif self.kept_as == "message_id":
                content.assigned = None  # the application chose the new id, so sbredis has not assigned it
            setattr(content, self.kept_as, kept)
        elif kept is not None:
            live_entries(content, section._section)[self.name] = cast("Value", kept)
        else:
            entries(content, section._section).pop(self.name, None)


class _Section(MutableMapping[str, Any]):
    """Entries with a fixed set of names, as attributes and as a mapping. An entry that is not set is ``None``."""

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
            raise KeyError(f"there is no {name!r}; the names are {', '.join(self._names)}")
        return name

    @classmethod
    def _view(cls, content: Content) -> Self:
        section = cls.__new__(cls)
        section._content = content
        return section

    def _replace(self, value: Mapping[str, Any] | None) -> None:
        """Replace all entries. If one is refused, replace none."""
        checked = type(self)(**(value or {}))
        if isinstance(checked, AmqpMessageProperties):
            group: Any = checked.group_id
            require_one_key(self._content.partition_key, group)
        for name, entry in checked.items():
            self[name] = entry


def whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, but is {value}")
    return value


def _number(value: object, name: str) -> int:
    number = whole(value, name)
    if number > _MOST:
        raise ValueError(f"{name} is a whole number that does not fit into 64 bits: it may be from 0 to 2**64 - 1")
    return number


def _priority(value: object, name: str) -> int:
    if whole(value, name) > 255:
        raise ValueError(f"{name} must be a number from 0 to 255, not {value}")
    return cast("int", value)


def _bool(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True, False or None, not {type(value).__name__}")
    return value


def _lifetime(value: object, name: str) -> int | None:
    milliseconds = whole(value, name)
    try:
        return lifetime(timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def _text(value: object, name: str) -> str:
    """Return checked text. AMQP clients may give the text as bytes."""
    return text(as_text(value, name), name)


def _session_id(value: object, name: str) -> str:
    return id_text(as_text(value, name), name, may_be_empty=True)


def _user(value: object, name: str) -> str | bytes:
    if isinstance(value, bytes):
        text("-" * len(value), name)  # bytes have the same limit as text
        return value
    return text(value, name)


def as_text(value: object, name: str) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name} must be text, but these bytes are not valid UTF-8") from None


class AmqpMessageHeader(_Section):
    """How brokers should handle a message. It is also a mapping."""

    __slots__ = ()

    _section = _HEADER

    delivery_count = _Field(_number, "The number of failed deliveries before; kept, but not counted here.")
    time_to_live = _Field(_lifetime, "The message's time to live, in ms.", "time_to_live")
    durable = _Field(_bool, "Whether the message should survive a restart; kept, without an effect.")
    first_acquirer = _Field(_bool, "Whether no receiver has had the message before; kept, without an effect.")
    priority = _Field(_priority, "The priority of the message, 0 to 255; kept, without an effect.")

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
    """The standard properties of a message, such as its id and its recipient. It is also a mapping."""

    __slots__ = ()

    _section = _PROPERTIES

    message_id = _Field(message_identifier, "The message id.", "message_id")
    user_id = _Field(_user, "The user who sent the message.")
    to = _Field(_text, "The recipient of the message.", "to")
    subject = _Field(_text, "The message's subject.", "subject")
    reply_to = _Field(_text, "The address for an answer.", "reply_to")
    correlation_id = _Field(correlation, "The message or matter that this message refers to.", "correlation_id")
    content_type = _Field(_text, "The media type of the body.", "content_type")
    content_encoding = _Field(_text, "The encoding of the body, for example its compression.")
    creation_time = _Field(_number, "The time of creation, in ms since 1970.")
    absolute_expiry_time = _Field(_number, "The time of expiry, in ms since 1970; kept, without an effect.")
    group_id = _Field(_session_id, "The session id.", "session_id")
    group_sequence = _Field(_number, "The number of the message in its group; kept, without an effect.")
    reply_to_group_id = _Field(_session_id, "The session for an answer.", "reply_to_session_id")

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
