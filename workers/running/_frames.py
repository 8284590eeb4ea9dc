"""Frames between a worker and the process of a handler: a header of JSON, and bodies as bytes. Pure.

No pickle crosses, because a body is data from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from sbredis._unreadable import decodes
from sbredis.codec import decode_body, encode_body

__all__ = ["Answer", "Asked", "SentFrame", "read_answer", "read_asked", "write_answer", "write_asked"]

_KINDS: Final[dict[str, type]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": float,
    "bytes": bytes,
    "UUID": UUID,
    "datetime": datetime,
    "timedelta": timedelta,
    "NoneType": type(None),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A message, as the process of a handler sees it."""

    body: bytes
    content_type: str | None
    properties: Mapping[str, Any] | None
    facts: Mapping[str, Any]
    """The facts for the context: entity, attempt, fence, interrupted and tick."""


@dataclass(frozen=True, slots=True)
class SentFrame:
    """A message that the handler has sent."""

    entity: str
    body: bytes
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome or the error of a call, and the messages that the handler has sent."""

    outcome: tuple[str, Mapping[str, Any]] | None
    """The name and the values of an outcome; ``None`` if the handler raised an error."""
    error: tuple[str, str, str, bool] | None = None
    """The class of an error, its nearest built-in class, its text, and whether the message must not come again."""
    sends: Sequence[SentFrame] = field(default_factory=tuple)
    result: SentFrame | None = None
    """The handler's result, as a message without an entity."""


def write_asked(asked: Asked) -> bytes:
    """Return a message as one frame."""
    header = {
        "content_type": asked.content_type,
        "properties": _written(asked.properties),
        "facts": _written(asked.facts),
    }
    return _frame(header, [asked.body])


@decodes("A frame of a worker")
def read_asked(frame: bytes) -> Asked:
    """Return the message of a frame."""
    header, (body,) = _parts(frame)
    properties = header["properties"]
    return Asked(body, header["content_type"], _read(properties), _read(header["facts"]) or {})


def write_answer(answer: Answer) -> bytes:
    """Return an answer as one frame."""
    sent = list(answer.sends) if answer.result is None else [*answer.sends, answer.result]
    header = {
        "outcome": None if answer.outcome is None else [answer.outcome[0], _written(answer.outcome[1])],
        "error": answer.error,
        "sends": [[each.entity, _written(each.options)] for each in sent],
        "result": answer.result is not None,
    }
    return _frame(header, [each.body for each in sent])


@decodes("A frame of a worker")
def read_answer(frame: bytes) -> Answer:
    """Return the answer of a frame."""
    header, bodies = _parts(frame)
    outcome = header["outcome"]
    sent = [
        SentFrame(entity, body, _read(options) or {})
        for (entity, options), body in zip(header["sends"], bodies, strict=True)
    ]
    result = sent.pop() if header["result"] else None
    error = header["error"]
    if error is not None and list(map(type, error)) != [str, str, str, bool]:
        raise TypeError("an error is malformed")
    if any(type(name) is not str for name in (*(each.entity for each in sent), *(outcome or ())[:1])):
        raise TypeError("a name is malformed")
    return Answer(
        None if outcome is None else (outcome[0], _read(outcome[1]) or {}),
        None if error is None else tuple(error),
        sent,
        result,
    )


def _frame(header: Mapping[str, Any], bodies: Sequence[bytes]) -> bytes:
    text = json.dumps({**header, "sizes": [len(body) for body in bodies]}).encode()
    return b"".join((len(text).to_bytes(4, "big"), text, *bodies))


def _parts(frame: bytes) -> tuple[dict[str, Any], list[bytes]]:
    at = 4 + int.from_bytes(frame[:4], "big")
    header: dict[str, Any] = json.loads(frame[4:at])
    bodies: list[bytes] = []
    for size in header["sizes"]:
        if type(size) is not int or not 0 <= size <= len(frame) - at:
            raise ValueError("a size is wrong")
        bodies.append(frame[at : at + size])
        at += size
    return header, bodies


def _written(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return values with the names of their types, so that each arrives as it was."""
    if values is None:
        return None
    return {name: _value(name, value) for name, value in values.items()}


def _value(name: str, value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return ["dict", _written(cast("Mapping[str, Any]", value))]
    kind = type(value).__name__
    if kind not in _KINDS:
        raise TypeError(f"{name} has a value of the type {kind}, which cannot go to another process")
    if kind in {"str", "int", "bool", "float", "NoneType"}:
        return [kind, value]
    if kind == "bytes":
        return [kind, value.hex()]
    return [kind, encode_body(value).body.decode()]


def _read(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    made: dict[str, Any] = {}
    for name, (kind, value) in values.items():
        if kind == "dict":
            made[name] = _read(value)
        elif kind in {"str", "int", "bool", "float", "NoneType"}:
            if type(value).__name__ != kind:
                raise TypeError("a value has another type")
            made[name] = value
        elif kind == "bytes":
            made[name] = bytes.fromhex(value)
        else:
            made[name] = decode_body(value.encode(), None, _KINDS[kind])
    return made
