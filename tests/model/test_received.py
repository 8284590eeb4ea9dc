"""Tests that a received message has the content that was sent, and the properties that the broker added."""

from __future__ import annotations

import copy
import operator
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import NEVER, Changes, Delivery, decode
from sbredis.exceptions import DataLayoutError
from sbredis.model import (
    AmqpAnnotatedMessage,
    Reception,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    as_message,
    as_messages,
    delivered,
    hold_of,
    outgoing,
)
from tests.model.givens import ARGUMENTS, ENQUEUED, lease, received

PEEK_LOCK, DELETE = ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE
WHEN = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ENQUEUED)


def corrupt() -> ServiceBusReceivedMessage:
    """Return a message whose content cannot be decoded."""
    return delivered(Delivery("7", b"a0%d\x09nonsense" % ENQUEUED), Reception(0, PEEK_LOCK, None), None)


@given(ARGUMENTS)
def test_a_received_message_equals_the_sent_one(arguments: dict[str, Any]) -> None:
    lifetime: timedelta | None = arguments.get("time_to_live")
    ends = None if lifetime is None else min(ENQUEUED + lifetime // timedelta(milliseconds=1), NEVER - 1)
    message = received(ServiceBusMessage(**arguments), expires=ends)
    if ends == NEVER - 1:
        arguments = {**arguments, "time_to_live": timedelta(milliseconds=ends - ENQUEUED)}
    expected = {"message_id": message.message_id, **arguments}
    for name in (*arguments, "message_id"):
        assert getattr(message, name) == expected[name]
    assert message._content == decode(message._record.payload)


def test_the_content_is_decoded_on_first_access() -> None:
    message = corrupt()
    assert message.sequence_number == 7
    assert message.enqueued_time_utc == WHEN
    with pytest.raises(DataLayoutError, match="version 9"):
        _ = message.body
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        operator.attrgetter("colour")(message)


def test_decoded_content_is_not_decoded_again() -> None:
    message = received(ServiceBusMessage("x", application_properties={"a": 1}))
    properties = message.application_properties
    assert properties is not None
    properties["b"] = 2
    assert message.application_properties == {"a": 1, "b": 2}
    assert message.body is message.body


@pytest.mark.parametrize(
    ("name", "base", "number"),
    [("1", 0, 1), ("d12", 0, 12), ("281474976710655", 0, (1 << 48) - 1), ("d5", 3 << 48, (3 << 48) + 5)],
)
def test_the_sequence_number_is_computed_from_the_partition_and_the_stored_name(
    name: str, base: int, number: int
) -> None:
    message = received(ServiceBusMessage("x"), name=name, base=base)
    assert message.sequence_number == message.enqueued_sequence_number == number


def test_the_times_set_by_the_broker_are_returned() -> None:
    forever, mortal = received(ServiceBusMessage("x")), received(ServiceBusMessage("x"), expires=ENQUEUED + 5000)
    assert (forever.enqueued_time_utc, forever.expires_at_utc) == (WHEN, None)
    assert (mortal.enqueued_time_utc, mortal.expires_at_utc) == (WHEN, WHEN + timedelta(seconds=5))
    copy = received(ServiceBusMessage("x"), expires=ENQUEUED + 5000, expires_here=ENQUEUED + 3000)
    assert copy.expires_at_utc == WHEN + timedelta(seconds=3)
    lasting = received(ServiceBusMessage("x"), expires=ENQUEUED + 5000, expires_here=NEVER)
    assert lasting.expires_at_utc is None
    later = WHEN + timedelta(hours=1)
    scheduled = received(ServiceBusMessage("x", scheduled_enqueue_time_utc=later), state="s", peeked=True)
    assert (scheduled.enqueued_time_utc, scheduled.expires_at_utc) == (later, None)


def test_the_time_to_live_is_the_one_that_applies() -> None:
    """The limit of the entity may have made it shorter. A copy that is sent again has the sender's."""
    hours, minute = timedelta(hours=5), timedelta(minutes=1)
    limited = received(ServiceBusMessage("x", time_to_live=hours), expires=ENQUEUED + 60_000)
    assert limited.time_to_live == minute
    assert limited.time_to_live == limited.expires_at_utc - limited.enqueued_time_utc  # type: ignore[operator]
    assert limited.raw_amqp_message.header is not None
    assert limited.raw_amqp_message.header.time_to_live == hours // timedelta(milliseconds=1)
    assert as_message(limited).time_to_live == hours
    assert pickle.loads(pickle.dumps(limited)).time_to_live == minute  # noqa: S301
    assert received(ServiceBusMessage("x"), expires=ENQUEUED + 60_000).time_to_live == minute
    own = received(ServiceBusMessage("x", time_to_live=hours), expires=ENQUEUED + 60_000, expires_here=ENQUEUED + 3000)
    assert own.time_to_live == timedelta(seconds=3)
    assert received(ServiceBusMessage("x")).time_to_live is None
    assert received(ServiceBusMessage("x", time_to_live=hours), expires_here=NEVER).time_to_live is None
    scheduled = ServiceBusMessage("x", time_to_live=hours, scheduled_enqueue_time_utc=WHEN)
    assert received(scheduled, state="s", peeked=True).time_to_live == hours


def test_a_time_to_live_that_the_application_assigns_is_shown_and_sent() -> None:
    message = received(ServiceBusMessage("x", time_to_live=timedelta(hours=5)), expires=ENQUEUED + 60_000)
    message.time_to_live = timedelta(seconds=7)
    assert (message.time_to_live, as_message(message).time_to_live) == (timedelta(seconds=7),) * 2
    message.time_to_live = None
    assert (message.time_to_live, as_message(message).time_to_live) == (None, None)
    with pytest.raises(ValueError, match="longer than zero"):
        message.time_to_live = timedelta(0)
    assert message.time_to_live is None


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("l", ServiceBusMessageState.ACTIVE),
        ("a", ServiceBusMessageState.ACTIVE),
        ("w", ServiceBusMessageState.ACTIVE),
        ("f", ServiceBusMessageState.DEFERRED),
        ("s", ServiceBusMessageState.SCHEDULED),
    ],
)
def test_a_peeked_message_shows_its_state(letter: str, state: ServiceBusMessageState) -> None:
    assert received(ServiceBusMessage("x"), state=letter, peeked=True).state is state


def test_the_delivery_count_includes_this_delivery_except_after_a_peek() -> None:
    assert received(ServiceBusMessage("x")).delivery_count == 1
    assert received(ServiceBusMessage("x"), failures=3).delivery_count == 4
    assert received(ServiceBusMessage("x"), failures=3, peeked=True).delivery_count == 3


# -- the lock ----------------------------------------------------------------------------------------------------------


def test_a_locked_message_has_a_token_and_the_time_when_its_lock_ends() -> None:
    message = received(ServiceBusMessage("x"), lock=lease(until=100.0, until_utc=1_700_000_060.0))
    assert type(message.lock_token) is UUID
    assert message.locked_until_utc == datetime.fromtimestamp(1_700_000_060, UTC)
    assert [hold_of(message).lock_expired(now) for now in (99.9, 100.0, 101.0)] == [False, True, True]


def test_a_lock_token_stays_through_renewals_and_differs_between_deliveries() -> None:
    first = received(ServiceBusMessage("x"), lock=lease("aaaaaaaaaaa"))
    token = first.lock_token
    hold_of(first).lease = replace(lease("aaaaaaaaaaa", until_utc=1_700_000_999.0), name="7")
    assert first.lock_token == token
    assert first.locked_until_utc == datetime.fromtimestamp(1_700_000_999, UTC)
    others = [
        received(ServiceBusMessage("x"), lock=lease("aaaaaaaaaaa")),
        received(ServiceBusMessage("x"), lock=lease("bbbbbbbbbbb")),
        received(ServiceBusMessage("x"), name="8", lock=lease("aaaaaaaaaaa")),
        received(ServiceBusMessage("x"), name="d7", lock=lease("aaaaaaaaaaa")),
        received(ServiceBusMessage("x"), lock=replace(lease("aaaaaaaaaaa"), partition=1)),
    ]
    assert [other.lock_token == token for other in others] == [True, False, False, False, False]


@pytest.mark.parametrize(
    "message",
    [
        received(ServiceBusMessage("x")),
        received(ServiceBusMessage("x"), peeked=True),
        received(ServiceBusMessage("x"), mode=DELETE, lock=lease()),
    ],
    ids=["without a lease", "peeked", "deleted"],
)
def test_a_message_that_is_not_locked_has_no_lock_fields(message: ServiceBusReceivedMessage) -> None:
    assert (message.lock_token, message.locked_until_utc) == (None, None)


def test_a_settled_message_has_no_lock_and_can_still_be_read() -> None:
    message = received(ServiceBusMessage("x"), lock=lease())
    hold_of(message).settled = True
    assert (message.lock_token, message.locked_until_utc, message.body) == (None, None, b"x")


# -- changes and dead letters ------------------------------------------------------------------------------------------


def test_a_message_is_modified_if_a_settlement_a_rule_or_a_dead_letters_reason_has_changed_it() -> None:
    sent = ServiceBusMessage("x", application_properties={"a": 1}, raw_amqp=b"raw")
    assert not received(sent).is_modified
    assert not received(sent, failures=3, expires=9_000_000_000_000).is_modified
    assert not received(sent, changes=Changes(system={"hops": 0})).is_modified
    for changes in (Changes(properties={"a": 2}), Changes(system={"subject": "s"})):
        assert received(sent, changes=changes).is_modified
    dead = received(sent, name="d7", reason="A", changes=Changes(reason="why"))
    assert dead.is_modified
    assert received(as_message(dead)).is_modified, "its raw encoding lacks what has changed"
    assert not received(as_message(received(ServiceBusMessage("x"), changes=Changes(properties={})))).is_modified
    assert (dead.raw_amqp, dead.body) == (b"raw", b"x")


def test_changed_properties_replace_all_properties_that_were_sent() -> None:
    sent = ServiceBusMessage("x", application_properties={"a": 1, "b": 2})
    assert received(sent, changes=Changes({"c": 3})).application_properties == {"c": 3}
    assert received(sent, changes=Changes({})).application_properties == {}
    assert received(sent, changes=Changes(None)).application_properties == {"a": 1, "b": 2}


def test_a_message_that_is_not_a_dead_letter_has_no_reason() -> None:
    message = received(ServiceBusMessage("x", application_properties={"DeadLetterReason": "mine"}))
    assert (message.dead_letter_reason, message.dead_letter_error_description) == (None, None)
    assert message.application_properties == {"DeadLetterReason": "mine"}
    assert message.dead_letter_source is None


@pytest.mark.parametrize(
    ("letter", "changes", "reason", "description"),
    [
        ("T", None, "TTLExpiredException", "The message expired and was dead lettered."),
        ("A", Changes({"a": 1}, "bad", "very bad"), "bad", "very bad"),
        ("A", Changes({"a": 1}, "bad"), "bad", None),
        ("A", Changes({"a": 1}), None, None),
    ],
)
def test_a_dead_letter_has_its_reason(
    letter: str, changes: Changes | None, reason: str | None, description: str | None
) -> None:
    sent = ServiceBusMessage("x", application_properties={"a": 1})
    message = received(sent, name="d3", reason=letter, changes=changes)
    assert (message.dead_letter_reason, message.dead_letter_error_description) == (reason, description)
    reasons = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    assert message.application_properties == {"a": 1} | {name: text for name, text in reasons.items() if text}


@pytest.mark.parametrize(
    ("letter", "said"),
    [
        ("M", "never completed"),
        ("1", "its holder ended, or lost the lock, the last time"),
        ("3", "its holder ended, or lost the lock, the last 3 times"),
        (":", "its holder ended, or lost the lock, the last 10 times"),
        (">", "its holder ended, or lost the lock, at least the last 14 times"),
    ],
)
def test_a_dead_letter_that_failed_too_often_has_the_reason_max_delivery_count_exceeded(letter: str, said: str) -> None:
    message = received(ServiceBusMessage("x"), name="d3", reason=letter, failures=10)
    assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert said in str(message.dead_letter_error_description)
    assert message.application_properties == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": message.dead_letter_error_description,
    }


def test_the_reason_set_by_the_broker_takes_precedence_over_an_older_property() -> None:
    sent = ServiceBusMessage("x", application_properties={"DeadLetterReason": "of an earlier death", "a": 1})
    message = received(sent, reason="T")
    assert message.application_properties is not None
    assert message.application_properties["DeadLetterReason"] == message.dead_letter_reason == "TTLExpiredException"


# -- as text, and forwarded --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (received(ServiceBusMessage("secret", message_id="m")), "sequence_number=7, delivery_count=1, not locked"),
        (
            received(ServiceBusMessage("secret", message_id="m"), lock=lease(until_utc=0.5), failures=2),
            "sequence_number=7, delivery_count=3, locked until 1970-01-01T00:00:00.500+00:00",
        ),
        (
            received(ServiceBusMessage("secret", message_id="m"), peeked=True, state="f"),
            "sequence_number=7, delivery_count=0, peeked, deferred",
        ),
    ],
)
def test_the_repr_of_a_received_message_shows_its_lock_and_not_its_body(
    message: ServiceBusReceivedMessage, shown: str
) -> None:
    assert repr(message) == f"<ServiceBusReceivedMessage {shown}, message_id='m', body of 6 bytes>"
    hold_of(message).settled, hold_of(message).reception.peeked = True, False
    assert ", settled, " in repr(message)


def test_a_message_that_cannot_be_decoded_still_has_a_repr() -> None:
    assert "A message cannot be read: the message has version 9" in repr(corrupt())


def test_a_program_cannot_construct_a_received_message() -> None:
    made: Any = ServiceBusReceivedMessage
    with pytest.raises(TypeError, match="made by a receiver"):
        made("x")


@given(ARGUMENTS)
def test_a_received_message_is_sent_again_with_the_values_of_its_sender(arguments: dict[str, Any]) -> None:
    message = received(ServiceBusMessage(**arguments), lock=lease(), failures=4)
    again = as_message(message)
    assert type(again) is ServiceBusMessage
    assert again._content == message._content
    assert again._content is not message._content
    assert [one._content for one in as_messages([message, message])] == [message._content] * 2


def test_sending_a_received_message_again_does_not_change_it() -> None:
    message = received(ServiceBusMessage("x", application_properties={"a": 1}))
    message.raw_amqp_message.annotations["b"] = [1]
    again = as_message(message)
    listed: Any = again.application_properties
    listed["a"] = 2
    annotated: Any = again.raw_amqp_message.annotations
    annotated["b"].append(2)
    again.subject = "again"
    assert message.application_properties == {"a": 1}
    assert message.raw_amqp_message.annotations == {"b": [1]}
    assert message.subject is None


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])  # noqa: S301
def test_a_copy_has_the_same_content_and_no_lock(again: Any) -> None:
    message = received(ServiceBusMessage("x", application_properties={"a": 1}), lock=lease(), failures=2)
    hold_of(message).reception.link = open  # an object in the place of the partition
    copied = again(message)
    assert type(copied) is ServiceBusReceivedMessage
    assert copied._content == message._content
    assert (copied.sequence_number, copied.delivery_count, copied.enqueued_time_utc) == (7, 3, WHEN)
    assert (copied.lock_token, hold_of(copied).reception.link) == (None, None)
    assert copied.application_properties is not None
    copied.application_properties["a"] = 2
    assert message.application_properties == {"a": 1}
    assert message.lock_token


@given(
    st.integers(-(2**63), 2**63 - 1)
    | st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4)
    | st.none()
)
def test_value_and_sequence_bodies_round_trip(value: Any) -> None:
    message = received(as_message(AmqpAnnotatedMessage(value_body=value)))
    body: Any = message.body
    assert (message.body_type.value, body, str(message)) == ("value", value, str(value))
    listed = received(as_message(AmqpAnnotatedMessage(sequence_body=[value, value])))
    body = listed.body
    assert (listed.body_type.value, body) == ("sequence", [value, value])
    assert outgoing(as_message(listed), detects_duplicates=False).payload == listed._record.payload
