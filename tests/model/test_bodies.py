"""Tests of bodies: a body is bytes; iterating over it yields one piece, for programs written for Azure's library."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from sbredis.engine import decode
from sbredis.model import AmqpAnnotatedMessage, ServiceBusMessage, as_message, outgoing
from tests.model.givens import received

TEXT = b'{"a": [1, 2]}'
MESSAGES: list[Callable[[bytes], ServiceBusMessage]] = [
    ServiceBusMessage,
    lambda body: received(ServiceBusMessage(body)),
    lambda body: received(as_message(AmqpAnnotatedMessage(data_body=[body], footer={"f": 1}))),
]
each_message = pytest.mark.parametrize("make", MESSAGES, ids=["own", "received", "received with sections"])


def read(body: object) -> Any:
    """Return the body, typed as a value that can be iterated over."""
    return body


@each_message
@pytest.mark.parametrize("text", [TEXT, b"", b"x" * 100_000])
def test_a_body_can_be_joined_and_iterated_as_with_azures_library(
    make: Callable[[bytes], ServiceBusMessage], text: bytes
) -> None:
    message = make(text)
    body = read(message.body)
    assert b"".join(body) == text
    assert next(body) == next(read(message.body)) == text
    assert list(body) == [text]
    assert [chunk.decode() for chunk in body] == [text.decode()]
    for piece in (b"".join(body), next(body), *body):
        assert type(piece) is bytes
    raw = read(message.raw_amqp_message.body)
    assert b"".join(raw) == next(raw) == text
    assert list(raw) == [text]


@each_message
def test_a_body_works_wherever_bytes_are_expected(make: Callable[[bytes], ServiceBusMessage]) -> None:
    body = make(TEXT).body
    assert isinstance(body, bytes)
    assert (body, hash(body), len(body), repr(body)) == (TEXT, hash(TEXT), len(TEXT), repr(TEXT))
    assert {TEXT: 1}[body] == 1
    assert sorted([b"~", body]) == [TEXT, b"~"]
    assert json.loads(body) == {"a": [1, 2]}
    assert body.decode() == str(body, "utf-8") == TEXT.decode()
    assert (body[0], body[-1], body[1:4], b"[1" in body, 0x7B in body) == (0x7B, 0x7D, TEXT[1:4], True, True)
    assert bytearray(body) == TEXT
    assert memoryview(body)[:4].tobytes() == TEXT[:4]
    assert struct.unpack(">2s", body[:2]) == (TEXT[:2],)
    assert struct.unpack_from(">2s", body) == (TEXT[:2],)
    assert int.from_bytes(body, "big") == int.from_bytes(TEXT, "big")
    assert io.BytesIO(body).read() == TEXT
    assert zlib.decompress(zlib.compress(body)) == TEXT
    assert hashlib.sha256(body).digest() == hashlib.sha256(TEXT).digest()
    assert base64.b64encode(body) == base64.b64encode(TEXT)
    assert b"%b|%s" % (body, body) == TEXT + b"|" + TEXT
    assert b"-".join([body, body]) == TEXT + b"-" + TEXT


def test_operations_on_a_body_return_plain_bytes() -> None:
    body = ServiceBusMessage(TEXT).body
    made = [bytes(body), body[:], body + b"", b"" + body, b"".join([body]), copy.copy(body), copy.deepcopy(body)]
    made += [pickle.loads(pickle.dumps(body, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]  # noqa: S301
    assert made == [TEXT] * len(made)
    assert {type(one) for one in made} == {bytes}
    assert list(bytes(body)) == list(TEXT)


def test_a_body_is_decoded_on_first_access_and_then_kept() -> None:
    message = received(ServiceBusMessage(TEXT))
    assert type(message._content.body) is bytes
    assert message.body is message.body
    assert message.body is message.raw_amqp_message.body[0]


def test_a_received_body_is_sent_again_unchanged() -> None:
    message = received(ServiceBusMessage(TEXT))
    payload = outgoing(ServiceBusMessage(message.body), detects_duplicates=False).payload
    assert decode(payload).body == TEXT
    assert type(decode(payload).body) is bytes
    assert outgoing(as_message(message), detects_duplicates=False).payload == message._record.payload


def test_a_copy_of_a_message_is_equal_even_after_its_body_was_read() -> None:
    message = ServiceBusMessage(TEXT, message_id="m")
    assert message.body == TEXT
    for again in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):  # noqa: S301
        assert again._content == message._content
        assert list(again.body) == [TEXT]
