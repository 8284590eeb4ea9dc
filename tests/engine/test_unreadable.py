"""What is stored or published may be anything: it is read, or refused with one error that does not quote it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sbredis.engine import (
    Changes,
    Content,
    Delivery,
    Rows,
    SettlementColumns,
    columns_of,
    decode,
    decode_changes,
    encode_changes,
    read_announcement,
    read_call,
    read_record,
    recipient_of,
    set_system,
)
from sbredis.exceptions import DataLayoutError, Outcome
from sbredis.model import read_purpose
from tests.engine.test_contracts import PARTITION, REQUESTS

STATE = b"sb:n:{abc}:7:state"
RECORD = b"a01700000000000\x01\x00body"


def refusal(read: Callable[[], object], *secrets: str) -> DataLayoutError:
    """Return the error of a function, and check that it contains none of these texts, and no cause that does."""
    with pytest.raises(DataLayoutError, match="cannot be read: ") as caught:
        read()
    error = caught.value
    assert not error.is_transient
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    assert not [secret for secret in secrets if secret in str(error)]
    return error


@pytest.mark.parametrize(
    "record",
    [b"", b"a", b"q01700000000000x", b"a0170000000000", b"a+1700000000000\x01", b"a0-700000000000\x01", b"x0" * 9],
)
def test_a_record_without_its_times_is_refused(record: bytes) -> None:
    refusal(lambda: read_record(record))


@pytest.mark.parametrize(
    ("names", "records"),
    [
        ([b"secret"], [RECORD]),
        ([b"1"], [b"a0secret0000000\x01\x00"]),
        ([b"1"], []),
        ([b"1"], [b""]),
        ([b"1" * 30], [RECORD]),
        ([b"1"], [None]),
    ],
)
def test_columns_refuse_messages_that_are_malformed(names: list[bytes], records: list[Any]) -> None:
    refusal(lambda: columns_of([Rows(names, records)]), "secret")


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("publish", [0, 5, 0, b"1-99999999"]),
        ("publish", [0, 5, 0, b"9-1"]),
        ("publish", [0, 5, 0, b"-5"]),
        ("take", [0, b"again", b"", b"1-99999999", []]),
        ("take", [0, b"again", b"", b"d1-500,d1-501", []]),
        ("freeze", [0, 7, b"holder", b"1-99999999", b""]),
        ("transact", [0, b"5;;1-99999999|"]),
        ("settlements", [9, 0, [[b"9", b"5", b"c1-99999999", b"0"]]]),
        ("receive_deferred", [0, 5, [b"secret"], [RECORD], [], [], 0, 0]),
        ("receive_deferred", [0, 5, [b"1"], [RECORD], [1, b"--secret00000000000", b""], [], 0, 0]),
        ("receive_deferred", [0, 5, [b"1", b"2"], [RECORD], [], [], 0, 0]),
        ("receive_deferred", b"secret"),
        ("count", [1, 2]),
        ("list_sessions", [0, [b"\xffsecret"], []]),
        ("watermarks", [b"0", [b"w"], [b"secret"]]),
    ],
)
def test_a_reply_that_is_malformed_is_refused(name: str, reply: Any) -> None:
    error = refusal(lambda: REQUESTS[name](PARTITION).result(reply), "secret", "99999999")
    assert error.outcome is Outcome.UNKNOWN  # the script has run


def test_the_runs_of_many_settlements_are_refused_together() -> None:
    """Each record may be of a large transaction, but not every record."""
    records = [[b"%d" % number, b"5", b"c1-100000", b"0"] for number in range(1, 100)]
    refusal(lambda: REQUESTS["settlements"](PARTITION).result([99, 0, records]))
    columns = SettlementColumns()
    columns.add("c1-100000", 5)
    assert len(columns) == 100_000


@pytest.mark.parametrize(
    "payload",
    [b"", b"secret", b"secret move", STATE, STATE + b" -1 5", STATE + b" 5 " + b"9" * 400, STATE + b" \xd9\xa3 5"],
)
def test_an_announcement_that_is_malformed_is_refused(payload: bytes) -> None:
    refusal(lambda: read_announcement(payload), "secret")
    refusal(lambda: read_call(payload), "secret")


@pytest.mark.parametrize("text", ["", "secret", "a b secret d", "a b -1 d", "a b 99999 d", "a b"])
def test_the_destination_of_a_transfer_that_is_malformed_is_refused(text: str) -> None:
    delivery = Delivery("1", RECORD, changes=encode_changes(Changes(destination=text)))
    refusal(lambda: recipient_of(delivery), "secret")


@pytest.mark.parametrize("stored", [b"secret", b"redrive secret", b"redrive \x01"])
def test_the_purpose_of_a_batch_that_is_malformed_is_refused(stored: bytes) -> None:
    refusal(lambda: read_purpose(stored), "secret")


@pytest.mark.parametrize(
    "changed",
    [{"body": b"x"}, {"__class__": "x"}, {"properties": {}}, {"subject": 5}, {"time_to_live": "x"}, {"hops": -1}],
)
def test_only_broker_properties_are_changed_and_only_to_values_that_they_have(changed: dict[str, Any]) -> None:
    content = Content(b"body", subject="before")
    changes = decode_changes(encode_changes(Changes(system=changed)))
    refusal(lambda: set_system(content, changes.system or {}))
    assert content == Content(b"body", subject="before")


def test_numbers_of_a_message_have_limits() -> None:
    for tag in (10, 11, 17, 18):
        refusal(partial(decode, b"\x01%c\x1499999999999999999999\x00" % tag), "99999999")


def test_keys_of_a_map_that_collide_are_refused() -> None:
    """A sender can choose decimals that have the same hash, and a map of many would take minutes to make."""
    items = b"".join(b"c%c%bn\x00" % (len(key), key) for key in (b"%d" % (n << 61) for n in range(1, 1500)))
    # 2**61 - 1 is the modulus of hashes, so these are numbers of few hashes
    same = b"".join(b"c%c%bn\x00" % (len(key), key) for key in (b"%d" % (n * (2**61 - 1)) for n in range(1, 1500)))

    def with_map(data: bytes) -> bytes:
        value = b"\x01mk" + _length(len(data)) + data
        return b"\x01\x0c" + _length(len(value)) + value + b"\x00"

    found: Any = (decode(with_map(items)).properties or {})["m"]
    assert len(found) == 1499
    refusal(lambda: decode(with_map(same)))


def _length(number: int) -> bytes:
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))
