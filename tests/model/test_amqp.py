"""Tests of messages in AMQP's terms: the AMQP view shows the same content without loss."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sbredis.amqp
from sbredis.model import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
    ServiceBusMessage,
    as_message,
    outgoing,
    routing_key,
)
from tests.model.givens import SCALARS, TEXT, VALUES, received

ANNOTATED: Any = AmqpAnnotatedMessage
HEADER: dict[str, Any] = {
    "delivery_count": 2,
    "time_to_live": 5000,
    "durable": True,
    "first_acquirer": False,
    "priority": 4,
}
PROPERTIES: dict[str, Any] = {
    "message_id": "m",
    "user_id": b"u",
    "to": "t",
    "subject": "s",
    "reply_to": "r",
    "correlation_id": "c",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "creation_time": 1,
    "absolute_expiry_time": 2,
    "group_id": "g",
    "group_sequence": 3,
    "reply_to_group_id": "rg",
}
OF_APPLICATION = st.dictionaries(TEXT, SCALARS, max_size=3)
MAPS = st.dictionaries(TEXT.filter(lambda name: not name.startswith("x-opt-")), VALUES, max_size=3)


def full() -> AmqpAnnotatedMessage:
    """Return a message that has content in every section."""
    own: dict[str | bytes, Any] = {b"x-own": 1, "x-opt-partition-key": b"g", "x-opt-scheduled-enqueue-time": 1000}
    return AmqpAnnotatedMessage(
        data_body=["a", b"b"],
        header=AmqpMessageHeader(**HEADER),
        footer={"f": 1},
        delivery_annotations={"d": 1},
        properties=AmqpMessageProperties(**PROPERTIES),
        application_properties={"a": 1},
        annotations=own,
    )


def test_the_package_under_azures_name_has_the_same_classes() -> None:
    assert sbredis.amqp.AmqpAnnotatedMessage is AmqpAnnotatedMessage
    assert sbredis.amqp.AmqpMessageBodyType is AmqpMessageBodyType


def test_every_section_is_read_back_as_it_was_set() -> None:
    message = received(as_message(full()))
    raw = message.raw_amqp_message
    assert raw.header == HEADER
    assert raw.properties == PROPERTIES
    assert (raw.footer, raw.delivery_annotations, raw.annotations) == ({"f": 1}, {"d": 1}, {"x-own": 1})
    assert raw.application_properties == message.application_properties == {"a": 1}
    assert (raw.body, raw.body_type, message.body) == ([b"ab"], AmqpMessageBodyType.DATA, b"ab")


def test_the_fields_of_a_message_agree_with_its_amqp_view() -> None:
    message = as_message(full())
    assert (message.message_id, message.session_id, message.partition_key) == ("m", "g", "g")
    assert (message.subject, message.to, message.reply_to, message.correlation_id) == ("s", "t", "r", "c")
    assert (message.content_type, message.reply_to_session_id) == ("text/plain", "rg")
    assert message.time_to_live == timedelta(seconds=5)
    assert message.scheduled_enqueue_time_utc == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert routing_key(message) == "g"


@pytest.mark.slow
@given(OF_APPLICATION, MAPS, MAPS, MAPS)
def test_values_of_every_type_round_trip_in_every_section(
    application: dict[str, Any], annotations: dict[str, Any], delivery: dict[str, Any], footer: dict[str, Any]
) -> None:
    raw = received(
        as_message(
            AmqpAnnotatedMessage(
                value_body=annotations,
                application_properties=application,
                annotations=annotations,
                delivery_annotations=delivery,
                footer=footer,
            )
        )
    ).raw_amqp_message
    assert (raw.application_properties or {}) == application
    assert (raw.body, raw.annotations, raw.delivery_annotations, raw.footer) == (
        annotations,
        annotations,
        delivery,
        footer,
    )


def test_a_change_in_the_amqp_view_changes_the_message() -> None:
    message = ServiceBusMessage("x", subject="before")
    raw = message.raw_amqp_message
    raw.properties.subject = "after"
    raw.header.priority = 9
    raw.annotations["x-own"] = 1
    message.to = "t"
    assert (message.subject, raw.properties.to) == ("after", "t")
    again = received(message).raw_amqp_message
    assert (again.header.priority, again.annotations) == (9, {"x-own": 1})
    raw.properties = None
    raw.header = {"durable": True}
    assert (message._content.subject, message._content.to) == (None, None)
    assert raw.header == {**dict.fromkeys(HEADER), "durable": True}


def test_annotations_set_one_by_one_act_like_fields_of_the_message() -> None:
    message = ServiceBusMessage("x")
    annotations: Any = message.raw_amqp_message.annotations
    annotations[b"x-opt-partition-key"] = b"p"
    annotations["x-opt-scheduled-enqueue-time"] = datetime(2030, 1, 1, tzinfo=UTC)
    assert routing_key(message) == "p"
    assert outgoing(message, detects_duplicates=False).due == 1_893_456_000_000
    assert message.raw_amqp_message.annotations == {}
    annotations = message.raw_amqp_message.annotations
    annotations["x-opt-partition-key"] = "q"
    message.session_id = "p"
    with pytest.raises(ValueError, match="partition_key 'q' is not the session_id 'p'"):
        outgoing(message, detects_duplicates=False)


def test_ids_may_have_every_type_of_amqp() -> None:
    number = UUID(int=7)
    properties = AmqpMessageProperties(message_id=number, correlation_id=5, subject=b"s", group_id=b"g")
    assert properties.message_id == number
    assert (properties.correlation_id, properties.subject, properties.group_id) == (5, "s", "g")
    for given_id in (b"\xff", "m", 2**64 - 1, number):
        properties.message_id = properties.correlation_id = given_id
        assert (properties.message_id, properties.correlation_id) == (given_id, given_id)
        assert type(properties.message_id) is type(given_id)


@pytest.mark.parametrize("name", ["subject", "to", "group_id", "reply_to_group_id", "content_type"])
def test_bytes_that_are_not_text_are_refused_with_the_name_of_the_field(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be text, but these bytes are not valid UTF-8$"):
        AmqpMessageProperties(**{name: b"\xff"})  # type: ignore[arg-type]


def test_too_large_numbers_and_user_ids_are_refused_when_they_are_set() -> None:
    with pytest.raises(ValueError, match="creation_time is a whole number that does not fit into 64 bits"):
        AmqpMessageProperties(creation_time=2**64)
    for user in ("u" * 32769, b"u" * 32769):
        with pytest.raises(ValueError, match="user_id has 32769 bytes"):
            AmqpMessageProperties(user_id=user)


def test_a_raw_encoding_is_kept_with_the_message() -> None:
    message = AmqpAnnotatedMessage(value_body=1, raw_amqp=b"\x00Sw\x01")
    assert message.raw_amqp == b"\x00Sw\x01"
    assert as_message(message).raw_amqp == b"\x00Sw\x01"
    message.raw_amqp = None
    assert as_message(message).raw_amqp is None
    with pytest.raises(TypeError, match="raw_amqp must be bytes or None, not str"):
        message.raw_amqp = "x"  # type: ignore[assignment]


def test_a_section_can_be_used_like_a_mapping() -> None:
    header = AmqpMessageHeader(priority=4)
    assert header["priority"] == 4
    assert "durable" in header
    assert list(header) == list(HEADER)
    assert len(header) == 5
    header.update(durable=True)
    del header["priority"]
    assert header == AmqpMessageHeader(durable=True)
    assert repr(header) == "AmqpMessageHeader(durable=True)"
    with pytest.raises(KeyError, match="there is no 'colour'; the names are delivery_count"):
        header["colour"] = 1


@pytest.mark.parametrize("bodies", [{}, {"data_body": b"", "value_body": 1}, {"value_body": 1, "sequence_body": []}])
def test_a_message_has_exactly_one_body(bodies: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        ANNOTATED(**bodies)


@pytest.mark.parametrize(
    ("given_parts", "error", "text"),
    [
        ({"data_body": 7}, TypeError, "must be str, bytes or None, not int"),
        ({"data_body": [b"a", 7]}, TypeError, "must be str, bytes or None, not int"),
        ({"data_body": {"a": 1}}, TypeError, "must be str, bytes or None, not dict"),
        ({"value_body": object()}, TypeError, "type object"),
        ({"sequence_body": "abc"}, TypeError, "must be a list of values"),
        ({"sequence_body": [object()]}, TypeError, "type object"),
    ],
)
def test_a_body_that_cannot_be_sent_is_refused(given_parts: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ANNOTATED(**given_parts)


@pytest.mark.parametrize(
    ("section", "value", "error", "text"),
    [
        ("header", {"colour": 1}, TypeError, "colour"),
        ("header", {"durable": True, "priority": 256}, ValueError, "priority must be a number from 0 to 255"),
        ("header", {"durable": 1}, TypeError, "durable must be True, False or None"),
        ("header", {"delivery_count": "1"}, TypeError, "delivery_count must be a whole number"),
        ("header", {"delivery_count": -1}, ValueError, "delivery_count must not be negative"),
        ("header", {"time_to_live": 0}, ValueError, "time_to_live must be longer than zero"),
        ("properties", {"subject": "new", "message_id": "x" * 129}, ValueError, "at most 128"),
        ("properties", {"subject": 1.5}, TypeError, "subject must be str"),
        ("properties", {"group_id": "another"}, ValueError, "partition_key 'g' is not the session_id 'another'"),
        ("annotations", {"a": object()}, TypeError, "'a' is of the type object"),
        ("annotations", {"x-opt-partition-key": "another"}, ValueError, "partition_key 'another' is not"),
        (
            "annotations",
            {"x-opt-partition-key": "g", "x-opt-scheduled-enqueue-time": datetime(2030, 1, 1)},  # noqa: DTZ001
            ValueError,
            "without a time zone",
        ),
        ("delivery_annotations", 7, TypeError, "delivery_annotations must be a mapping or None, not int"),
        ("footer", "abc", TypeError, "footer must be a mapping or None, not str"),
        ("application_properties", {1: 1}, TypeError, "name of a property must be str"),
    ],
)
def test_a_section_that_cannot_be_sent_is_refused_and_changes_nothing(
    section: str, value: Any, error: type[Exception], text: str
) -> None:
    message = full()
    before = copy.deepcopy(message._content)
    with pytest.raises(error, match=text):
        setattr(message, section, value)
    assert message._content == before


def test_a_refused_entry_of_a_section_changes_nothing() -> None:
    message = full()
    before = copy.deepcopy(message._content)
    with pytest.raises(ValueError, match="partition_key 'g' is not the session_id 'h'"):
        message.properties.group_id = "h"
    with pytest.raises(TypeError, match="durable must be"):
        message.header["durable"] = "yes"
    assert message._content == before


def test_a_time_to_live_above_the_maximum_means_no_expiry() -> None:
    assert AmqpMessageHeader(time_to_live=2**63).time_to_live is None


def test_the_repr_of_a_message_hides_its_body() -> None:
    message = AmqpAnnotatedMessage(data_body="secret", properties={"subject": "s"})
    assert repr(message) == "<AmqpAnnotatedMessage body_type=data, AmqpMessageProperties(subject='s')>"
    assert str(message) == "secret"
    assert str(AmqpAnnotatedMessage(sequence_body=(1, 2))) == "[1, 2]"
