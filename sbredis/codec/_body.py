"""Encode values to bodies, and decode bodies to values."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, NoReturn

from sbredis.codec._making import shape_of
from sbredis.codec._reading import BodyReading, DeclaredForm, Takes, declared_form, reading_of
from sbredis.codec._shape import Mismatch, Shape, UnsupportedTypeError
from sbredis.codec._simple import plain, refuse_inside
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

    A member of an enumeration whose members are ``str`` is sent as the text that it is.

    Dataclasses, named tuples, enumerations, dates, times, :class:`~uuid.UUID`, :class:`~decimal.Decimal`, structs of
    msgspec and models of pydantic are encoded by their types. A plain ``dict`` or ``list`` may contain the values that
    JSON itself has, and dataclasses, named tuples, structs and models: ``list[Model]`` and ``dict[str, Model]`` give
    equal values back. Other values inside it are refused, because a reader without the type would not notice that a
    text was a date.

    Raises :class:`TypeError` for a value that cannot be encoded, and :class:`ValueError` for a value that JSON cannot
    hold: a number that is not finite, or text that is not valid Unicode.
    """
    kind = type(value)
    if kind is bytes:
        return EncodedBody(value, None)  # type: ignore[arg-type]
    try:
        if kind is str:
            return EncodedBody(value.encode(), _TEXT)  # type: ignore[attr-defined]
        if kind is list or kind is dict:
            return EncodedBody(_dumps(plain(value, _encode_structured)).encode(), _JSON)
        shape = shape_of(kind)
        if shape.to_bytes is not None:
            return EncodedBody(shape.to_bytes(value), _JSON)
        if shape.sends_text:
            return EncodedBody(shape.encode(value).encode(), _TEXT)
        return EncodedBody(_dumps(shape.encode(value)).encode(), _JSON)
    except UnicodeEncodeError as error:
        raise ValueError("The text cannot be sent: it contains half of a surrogate pair.") from error
    except RecursionError as error:
        raise ValueError("The value cannot be sent: it is nested too deeply, or contains itself.") from error
    except ValueError as error:
        if "Out of range float" not in str(error):
            raise
        raise ValueError("The value cannot be sent: JSON has no infinite number and no NaN.") from error


def _encode_structured(value: Any) -> Any:
    """Encode a value inside a plain ``dict`` or ``list``, whose type must be an object or a list in JSON."""
    try:
        shape = shape_of(type(value))
    except UnsupportedTypeError:
        refuse_inside(value)
    if not shape.kinds <= {"map", "list"}:
        refuse_inside(value)
    return shape.encode(value)


def decode_body(body: bytes, content_type: str | None = None, as_type: Any = Any) -> Any:
    """Decode a body to a value of ``as_type``.

    ``bytes`` and ``str`` are the body as it is; text must be UTF-8. With ``Any``, the content type decides: JSON gives
    the value, text a ``str``, and everything else ``bytes``.

    For a union, the content type decides too. If it is JSON, the body must be JSON. Otherwise a union with ``bytes``
    gives the body as it is, and a union with ``str`` gives text. But a union with ``str`` and more than ``None`` gives
    text only if the content type is text, because a body without a content type may be JSON.

    A ``Literal`` or an enumeration takes its texts as text, under the same conditions, and as JSON. For every other
    type the body must be JSON, whatever its content type.

    Raises :class:`~sbredis.exceptions.MessageBodyError` if the body does not fit the type. The error names the place,
    and no value from the body.
    """
    if as_type is bytes:
        return body
    shape = shape_of(as_type)
    if as_type is str:  # this row of the table is known here, because the type is frequent
        return _decoded_text(shape, body)
    form = declared_form(content_type)
    reading = reading_of(shape.takes, form)
    if reading is BodyReading.BYTES:
        return body
    if reading is BodyReading.TEXT:
        return _decoded_text(shape, body)
    if reading is BodyReading.KNOWN_TEXT:
        return _decoded_known_text(shape, body)
    try:
        return _decoded_json(shape, body)
    except json.JSONDecodeError as error:
        hint = (
            "" if form is DeclaredForm.JSON or shape.takes is Takes.NOTHING else " Text needs a content type of text."
        )
        raise MessageBodyError(f"The body is not JSON: {error.msg}, at character {error.pos}.{hint}") from None


def _decoded_text(shape: Shape, body: bytes) -> Any:
    try:
        return shape.decode(body.decode(), "$")
    except UnicodeDecodeError as error:
        raise _not_text(error) from None


def _decoded_known_text(shape: Shape, body: bytes) -> Any:
    try:
        return shape.decode(body.decode(), "$")
    except UnicodeDecodeError as error:
        unfit = _not_text(error)
    except Mismatch as error:
        unfit = _misfit(shape, error)
    try:
        return _decoded_json(shape, body)
    except json.JSONDecodeError:
        raise unfit from None


def _decoded_json(shape: Shape, body: bytes) -> Any:
    try:
        if shape.from_bytes is not None:
            return shape.from_bytes(body)
        return shape.decode(json.loads(body, parse_constant=_refuse_constant), "$")
    except Mismatch as error:
        raise _misfit(shape, error) from None
    except UnicodeDecodeError as error:
        raise _not_text(error) from None
    except RecursionError:
        raise MessageBodyError("The body is nested too deeply.") from None
    except json.JSONDecodeError:
        raise  # the caller knows more about it
    except ValueError:  # Python limits the digits of numbers
        raise MessageBodyError("The body contains a number with too many digits.") from None


def _misfit(shape: Shape, error: Mismatch) -> MessageBodyError:
    return MessageBodyError(f"The body does not fit {shape.name}: {error}")


def _not_text(error: UnicodeDecodeError) -> MessageBodyError:
    return MessageBodyError(f"The body is not UTF-8 text: byte {error.start} is wrong.")


def _refuse_constant(name: str) -> NoReturn:
    raise Mismatch(f"it contains {name}, which is not JSON.")
