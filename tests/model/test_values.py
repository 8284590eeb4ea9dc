"""Tests of the values of message properties and bodies: the valid values, their types, and how they are looked up."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from sbredis.engine import Changes, NamedValues
from sbredis.model import AmqpAnnotatedMessage, ServiceBusMessage, as_message
from tests.model.givens import SCALARS, VALUES, received

ID = UUID(int=7)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
EVERY: dict[str, Any] = {
    "text": "grüße",
    "bytes": b"\xff",
    "true": True,
    "none": None,
    "small": -(2**63),
    "large": 2**64 - 1,
    "float": 0.1,
    "decimal": Decimal("12.340"),
    "tiny": Decimal("-1E-6176"),
    "uuid": ID,
    "time": NOON,
    "list": [1, [b"x", None], {"a": Decimal(0)}],
    "map": {1: "one", b"b": 2, None: 3, ID: 4, 1.5: 5, Decimal("2.5"): 6, False: 7, NOON: 8, "": {"deep": {2: 3}}},
}


def typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list, [typed(item) for item in value]
    return type(value), str(value) if isinstance(value, Decimal) else value


def test_every_value_that_azures_library_sends_is_received_with_its_type() -> None:
    single = {name: value for name, value in EVERY.items() if name not in {"list", "map"}}
    message = received(ServiceBusMessage("x", application_properties=single))
    assert typed(message.application_properties) == typed(single)
    for name, value in EVERY.items():
        assert typed(received(as_message(AmqpAnnotatedMessage(value_body=value))).body) == typed(value), name
    sequence = received(as_message(AmqpAnnotatedMessage(sequence_body=EVERY.values())))
    assert typed(sequence.body) == typed([*EVERY.values()])


@given(VALUES)
def test_any_nested_value_is_read_back_with_its_type(value: Any) -> None:
    message = received(as_message(AmqpAnnotatedMessage(value_body=value, footer={"a": value})))
    assert typed(message.body) == typed(value)
    assert typed(message.raw_amqp_message.footer) == typed({"a": value})


@given(SCALARS)
def test_any_property_is_read_back_with_its_type(value: Any) -> None:
    message = received(ServiceBusMessage("x", application_properties={"a": value}))
    assert typed(message.application_properties) == typed({"a": value})


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("NULL", None, None),
        ("BOOL", True, True),
        ("UBYTE", 255, 255),
        ("BYTE", -128, -128),
        ("USHORT", 65535, 65535),
        ("SHORT", -1, -1),
        ("UINT", 2**32 - 1, 2**32 - 1),
        ("INT", -(2**31), -(2**31)),
        ("ULONG", 2**64 - 1, 2**64 - 1),
        ("LONG", -(2**63), -(2**63)),
        ("FLOAT", 1, 1.0),
        ("DOUBLE", 0.1, 0.1),
        ("DECIMAL128", Decimal("1.10"), Decimal("1.10")),
        ("CHAR", "x", "x"),
        ("TIMESTAMP", 1000, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)),
        ("TIMESTAMP", NOON, NOON),
        ("UUID", str(ID), ID),
        ("UUID", ID.bytes, ID),
        ("BINARY", bytearray(b"x"), b"x"),
        ("STRING", b"text", "text"),
        ("SYMBOL", "word", "word"),
        ("LIST", [1, {"TYPE": "UINT", "VALUE": 2}], [1, 2]),
        ("ARRAY", (1, 2), [1, 2]),
        ("MAP", {b"k": {"TYPE": "UINT", "VALUE": 2}}, {b"k": 2}),
        ("DESCRIBED", ("my:type", {"TYPE": "UINT", "VALUE": 2}), 2),
    ],
)
def test_a_value_with_an_amqp_type_becomes_its_python_value(kind: str, value: Any, kept: Any) -> None:
    named = {"TYPE": kind, "VALUE": value}
    message = received(as_message(AmqpAnnotatedMessage(value_body=named, footer={"a": named, "b": [named]})))
    assert typed(message.body) == typed(kept)
    assert typed(message.raw_amqp_message.footer) == typed({"a": kept, "b": [kept]})
    if not isinstance(kept, (list, dict)):
        made = ServiceBusMessage("x", application_properties={"a": named})
        assert typed(made.application_properties) == typed({"a": kept})


@pytest.mark.parametrize(
    ("kind", "value", "error", "text"),
    [
        ("UBYTE", 256, ValueError, "256 is outside 0 to 255"),
        ("BYTE", 128, ValueError, "128 is outside -128 to 127"),
        ("ULONG", 2**64, ValueError, "outside 0 to 18446744073709551615"),
        ("ULONG", -1, ValueError, "-1 is outside"),
        ("INT", True, TypeError, "the AMQP type INT cannot be made of bool"),
        ("INT", "1", TypeError, "the AMQP type INT cannot be made of str"),
        ("CHAR", "xy", ValueError, "CHAR holds one character, not 2"),
        ("TIMESTAMP", 2**63 - 1, TypeError, "the AMQP type TIMESTAMP cannot be made of int"),
        ("UUID", "x", TypeError, "the AMQP type UUID cannot be made of str"),
        ("UUID", None, TypeError, "the AMQP type UUID cannot be made of NoneType"),
        ("DESCRIBED", 1, TypeError, "the AMQP type DESCRIBED cannot be made of int"),
        ("STRING", b"\xff", TypeError, "the AMQP type STRING cannot be made of bytes"),
    ],
)
def test_a_value_that_does_not_fit_the_type_it_names_is_refused(
    kind: str, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^property 'mine': .*{text}"):
        ServiceBusMessage("x", application_properties={"mine": [{"TYPE": kind, "VALUE": value}]})


@pytest.mark.parametrize(
    "own", [{"TYPE": "BIKE", "VALUE": 1}, {"TYPE": "INT", "VALUE": 1, "UNIT": "m"}, {"TYPE": "INT"}]
)
def test_a_mapping_with_the_keys_of_a_typed_value_stays_a_mapping(own: dict[str, Any]) -> None:
    message = received(as_message(AmqpAnnotatedMessage(value_body=own)))
    assert message.raw_amqp_message.body == own


# -- looking up --------------------------------------------------------------------------------------------------------


def looked_up() -> list[dict[Any, Any]]:
    """Return mappings of named values, one of each kind."""
    given: dict[str, Any] = {"k": "v", "grü": 1}
    sent = ServiceBusMessage("x", application_properties=given)
    later = ServiceBusMessage("x")
    later.application_properties = given
    changed = received(ServiceBusMessage("x", application_properties={"a": 1}), changes=Changes(given))
    view = received(as_message(AmqpAnnotatedMessage(data_body=b"", annotations=given, footer=given))).raw_amqp_message
    found: list[Any] = [sent.application_properties, later.application_properties, changed.application_properties]
    found += [received(sent).application_properties, as_message(received(sent)).application_properties]
    found += [received(sent).raw_amqp_message.application_properties, view.annotations, view.footer]
    return found


@pytest.mark.parametrize("values", looked_up())
def test_a_bytes_key_finds_the_value_stored_under_the_same_text(values: dict[Any, Any]) -> None:
    assert values["k"] == values[b"k"] == values.get("k") == values.get(b"k") == "v"
    assert values["grü".encode()] == 1
    assert b"k" in values
    assert "k" in values
    for missing in (b"other", "other", b"\xff", 7, None):
        assert missing not in values
        assert values.get(missing) is None
        assert values.get(missing, 5) == 5
        with pytest.raises(KeyError) as caught:
            values[missing]
        assert caught.value.args == (missing,)


@pytest.mark.parametrize("values", looked_up())
def test_application_properties_work_wherever_a_dict_is_expected(values: dict[Any, Any]) -> None:
    plain = {"k": "v", "grü": 1}
    assert isinstance(values, dict)
    assert values == plain == {**values} == dict(values) == dict(**values) == values | {}
    assert (len(values), list(values), list(values.items())) == (2, ["k", "grü"], list(plain.items()))
    assert json.loads(json.dumps(values)) == plain
    assert repr(values) == repr(plain)
    for again in (copy.copy(values), copy.deepcopy(values), values.copy(), pickle.loads(pickle.dumps(values))):  # noqa: S301
        assert again == plain
        assert again[b"k"] == "v"
        again["k"] = 2
    assert values == plain


def test_the_reason_of_a_dead_letter_is_found_under_text_and_bytes_keys() -> None:
    found: Any = received(ServiceBusMessage("x"), reason="T").application_properties
    assert found[b"DeadLetterReason"] == found["DeadLetterReason"] == "TTLExpiredException"


def test_a_bytes_key_finds_its_own_value_before_that_of_the_equal_text_key() -> None:
    values: Any = NamedValues({"k": 1})
    values[b"k"] = 2
    assert (values["k"], values[b"k"]) == (1, 2)
