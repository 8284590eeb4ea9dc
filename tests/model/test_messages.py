"""Tests of a message that an application makes: it keeps its values, refuses values that cannot be sent, and is sent
unchanged.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from sbredis.engine import NEVER, Outgoing, decode, encode
from sbredis.exceptions import MessageSizeExceededError
from sbredis.model import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    ServiceBusMessage,
    as_message,
    as_messages,
    content_of,
    duplicate_key,
    keep_id_of,
    outgoing,
    prepared,
    routing_key,
)
from tests.model.givens import ARGUMENTS

MESSAGE: Any = ServiceBusMessage  # so that the tests can pass values which type checkers refuse
TEXTS = ("message_id", "session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to")
IDS = ("message_id", "session_id", "partition_key", "reply_to_session_id")
FIELDS = (
    *TEXTS,
    "reply_to_session_id",
    "raw_amqp",
    "application_properties",
    "scheduled_enqueue_time_utc",
    "time_to_live",
)
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 -- the refused value


@given(ARGUMENTS)
def test_a_message_has_the_values_it_was_constructed_with(arguments: dict[str, Any]) -> None:
    message = ServiceBusMessage(**arguments)
    assert {name: getattr(message, name) for name in FIELDS} == {name: arguments.get(name) for name in FIELDS}
    assert message.body == arguments["body"]
    assert message.body_type is AmqpMessageBodyType.DATA


@given(ARGUMENTS)
def test_a_field_accepts_every_value_that_the_constructor_accepts(arguments: dict[str, Any]) -> None:
    made, filled = ServiceBusMessage(**arguments), ServiceBusMessage(arguments["body"])
    for name in FIELDS:
        setattr(filled, name, arguments.get(name))
    assert filled._content == made._content
    for name in FIELDS:
        setattr(filled, name, None)
    assert filled._content == ServiceBusMessage(arguments["body"])._content


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"\x00\xff", b"\x00\xff"),
        ("grüße", "grüße".encode()),
        ("", b""),
        (None, b""),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcdef")[::2], b"ace"),
    ],
)
def test_a_body_is_returned_as_bytes(body: Any, kept: bytes) -> None:
    message = ServiceBusMessage(body)
    assert message.body == kept
    assert isinstance(message.body, bytes)
    assert type(ServiceBusMessage(message.body)._content.body) is bytes


def test_the_text_of_a_message_is_its_body_decoded_as_utf8() -> None:
    assert str(ServiceBusMessage("grüße")) == "grüße"
    assert str(ServiceBusMessage(b"a\xffb")) == "a\N{REPLACEMENT CHARACTER}b"


def test_the_repr_of_a_message_does_not_show_its_body() -> None:
    message = ServiceBusMessage("secret", application_properties={"key": "secret"}, message_id="m1", session_id="s1")
    assert (
        repr(message)
        == "<ServiceBusMessage message_id='m1', session_id='s1', 1 application properties, body of 6 bytes>"
    )


def test_messages_are_equal_only_if_they_are_the_same_object() -> None:
    one, other = ServiceBusMessage("a", message_id="m"), ServiceBusMessage("a", message_id="m")
    assert one != other
    assert len({one, other}) == 2


def test_a_message_can_be_copied_and_pickled() -> None:
    message = ServiceBusMessage("a", application_properties={"a": 1}, session_id="s")
    for again in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):  # noqa: S301
        assert again._content == message._content


# -- refusals ----------------------------------------------------------------------------------------------------------


class Odd:
    pass


FREE_IDS = ("message_id", "correlation_id")
LONG = ("correlation_id", "content_type", "subject", "to", "reply_to")
REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    *[(name, 7, TypeError, f"{name} must be str or None, not int") for name in TEXTS if name not in FREE_IDS],
    *[(name, b"x", TypeError, f"{name} must be str or None, not bytes") for name in TEXTS if name not in FREE_IDS],
    *[(name, 1.5, TypeError, f"{name} must be str, int, UUID, bytes or None, not float") for name in FREE_IDS],
    *[(name, True, TypeError, f"{name} must be str, int, UUID, bytes or None, not bool") for name in FREE_IDS],
    *[(name, -1, ValueError, f"{name} is a whole number that does not fit into 64 bits") for name in FREE_IDS],
    *[(name, 2**64, ValueError, f"{name} is a whole number that does not fit into 64 bits") for name in FREE_IDS],
    *[(name, "x" * 32769, ValueError, f"{name} has 32769 bytes; a property may have 32768") for name in LONG],
    *[(name, "ü" * 16385, ValueError, f"{name} has 32770 bytes; a property may have 32768") for name in LONG],
    ("message_id", b"", ValueError, "message_id has 0 bytes; it may have 1 to 128"),
    ("message_id", b"x" * 129, ValueError, "message_id has 129 bytes; it may have 1 to 128"),
    ("correlation_id", b"x" * 32769, ValueError, "correlation_id has 32769 bytes; it may have 0 to 32768"),
    ("raw_amqp", "text", TypeError, "raw_amqp must be bytes or None, not str"),
    ("raw_amqp", [1], TypeError, "raw_amqp must be bytes or None, not list"),
    *[(name, "x" * 129, ValueError, f"{name} .* 129 characters; at most 128") for name in IDS],
    *[(name, "a\ud800", ValueError, f"{name} .*surrogate") for name in (*TEXTS, "reply_to_session_id")],
    ("message_id", "", ValueError, "message_id is empty"),
    ("partition_key", "", ValueError, "partition_key is empty"),
    ("scheduled_enqueue_time_utc", NAIVE, ValueError, r"datetime\.now\(timezone\.utc\)"),
    ("scheduled_enqueue_time_utc", 5, TypeError, "must be a datetime.datetime or None, not int"),
    ("scheduled_enqueue_time_utc", datetime(2400, 1, 1, tzinfo=UTC), ValueError, "later than 2286-11-20"),
    ("time_to_live", timedelta(0), ValueError, "longer than zero"),
    ("time_to_live", timedelta(seconds=-1), ValueError, "longer than zero"),
    ("time_to_live", 30, TypeError, r"timedelta\(seconds=30\)"),
    ("application_properties", "a=1", TypeError, "must be a mapping or None, not str"),
    ("application_properties", [("a", 1)], TypeError, "must be a mapping or None, not list"),
    ("application_properties", {"mine": Odd()}, TypeError, "'mine' is of the type Odd"),
    ("application_properties", {"mine": [1, Odd()]}, TypeError, "type Odd"),
    ("application_properties", {"mine": {(2, 3): 1}}, TypeError, "'mine' has a key of the type tuple"),
    ("application_properties", {"mine": Decimal("9" * 35)}, ValueError, "'mine' is a decimal that does not fit"),
    ("application_properties", {"mine": {"TYPE": "UBYTE", "VALUE": 256}}, ValueError, "'mine': 256 is outside 0"),
    ("application_properties", {"mine": [{"TYPE": "UUID", "VALUE": "x"}]}, TypeError, "'mine': .* AMQP type UUID"),
    ("application_properties", {"mine": 2**64}, ValueError, "'mine' is a whole number that does not fit into 64 bits"),
    (
        "application_properties",
        {"mine": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        ValueError,
        "'mine' is .* outside the years 1 to 9999 in UTC",
    ),
    (
        "scheduled_enqueue_time_utc",
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        ValueError,
        "is before year 1 in UTC",
    ),
    ("application_properties", {"mine": NAIVE}, ValueError, "'mine' is a time without a time zone"),
    ("application_properties", {"mine": "\ud800"}, ValueError, "'mine' has half a surrogate pair"),
    ("application_properties", {"\ud800": 1}, ValueError, "the name of a property has half a surrogate pair"),
    ("application_properties", {7: 1}, TypeError, "the name of a property must be str or None, not int"),
    ("application_properties", {b"\xff": 1}, ValueError, "not in UTF-8"),
]


@pytest.mark.parametrize(("name", "value", "error", "text"), REFUSED)
def test_a_value_that_cannot_be_sent_is_refused_when_set_and_changes_nothing(
    name: str, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        MESSAGE("x", **{name: value})
    message = ServiceBusMessage("x", message_id="m", application_properties={"a": 1})
    before = copy.deepcopy(message._content)
    with pytest.raises(error, match=text):
        setattr(message, name, value)
    assert message._content == before


@pytest.mark.parametrize("body", [7, {"a": 1}, ["a"], Odd(), 1.5])
def test_a_body_of_another_type_is_refused_with_a_remedy(body: Any) -> None:
    with pytest.raises(TypeError, match=r"not (int|dict|list|Odd|float).*json\.dumps\(body\)"):
        MESSAGE(body)


def test_a_body_that_cannot_be_encoded_in_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="body has half a surrogate pair as character 1"):
        ServiceBusMessage("a\ud800")


@pytest.mark.parametrize("name", ["body", "body_type", "raw_amqp_message"])
def test_read_only_attributes_of_a_message_cannot_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(ServiceBusMessage("x"), name, b"y")


def test_a_partition_key_that_differs_from_the_session_id_is_refused() -> None:
    with pytest.raises(ValueError, match="partition_key 'p' is not the session_id 's'"):
        ServiceBusMessage("x", session_id="s", partition_key="p")
    message = ServiceBusMessage("x", session_id="s", partition_key="s")
    with pytest.raises(ValueError, match="partition_key 'p' is not the session_id 's'"):
        message.partition_key = "p"
    with pytest.raises(ValueError, match="partition_key 's' is not the session_id ''"):
        message.session_id = ""
    assert (message.session_id, message.partition_key) == ("s", "s")
    message.session_id = None
    message.partition_key = "p"
    assert (message.session_id, message.partition_key) == (None, "p")


def test_a_keyword_that_only_azures_message_has_is_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="^ServiceBusMessage ignores keywords of Azure's library: encoding$") as caught:
        message = ServiceBusMessage("ü", encoding="UTF-8")  # type: ignore[call-arg]
    assert caught[0].filename == __file__
    assert bytes(message.body) == "ü".encode()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("colour", ""),
        ("sesion_id", " (did you mean 'session_id'?)"),
        ("Message_ID", " (did you mean 'message_id'?)"),
        ("application_property", " (did you mean 'application_properties'?)"),
        ("message", " (did you mean 'message_id'?)"),
    ],
)
def test_an_unknown_keyword_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        ServiceBusMessage("x", **{name: "red"})  # type: ignore[arg-type]
    assert str(refused.value) == f"ServiceBusMessage() got an unexpected keyword argument {name!r}{hint}"


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_time", "kept"),
    [
        (timedelta(microseconds=1), timedelta(milliseconds=1)),
        (timedelta(seconds=1, microseconds=1), timedelta(milliseconds=1001)),
        (timedelta(days=10_675_199), None),
        (timedelta.max, None),
        (timedelta(milliseconds=NEVER), None),
        (timedelta(milliseconds=NEVER - 1), timedelta(milliseconds=NEVER - 1)),
    ],
)
def test_a_time_to_live_has_ms_precision_and_a_very_long_one_means_no_expiry(
    given_time: timedelta, kept: timedelta | None
) -> None:
    message = ServiceBusMessage("x", time_to_live=given_time)
    assert message.time_to_live == kept
    sent = outgoing(message, detects_duplicates=False)
    assert sent.time_to_live == (None if kept is None else kept // timedelta(milliseconds=1))


def test_a_scheduled_time_may_be_in_any_zone_and_is_shown_in_utc() -> None:
    there = timezone(timedelta(hours=5, minutes=30))
    message = ServiceBusMessage("x", scheduled_enqueue_time_utc=datetime(2030, 1, 1, 12, 0, 0, 1999, tzinfo=there))
    shown = message.scheduled_enqueue_time_utc
    assert shown == datetime(2030, 1, 1, 6, 30, 0, 1000, tzinfo=UTC)
    assert shown is not None
    assert shown.tzinfo is UTC
    assert outgoing(message, detects_duplicates=False).due == 1_893_479_400_001


def test_a_scheduled_time_before_the_epoch_is_due_immediately() -> None:
    message = ServiceBusMessage("x", scheduled_enqueue_time_utc=datetime(1900, 1, 1, tzinfo=UTC))
    assert outgoing(message, detects_duplicates=False).due == 0


def test_only_a_message_of_which_the_partition_needs_something_else_is_more_than_its_payload() -> None:
    message = ServiceBusMessage("x", session_id="s", subject="y", application_properties={"a": 1})
    payload = prepared(message, detects_duplicates=False)
    assert isinstance(payload, bytes)
    assert decode(payload).subject == "y"
    assert outgoing(message, detects_duplicates=False) == Outgoing(payload)
    assert message.message_id is not None
    assert prepared(message, detects_duplicates=True) == Outgoing(payload, message_id=duplicate_key(message.message_id))
    message.time_to_live = timedelta(seconds=1)
    assert prepared(message, detects_duplicates=False) == outgoing(message, detects_duplicates=False)
    later = ServiceBusMessage("x", scheduled_enqueue_time_utc=datetime(2030, 1, 1, tzinfo=UTC))
    assert isinstance(prepared(later, detects_duplicates=False), Outgoing)


@pytest.mark.parametrize("arguments", [{}, {"subject": "y"}, {"message_id": "mine"}, {"message_id": 7}])
@pytest.mark.parametrize("body", [None, b"", b"\x00\xff", "ä", bytearray(b"x")])
def test_a_send_has_an_id_of_its_own_unless_it_fails(body: Any, arguments: dict[str, Any]) -> None:
    """A message with nothing but a body is encoded in a shorter way. Its payload is the same."""
    message = ServiceBusMessage(body, **arguments)
    first = prepared(message, detects_duplicates=False)
    assert first == encode(content_of(message))
    assert decode(flat(first)).message_id == message.message_id
    assert prepared(message, detects_duplicates=False, sent=True) == first  # until now, it was not sent
    keep_id_of(message, first)
    again = prepared(message, detects_duplicates=False, sent=True)
    assert again == first
    other = prepared(message, detects_duplicates=True, sent=True)
    assert (flat(other) == flat(first)) is ("message_id" in arguments)
    keep_id_of(message, first)  # an earlier send under another id
    keep_id_of(message, other)
    assert flat(prepared(message, detects_duplicates=False)) == flat(other)


def flat(made: Outgoing | bytes) -> bytes:
    return made if isinstance(made, bytes) else made.payload


# -- application properties --------------------------------------------------------------------------------------------


def test_a_message_copies_its_application_properties() -> None:
    mine = {"a": 1}
    message = ServiceBusMessage("x", application_properties=mine)
    mine["b"] = 2
    assert message.application_properties == {"a": 1}
    assert message.application_properties is not None
    message.application_properties["c"] = "later"
    sent = decode(outgoing(message, detects_duplicates=False).payload)
    assert sent.properties == {"a": 1, "c": "later"}


def test_empty_application_properties_differ_from_missing_ones() -> None:
    assert ServiceBusMessage("x").application_properties is None
    assert ServiceBusMessage("x", application_properties={}).application_properties == {}


def test_property_names_given_as_bytes_are_read_as_text() -> None:
    mixed: dict[str | bytes, Any] = {b"gr\xc3\xbc": 1, "text": b"inner"}
    message = ServiceBusMessage("x", application_properties=mixed)
    assert message.application_properties == {"grü": 1, "text": b"inner"}
    later: Any = message.application_properties
    later[b"later"] = 3
    assert decode(outgoing(message, detects_duplicates=False).payload).properties == {
        "grü": 1,
        "text": b"inner",
        "later": 3,
    }


def test_a_property_value_keeps_its_type() -> None:
    class Colour(str, Enum):  # noqa: UP042 -- as many have it
        RED = "red"

    values: dict[str, Any] = {"u": UUID(int=5), "b": b"x", "t": True, "i": 1, "f": 1.0, "n": None, "e": Colour.RED}
    values |= {"large": 2**64 - 1, "d": Decimal("1.10")}
    message = ServiceBusMessage("x", application_properties=values)
    kept = decode(outgoing(message, detects_duplicates=False).payload).properties
    assert kept is not None
    assert [(type(value), value) for value in kept.values()] == [
        (UUID, UUID(int=5)),
        (bytes, b"x"),
        (bool, True),
        (int, 1),
        (float, 1.0),
        (type(None), None),
        (str, "red"),
        (int, 2**64 - 1),
        (Decimal, Decimal("1.10")),
    ]
    assert str(kept["d"]) == "1.10"


def test_an_invalid_property_added_later_is_refused_when_sent() -> None:
    for value in (Odd(), {"a": 1}):
        message = ServiceBusMessage("x", application_properties={})
        later: Any = message.application_properties
        later["mine"] = value
        with pytest.raises(TypeError, match=f"'mine' is of the type {type(value).__name__}"):
            outgoing(message, detects_duplicates=False)


WITH_PARTS: dict[str, Any] = {
    "dict": {"nested": 1},
    "empty dict": {},
    "list": [1, 2],
    "tuple": (1,),
    "list with its AMQP type": {"TYPE": "LIST", "VALUE": [1]},
    "map with its AMQP type": {"TYPE": "MAP", "VALUE": {"a": 1}},
}


@pytest.mark.parametrize("name", WITH_PARTS)
def test_a_property_with_parts_is_refused_when_the_message_is_made(name: str) -> None:
    """AMQP permits only single values there, and the rules of subscriptions could not compare it."""
    properties = {"fine": 1, "mine": WITH_PARTS[name]}
    text = "^application property 'mine' is of the type (dict|list); it must be text, bytes, a number, .* or None. Put"
    filled, annotated = ServiceBusMessage("x", application_properties={"a": 1}), AmqpAnnotatedMessage(data_body=b"x")
    for make in (
        lambda: ServiceBusMessage("x", application_properties=properties),
        lambda: as_message({"body": "x", "application_properties": properties}),
        lambda: AmqpAnnotatedMessage(data_body=b"x", application_properties=properties),
        lambda: setattr(filled, "application_properties", properties),
        lambda: setattr(annotated, "application_properties", properties),
    ):
        with pytest.raises(TypeError, match=text):
            make()
    assert filled.application_properties == {"a": 1}
    assert annotated.application_properties is None


def test_values_nested_too_deeply_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="16 deep"):
        AmqpAnnotatedMessage(value_body=endless)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"a": "x" * 32 * 1024}, "'a' has 327.. bytes; a property may have 32768"),
        ({str(number): b"x" * 22_000 for number in range(3)}, "have 660.. bytes; together they may have 65536"),
        ({"n" * 5000 + str(number): 1 for number in range(14)}, "have 70... bytes; together they may have 65536"),
    ],
)
def test_properties_that_are_too_large_are_refused(properties: dict[str, Any], text: str) -> None:
    message = ServiceBusMessage("x", application_properties=properties)
    with pytest.raises(MessageSizeExceededError, match=text):
        outgoing(message, detects_duplicates=False)


def test_texts_that_are_together_too_large_are_refused() -> None:
    message = ServiceBusMessage("x", subject="s" * 32_000, to="t" * 32_000, reply_to="r" * 32_000)
    with pytest.raises(MessageSizeExceededError, match=r"the properties of the message have 960.. bytes"):
        outgoing(message, detects_duplicates=False)
    message.reply_to = None
    outgoing(message, detects_duplicates=False)
    message.raw_amqp_message.annotations["mine"] = "x" * 2000
    with pytest.raises(MessageSizeExceededError, match="together they may have 65536"):
        outgoing(message, detects_duplicates=False)


def test_a_body_does_not_count_toward_the_size_of_properties() -> None:
    for annotated in (
        AmqpAnnotatedMessage(value_body="v" * 200_000),
        AmqpAnnotatedMessage(sequence_body=[b"s" * 99_999]),
    ):
        outgoing(as_message(annotated), detects_duplicates=False)
    message = ServiceBusMessage("x", raw_amqp=b"r" * 200_000, application_properties={"a": "x" * 32_700})
    assert len(outgoing(message, detects_duplicates=False).payload) > 232_000


def test_properties_of_the_maximum_size_can_be_sent() -> None:
    message = ServiceBusMessage(b"x" * 100_000, application_properties={"a": "x" * 32_700, "b": "x" * 32_700})
    outgoing(message, detects_duplicates=False)


# -- sending -----------------------------------------------------------------------------------------------------------


@given(ARGUMENTS)
def test_a_message_is_encoded_with_its_values_at_the_time_of_sending(arguments: dict[str, Any]) -> None:
    message = ServiceBusMessage(**arguments)
    sent = outgoing(message, detects_duplicates=True)
    assert decode(sent.payload) == message._content
    assert message.message_id == arguments.get("message_id", message.message_id)
    given_id = message.message_id
    assert sent.message_id == (given_id if isinstance(given_id, bytes) else str(given_id).encode())
    assert type(given_id) is type(arguments.get("message_id", given_id))
    assert sent._replace(message_id=b"") == outgoing(message, detects_duplicates=False)


def test_a_message_without_an_id_gets_one_when_sent_and_keeps_it() -> None:
    one, other = ServiceBusMessage("a"), ServiceBusMessage("a")
    first = outgoing(one, detects_duplicates=True)
    assert one.message_id
    assert outgoing(one, detects_duplicates=True) == first
    outgoing(other, detects_duplicates=False)
    assert other.message_id != one.message_id


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
# safe, because the child process only generates an id
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_generates_different_ids() -> None:
    def drawn() -> str:
        message = ServiceBusMessage("a")
        outgoing(message, detects_duplicates=False)
        return str(message.message_id)

    reading, writing = os.pipe()
    before = drawn()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, drawn().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        in_child = pipe.read()
    os.waitpid(child, 0)
    after = drawn()
    assert in_child
    assert in_child[:12] != before[:12] == after[:12]
    assert len({before, in_child, after}) == 3


@pytest.mark.parametrize(
    ("keys", "decides"),
    [({}, None), ({"partition_key": "p"}, "p"), ({"session_id": ""}, ""), ({"session_id": "s"}, "s")],
)
def test_the_session_id_or_else_the_partition_key_selects_the_partition(
    keys: dict[str, str], decides: str | None
) -> None:
    assert routing_key(MESSAGE("x", **keys)) == decides


# -- values accepted as messages ---------------------------------------------------------------------------------------


class Mine(ServiceBusMessage):
    """A subclass of the message class, as an application may define one."""


def test_a_message_is_accepted_without_a_copy() -> None:
    for message in (ServiceBusMessage("x"), Mine("x")):
        assert as_message(message) is message
        assert as_messages(message) == [message]


@given(ARGUMENTS)
def test_a_mapping_of_constructor_arguments_is_accepted_as_a_message(arguments: dict[str, Any]) -> None:
    assert as_message(arguments)._content == ServiceBusMessage(**arguments)._content


def test_an_amqp_message_is_accepted_and_keeps_its_generated_id() -> None:
    annotated = AmqpAnnotatedMessage(data_body=b"x")
    first = outgoing(as_message(annotated), detects_duplicates=True)
    assert outgoing(as_message(annotated), detects_duplicates=True) == first
    assert annotated.properties.message_id


def test_several_messages_are_accepted_from_any_iterable() -> None:
    several = [ServiceBusMessage("a"), {"body": "b"}, AmqpAnnotatedMessage(data_body="c")]
    for source in (several, tuple(several), iter(several)):
        assert [str(message) for message in as_messages(source)] == ["a", "b", "c"]
    assert as_messages([]) == []


@pytest.mark.parametrize("take", [as_message, as_messages])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", r"not str; make one with ServiceBusMessage\(body\)"),
        ({"a": 1}, r"'a' cannot be in a message; .* ServiceBusMessage\(json\.dumps\(mapping\)\)"),
        ({"to": "a", "subject": "b"}, r"must have the key body.* ServiceBusMessage\(json\.dumps\(mapping\)\)"),
        ({str(number): 1 for number in range(9)}, "'0', '1', '2', … cannot be in a message"),
        (1.5, r"not float; make one with ServiceBusMessage\(json\.dumps"),
        (b"bytes", r"not bytes; make one with ServiceBusMessage\(body\)"),
        (7, "a ServiceBusMessage, an AmqpAnnotatedMessage or a mapping, not int"),
        (None, "not NoneType"),
        ({"body": "x", "colour": "red"}, "'colour' cannot be in a message; it may have application_properties, body"),
        ({"subject": "x"}, "must have the key body"),
    ],
)
def test_a_value_that_is_not_a_message_is_refused(take: Callable[[object], object], value: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        take(value)


def test_a_list_with_a_value_that_is_not_a_message_is_refused() -> None:
    with pytest.raises(TypeError, match="not str"):
        as_messages([ServiceBusMessage("x"), "y"])
