"""Encode values to bodies, and decode bodies to values."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, NoReturn

from sbredis.codec._making import shape_of
from sbredis.codec._shape import Mismatch
from sbredis.exceptions import MessageBodyError

__all__ = ["EncodedBody", "decode_body", "encode_body"]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class EncodedBody(NamedTuple):
    """A value in the form in which it is sent."""

    body: bytes
    content_type: str | None
    """The content type for the message; ``None`` for ``bytes``, about which the codec knows nothing."""


def encode_body(value: object) -> EncodedBody:
    """Encode a value: ``bytes`` and ``str`` as they are, every other value as JSON.

    Dataclasses, named tuples, enumerations, dates, times, :class:`~uuid.UUID`, :class:`~decimal.Decimal`, structs of
    msgspec and models of pydantic are encoded by their types. Inside a plain ``dict`` or ``list`` only values that JSON
    itself has are allowed, because nothing else would decode to an equal value.

    Raises :class:`TypeError` for a value that cannot be encoded, and :class:`ValueError` for a value that JSON cannot
    hold: a number that is not finite, or text that is not valid Unicode.
    """
    kind = type(value)
    if kind is bytes:
        return EncodedBody(value, None)  # type: ignore[arg-type]
    try:
        if kind is str:
            return EncodedBody(value.encode(), _TEXT)  # type: ignore[attr-defined]
        shape = shape_of(kind)
        if shape.to_bytes is not None:
            return EncodedBody(shape.to_bytes(value), _JSON)
        return EncodedBody(_dumps(shape.encode(value)).encode(), _JSON)
    except UnicodeEncodeError as error:
        raise ValueError("The text cannot be sent: it contains half of a surrogate pair.") from error
    except RecursionError as error:
        raise ValueError("The value cannot be sent: it is nested too deeply, or contains itself.") from error
    except ValueError as error:
        if "Out of range float" not in str(error):
            raise
        raise ValueError("The value cannot be sent: JSON has no infinite number and no NaN.") from error


def decode_body(body: bytes, content_type: str | None = None, as_type: Any = Any) -> Any:
    """Decode a body to a value of ``as_type``.

    ``bytes`` and ``str`` are the body as it is; text must be UTF-8. For every other type the body must be JSON. With
    ``Any``, the content type decides: JSON gives the value, text a ``str``, and everything else ``bytes``.

    Raises :class:`~sbredis.exceptions.MessageBodyError` if the body does not fit the type. The error names the place,
    and no value from the body.
    """
    if as_type is bytes:
        return body
    if as_type is Any:
        as_type = _type_for(content_type)
        if as_type is bytes:
            return body
    if as_type is str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise MessageBodyError(f"The body is not UTF-8 text: byte {error.start} is wrong.") from None
    shape = shape_of(as_type)
    try:
        if shape.from_bytes is not None:
            return shape.from_bytes(body)
        return shape.decode(json.loads(body, parse_constant=_refuse_constant), "$")
    except Mismatch as error:
        raise MessageBodyError(f"The body does not fit {shape.name}: {error}") from None
    except json.JSONDecodeError as error:
        raise MessageBodyError(f"The body is not JSON: {error.msg}, at character {error.pos}.") from None
    except UnicodeDecodeError as error:
        raise MessageBodyError(f"The body is not UTF-8 text: byte {error.start} is wrong.") from None
    except RecursionError:
        raise MessageBodyError("The body is nested too deeply.") from None


def _type_for(content_type: str | None) -> Any:
    """Return the type that the codec chooses by the content type alone."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    if essence == _JSON or essence.endswith("+json"):
        return object
    return str if essence.startswith("text/") else bytes


def _refuse_constant(name: str) -> NoReturn:
    raise Mismatch(f"it contains {name}, which is not JSON.")
