"""Messages that are made from values."""

from __future__ import annotations

from typing import Any, Unpack

from sbredis._nearest import unexpected_keyword
from sbredis.codec import encode_body
from sbredis.model import ServiceBusMessage, names_keywords
from sbredis.workers.declaring._context import SendOptions

__all__ = ["encoded_with", "message_of", "message_with"]


@names_keywords(SendOptions)
def message_of(value: object, **options: Unpack[SendOptions]) -> ServiceBusMessage:
    """Make a message whose body is a value, as :meth:`Worker.send` does.

    A process that has no handlers sends the message with a sender of its client, and a handler with the type of the
    value gets an equal value. ``bytes`` and ``str`` are sent as they are, and every other value as JSON; see
    :func:`sbredis.codec.encode_body`. The keywords are properties of the message.

    Raises :class:`TypeError` for a value that cannot be encoded, and :class:`ValueError` for one that JSON cannot hold.
    """
    return message_with(value, options, "message_of")


def message_with(value: object, options: SendOptions, called: str = "send") -> ServiceBusMessage:
    """Make a message from a value, with the content type of its body. ``called`` is the function of the user."""
    body, given = encoded_with(value, options, called)
    return ServiceBusMessage(body, **given)


def encoded_with(value: object, options: SendOptions, called: str = "send") -> tuple[bytes, dict[str, Any]]:
    """Encode a value. Return the body, and the properties of the message with the content type of the body."""
    for name in options:
        if name not in SendOptions.__annotations__:
            raise unexpected_keyword(called, name, SendOptions.__annotations__)
    encoded = encode_body(value)
    given: dict[str, Any] = {**options}
    if encoded.content_type is not None:
        given.setdefault("content_type", encoded.content_type)
    return encoded.body, given
