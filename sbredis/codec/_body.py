"""Encode values to bodies, and decode bodies to values."""

# The values of an application have types that are not known.
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import enum
import json
import re
from codecs import BOM_UTF8
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from sbredis.codec._differing import difference
from sbredis.codec._misfits import Mismatch
from sbredis.codec._models import encode_other, is_model
from sbredis.codec._reading import BodyReading, DeclaredForm, Takes, declared_form, reading_of
from sbredis.codec._types import BodyType, UnsupportedTypeError, body_type
from sbredis.exceptions import MessageBodyError

__all__ = ["EncodedBody", "decode_body", "encode_body"]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_OWN_TYPES: Final = frozenset({str, int, bool, type(None)})
_encode = msgspec.json.Encoder(enc_hook=encode_other).encode


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
        if kind is not list and kind is not dict and body_type(kind).sends_text:
            return EncodedBody(value.value.encode(), _TEXT)  # type: ignore[attr-defined]
        return EncodedBody(_json(value), _JSON)
    except UnicodeEncodeError as error:
        raise ValueError("The text cannot be sent: it contains half of a surrogate pair.") from error
    except RecursionError as error:
        raise ValueError("The value cannot be sent: it is nested too deeply, or contains itself.") from error


def _json(value: Any) -> bytes:
    """Encode a value to JSON that decodes to an equal value of the same type."""
    kind = type(value)
    if kind is list or kind is dict:
        return _encode(_plain(value))
    own = body_type(kind)
    body = _encode(value.value if isinstance(value, enum.Enum) else value)
    if is_model(kind):  # a model decides itself what it leaves out
        return body
    try:
        back = own.from_json(body)
    except Mismatch as error:
        _refuse_not_finite(value)
        text = f"The value cannot be sent, because it would not decode to {own.name}: {error}"
        raise (TypeError if error.wrong_kind else ValueError)(text) from None
    if (found := difference(value, back, "$")) is not None:
        _refuse_not_finite(value)
        raise TypeError(
            f"A value of the type {found.kind.__name__} at {found.place} cannot be sent, because it would not decode "
            f"to an equal value{found.reason}."
        )
    return body


def _plain(value: Any) -> Any:
    """Return a value with the values inside it encoded that JSON does not have."""
    kind = type(value)
    if kind in _OWN_TYPES:
        return value
    if kind is float:
        if not isfinite(value):
            raise _not_finite()
        return value
    if kind is list:
        return [item if type(item) in _OWN_TYPES else _plain(item) for item in value]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(
                    f"A dict with a key of the type {type(key).__name__} cannot be sent: JSON has only text as keys. "
                    "Give the field a type, such as dict[int, str] in a dataclass."
                )
        return {key: item if type(item) in _OWN_TYPES else _plain(item) for key, item in value.items()}
    try:
        structured = body_type(kind).is_structured
    except UnsupportedTypeError:
        structured = False
    if not structured:
        raise TypeError(
            f"A value of the type {kind.__name__} inside a plain dict or list cannot be sent, because it would not "
            "decode to an equal value. Use a dataclass whose field has this type."
        )
    return msgspec.Raw(_json(value))


def _refuse_not_finite(value: Any) -> None:
    """Raise the error for numbers of which msgspec makes null, if the value contains one."""
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=str), allow_nan=False)
    except ValueError:
        raise _not_finite() from None


def _not_finite() -> ValueError:
    return ValueError("The value cannot be sent: JSON has no infinite number and no NaN.")


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
    if as_type is str:  # this row of the table is known here, because the type is frequent
        return _text(body)
    own = body_type(as_type)
    form = declared_form(content_type)
    reading = reading_of(own.takes, form)
    if reading is BodyReading.BYTES:
        return body
    try:
        if reading is BodyReading.TEXT:
            return own.from_text(_text(body))
        if reading is BodyReading.KNOWN_TEXT:
            return _decoded_known_text(own, body)
        return _decoded_json(own, body)
    except Mismatch as error:
        raise MessageBodyError(f"The body does not fit {own.name}: {error}") from None
    except msgspec.DecodeError as error:
        said = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", str(error))
        text = f"{said[1]}, at byte {said[2]}" if said else "it ends too early"
        hint = "" if form is DeclaredForm.JSON or own.takes is Takes.NOTHING else " Text needs a content type of text."
        raise MessageBodyError(f"The body is not JSON: {text}.{hint}") from None
    except RecursionError:
        raise MessageBodyError("The body is nested too deeply.") from None


def _decoded_known_text(own: BodyType, body: bytes) -> Any:
    text = _text(body)
    try:
        return own.from_text(text)
    except Mismatch as unfit:
        try:
            return _decoded_json(own, body)
        except msgspec.DecodeError:
            raise unfit from None


def _decoded_json(own: BodyType, body: bytes) -> Any:
    try:
        return own.from_json(body.removeprefix(BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError):
        _text(body)
        raise


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise MessageBodyError(f"The body is not UTF-8 text: byte {error.start} is wrong.") from None
