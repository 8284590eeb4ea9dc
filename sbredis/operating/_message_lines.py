"""Messages as lines of text: JSON objects with all fields, one line for people, and the way back. Pure.

The functions import what they need of messages, because the help of the commands that use them needs none of it.
"""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from sbredis._visible import json_line, visible
from sbredis.exceptions import ServiceBusError
from sbredis.operating._values import duration_of, from_json, to_json

if TYPE_CHECKING:
    from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage

__all__ = ["bytes_field", "fields_of", "message_of", "read_line", "shown_body", "time_of"]

_TOLD = (
    "sequence_number",
    "state",
    "enqueued_time_utc",
    "enqueued_sequence_number",
    "expires_at_utc",
    "delivery_count",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
    "dead_letter_source_sequence_number",
)
"""The fields that the broker sets. A new message cannot have them."""
_IDS = ("message_id", "correlation_id")
_TEXTS = (
    "session_id",
    "partition_key",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
)
_BODIES = ("body", "body_base64", "amqp")
_OTHERS = ("time_to_live", "scheduled_enqueue_time_utc", "application_properties", "raw_amqp_base64")
_KNOWN = {*_TOLD, *_IDS, *_TEXTS, *_OTHERS, *_BODIES}


def fields_of(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Return all fields of a message as JSON has them.

    The body is ``body`` if it is UTF-8, and otherwise ``body_base64``. ``amqp`` has the sections of an AMQP message,
    and its body if that is not bytes. Values that JSON does not have are objects that name their type.
    """
    from sbredis.model import AmqpMessageBodyType, content_of

    content = content_of(message)
    fields: dict[str, Any] = {name: _told(getattr(message, name)) for name in _TOLD}
    fields |= {name: to_json(getattr(message, name)) for name in (*_IDS, *_TEXTS)}
    life, scheduled = content.time_to_live, message.scheduled_enqueue_time_utc
    fields["time_to_live"] = None if life is None else life / 1000  # the sender's, so that a line can be sent again
    fields["scheduled_enqueue_time_utc"] = None if scheduled is None else scheduled.isoformat()
    fields["application_properties"] = to_json(message.application_properties)
    if content.annotations:
        fields["amqp"] = to_json(content.annotations)
    if content.raw_amqp is not None:
        fields["raw_amqp_base64"] = _base64(content.raw_amqp)
    if message.body_type is AmqpMessageBodyType.DATA:
        fields |= bytes_field("body", bytes(content.body))
    return fields


def message_of(given: Any) -> ServiceBusMessage:
    """Return the message that a JSON object describes. Fields that only the broker sets are ignored.

    A ``body`` that is not text is sent as JSON. Raises :class:`ValueError` if the object is not a message.
    """
    try:
        return _checked(given)
    except TypeError as error:
        raise ValueError(str(error)) from None


def read_line(
    line: bytes, number: int, source: str, make: Callable[[bytes], ServiceBusMessage] | None = None
) -> ServiceBusMessage:
    """Return the message of a line, by default of a JSON object. The error for a wrong line names it."""
    from sbredis.model import content_of, copied, from_content, outgoing

    try:
        message = message_of(json.loads(line)) if make is None else make(line)
        outgoing(
            from_content(copied(content_of(message))), detects_duplicates=True
        )  # checks what is checked when it is sent, and gives no id
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}, line {number}: no JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError(f"{source}, line {number}: its values are nested too deeply") from None
    except (ServiceBusError, OverflowError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, ServiceBusError) else error
        raise ValueError(f"{source}, line {number}: {text}") from None
    return message


def shown_body(message: ServiceBusMessage) -> str:
    """Return the body on one line, with escapes in place of characters that would disturb a terminal."""
    from sbredis.model import AmqpMessageBodyType, content_of

    if message.body_type is not AmqpMessageBodyType.DATA:
        return json_line(to_json(message.body))
    body = bytes(content_of(message).body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"base64:{_base64(body)}"
    return visible(text)


def time_of(text: str) -> datetime:
    """Read a time in ISO 8601. A time without an offset is in UTC."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _checked(given: Any) -> ServiceBusMessage:
    if not isinstance(given, dict):
        raise TypeError(f'a message is a JSON object such as {{"body": "text"}}, not {_kind_of(given)}')
    fields = cast("dict[str, Any]", given)
    for name in fields:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Put your own values into 'application_properties'."
            raise ValueError(f"a message has no field {name!r}. {hint}")
    bodies = [name for name in _BODIES[:2] if fields.get(name) is not None]
    if len(bodies) > 1:
        raise ValueError("a message has 'body' or 'body_base64', not both")
    if not bodies and not (fields.get("amqp") or "body" in fields):
        raise ValueError("the message has no 'body'; an empty body is \"\"")
    return _made(fields)


def _made(fields: Mapping[str, Any]) -> ServiceBusMessage:
    from sbredis.model import ServiceBusMessage, content_of

    wanted: dict[str, Any] = {name: value for name in _TEXTS if (value := fields.get(name)) is not None}
    wanted |= {name: from_json(value) for name in _IDS if (value := fields.get(name)) is not None}
    for name, read in _READERS.items():
        if (value := fields.get(name)) is not None:
            try:
                wanted[_KEYWORDS.get(name, name)] = read(value)
            except (OverflowError, TypeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from None
    message = ServiceBusMessage(wanted.pop("body", b""), **wanted)
    if amqp := fields.get("amqp"):
        sections = from_json(amqp)
        if not isinstance(sections, dict):
            raise TypeError("amqp is a JSON object")
        content_of(message).annotations = sections
    return message


def _body(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ValueError("it is not base64") from None


def _life(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("it is a number of seconds, or a text such as '90s'")
    if isinstance(value, str):
        return duration_of(value)
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):  # it is too large, infinite or not a number
        raise ValueError(f"{str(value)[:20]} is not a number of seconds that a message can live") from None


def _due(value: Any) -> datetime:
    if not isinstance(value, str):
        raise TypeError("it is a text such as '2030-01-31T12:00:00Z'")
    return time_of(value)


def _properties(value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError("they are a JSON object")
    return from_json(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "body": _body,
    "body_base64": _bytes,
    "time_to_live": _life,
    "scheduled_enqueue_time_utc": _due,
    "application_properties": _properties,
    "raw_amqp_base64": _bytes,
}
_KEYWORDS = {"body_base64": "body", "raw_amqp_base64": "raw_amqp"}


def _told(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    name = getattr(value, "name", None)
    return name.lower() if isinstance(name, str) else value


def bytes_field(name: str, value: bytes) -> dict[str, str]:
    """Return bytes as a field of JSON: a text if they are UTF-8, and otherwise a field of base64 with its name."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(value)}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _kind_of(value: object) -> str:
    kinds: dict[type, str] = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
