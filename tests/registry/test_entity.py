"""Tests of the records of entities: their contents, and that decoding a stored text returns the same record."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import MAXIMUM_MESSAGE_BYTES, MOST_SLOTS, NEVER, PartitionSettings
from sbredis.exceptions import DataLayoutError
from sbredis.registry import EntityRecord, Kind, split_path
from sbredis.registry._entity import EntityDescription, RecordState, decode, encode

ALPHABET = ascii_letters + digits
NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda name: name.lower() != "subscriptions"
)
TOKENS = st.text(ALPHABET + "_-", min_size=12, max_size=12)
IDS = st.text(digits + "abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6)
TIMES = st.integers(0, NEVER)
SETTINGS = st.builds(
    PartitionSettings,
    status=st.sampled_from(["Active", "Disabled", "SendDisabled", "ReceiveDisabled"]),
    lock_duration=st.integers(1, NEVER),
    max_delivery_count=st.integers(1, 99_999),
    time_to_live=st.integers(1, NEVER),
    dead_letter_expired=st.booleans(),
    duplicate_window=st.none() | st.integers(1, NEVER),
    quota=st.integers(0, 999_999_999_999_999),
    largest_message=st.integers(0, MAXIMUM_MESSAGE_BYTES),
    clock=st.sampled_from(["server", "test"]),
    shared=st.booleans(),
    sessions=st.booleans(),
)
ANYTHING = st.text(st.characters(), max_size=5)  # the texts include halves of surrogate pairs
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANYTHING, inner, max_size=3),
    max_leaves=5,
)
UNKNOWN = st.text("abc", min_size=1, max_size=3)  # no field and no setting has a name of these letters only


@st.composite
def records(draw: st.DrawFn) -> EntityRecord:
    kind: Kind = draw(st.sampled_from(get_args(Kind)))
    several = draw(st.lists(st.integers(0, MOST_SLOTS - 1), unique=True, min_size=1, max_size=20))
    partitioned = draw(st.booleans())
    unread: dict[str, Any] = draw(st.dictionaries(UNKNOWN, JSON, max_size=2))
    unread_settings = draw(st.dictionaries(UNKNOWN, JSON, max_size=2))
    return EntityRecord(
        name=draw(NAMES),
        kind=kind,
        parent=draw(NAMES) if kind == "subscription" else None,
        store=draw(IDS) if kind == "subscription" else None,
        state=draw(st.sampled_from(get_args(RecordState))),
        partitioned=partitioned,
        partitions=tuple(sorted(several)) if partitioned else (several[0],),
        colocated_with=draw(st.none() | NAMES),
        settings=draw(SETTINGS),
        properties=draw(st.dictionaries(ANYTHING, JSON, max_size=3)),
        unread={**unread, "settings": unread_settings} if unread_settings else unread,
        id=draw(IDS),
        incarnation=draw(TOKENS),
        version=draw(st.integers(1, 999_999_999_999_999)),
        stamp=draw(TOKENS),
        created_at=draw(TIMES),
        updated_at=draw(TIMES),
    )


def kept(record: EntityRecord, *older: str) -> bytes:
    """Return the stored text of a record, composed as in the scripts."""
    stamps = ",".join([record.stamp, *older])
    head = f"2 {record.version} {record.id} {record.incarnation} {stamps} {record.created_at} {record.updated_at}"
    return f"{head} {encode(record)}".encode()


PLAIN = EntityRecord(
    name="Orders",
    state="active",
    partitions=(3,),
    id="a1",
    incarnation="incarnation_",
    version=7,
    stamp="stamp-stamp-",
    created_at=1,
    updated_at=2,
)


def altered(**changes: Any) -> bytes:
    """Return the plain record with changed fields in its description; ``...`` removes a field."""
    body = {**json.loads(encode(PLAIN)), **changes}
    body = {name: value for name, value in body.items() if value is not ...}
    return kept(PLAIN).split(b"{", 1)[0] + json.dumps(body).encode()


@pytest.mark.slow
@given(records(), st.lists(TOKENS, max_size=3))
def test_a_record_is_read_back_unchanged(record: EntityRecord, older: list[str]) -> None:
    assert decode(kept(record, *older)) == record


@given(records())
def test_a_description_is_one_line_of_ascii_and_always_the_same_text(record: EntityRecord) -> None:
    text = encode(record)
    assert text.isascii()
    assert text.isprintable()
    assert encode(decode(kept(record))) == text


def test_the_stored_text_of_a_record_does_not_change() -> None:
    """Later releases must read stored records, so a change of the text would need another layout."""
    assert kept(PLAIN) == (
        b"2 7 a1 incarnation_ stamp-stamp- 1 2 "
        b'{"colocated_with":null,"generation":0,"kind":"queue","name":"Orders","parent":null,"partitioned":false,"partitions":[3],'
        b'"properties":{},"settings":{"audited":false,"clock":"server","dead_letter_expired":false,"duplicate_window":null,'
        b'"forwards":false,"forwards_dead":false,"largest_message":1048576,"lock_duration":60000,"max_delivery_count":10,"most_ids":0,"quota":1073741824,'
        b'"reserved":false,"sessions":false,"shared":false,"status":"Active","time_to_live":9999999999999,"topic":false},'
        b'"state":"active","store":null}'
    )


def test_entities_share_the_objects_in_which_they_do_not_differ() -> None:
    """A client may know very many entities, and the garbage collector looks at every object that it keeps."""
    settings = PartitionSettings(lock_duration=12_345)
    one, two, other = (
        decode(f"2 1 {number} {'a' * 12} {'b' * 12} 5 5 {text}".encode())
        for number, text in enumerate(
            encode(EntityDescription(name=name, partitions=(0,), settings=each))
            for name, each in (("one", settings), ("two", settings), ("other", PartitionSettings()))
        )
    )
    assert one.settings is two.settings
    assert one.partitions is two.partitions
    assert one.settings == settings != other.settings
    text = encode(one).replace('"sessions":false', '"sessions":0')
    with pytest.raises(DataLayoutError, match="its setting sessions is 0"):
        decode(f"2 1 1 {'a' * 12} {'b' * 12} 5 5 {text}".encode())


def test_fields_of_a_newer_release_survive_a_change() -> None:
    newer = altered(colour="red", settings={**asdict(PLAIN.settings), "speed": {"limit": 3}})
    record = replace(decode(newer), settings=PartitionSettings(lock_duration=5))
    body = json.loads(encode(record))
    assert (body["colour"], body["settings"]["speed"], body["settings"]["lock_duration"]) == ("red", {"limit": 3}, 5)


def test_a_change_keeps_fields_that_the_client_does_not_know() -> None:
    record = replace(PLAIN, unread={"name": "other", "settings": {"lock_duration": 1, "speed": 1}})
    body = json.loads(encode(record))
    assert (body["name"], body["settings"]["lock_duration"], body["settings"]["speed"]) == ("Orders", 60_000, 1)


def test_settings_missing_from_an_older_record_have_their_defaults() -> None:
    assert decode(altered(settings={"quota": 5})).settings == PartitionSettings(quota=5)


def test_a_mapping_of_another_type_is_accepted() -> None:
    record = replace(PLAIN, properties=MappingProxyType({"a": MappingProxyType({"b": (1, 2)})}))
    assert decode(kept(record)).properties == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize("value", [b"", b"bytes", {1, 2}, object(), float("nan"), float("inf")])
def test_a_property_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(replace(PLAIN, properties={"a": [value]}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"3 " + kept(PLAIN)[2:], "has data layout '3'"),
        (b"1 " + kept(PLAIN)[2:], "has data layout '1'"),
        (b"11 " + kept(PLAIN)[2:], "has data layout '11'"),
        (b"", "it is missing"),
        (b"\xff", "does not begin like a record"),
        (b"2", "does not begin like a record"),
        (b"2 1 a1 ", "does not begin like a record"),
        (altered(properties={"a": 54321}).replace(b"54321", b"[" * 3000 + b"]" * 3000), "nested too deeply"),
        (altered(properties={"a": 54321}).replace(b"54321", b"[" * 50 + b"]" * 50), "nested too deeply"),
        (altered(properties={"a": 54321}).replace(b"54321", b"1e999"), "the number 1e999 is too large"),
        (altered(properties={"a": 54321}).replace(b"54321", b"7" * 5000), "integer string conversion"),
        (altered(properties={"forward_to": 5}), "its property forward_to is 5"),
        (altered(properties={"forward_dead_lettered_messages_to": "a b"}), "entity name"),
        (altered(properties={"auto_delete_on_idle": "x"}), "its property auto_delete_on_idle is 'x'"),
        (altered(properties={"auto_delete_on_idle": 10**300}), "its property auto_delete_on_idle is "),
        (kept(PLAIN).replace(b" 1 2 ", b" 1 999999999999999 "), "after the year 9999"),
        (kept(PLAIN).replace(b" 7 ", b" 0 "), "does not begin"),
        (kept(PLAIN).replace(b" 7 ", b" 1_0 "), "does not begin"),
        (kept(PLAIN).replace(b" a1 ", b" A1 "), "does not begin"),
        (kept(PLAIN).replace(b"incarnation_", b"incarnation"), "does not begin"),
        (kept(PLAIN).replace(b"stamp-stamp-", b"stamp-stamp-,"), "does not begin"),
        (kept(PLAIN) + b"x", "does not begin"),
        (kept(PLAIN) + b"}", "Extra data"),
        (kept(PLAIN)[:-2] + b"}", "delimiter|Unterminated|Expecting"),
        (altered(properties={"a": float("nan")}), "NaN is not a number"),
        (altered(name=...), "name is None"),
        (altered(name=5), "name is 5"),
        (altered(name="a b"), "entity name"),
        (altered(name="a/subscriptions/b"), "reserved"),
        (altered(kind="stream"), "kind must be one of"),
        (altered(kind=None), "kind is None"),
        (altered(parent="topic"), "the parent 'topic'"),
        (altered(kind="subscription"), "the parent None"),
        (altered(kind="subscription", parent="a//b", store="1"), "between two"),
        (altered(kind="subscription", parent="a", store="1", name="b/c"), "subscription name"),
        (altered(kind="subscription", parent="a"), "the store None"),
        (altered(kind="subscription", parent="a", store="A"), "the store 'A'"),
        (altered(kind="subscription", parent="a", store=""), "the store ''"),
        (altered(store="1"), "the store '1'"),
        (altered(store=5), "store is 5"),
        (altered(parent=5), "parent is 5"),
        (altered(state="asleep"), "state must be one of"),
        (altered(partitioned=1), "partitioned is 1"),
        (altered(partitions=...), "partitions is None"),
        (altered(partitions=3), "partitions is 3"),
        (altered(partitions=[]), "partitions must be one"),
        (altered(partitions=[1, 2]), "partitions must be one"),
        (altered(partitions=[1, 1], partitioned=True), "several different numbers"),
        (altered(partitions=["1"]), "partitions must be numbers"),
        (altered(partitions=[True]), "partitions must be numbers"),
        (altered(partitions=[-1]), "partitions must be numbers"),
        (altered(partitions=[MOST_SLOTS]), "partitions must be numbers"),
        (altered(generation="1"), "generation is '1'"),
        (altered(generation=-1), "a generation is a number from 0"),
        (altered(generation=1, partitioned=True, partitions=[7, 2]), "the entity has grown, to generation 1"),
        (altered(colocated_with="a b"), "entity name"),
        (altered(colocated_with=False), "colocated_with is False"),
        (altered(settings=...), "settings is None"),
        (altered(settings=[]), "settings is \\[\\]"),
        (altered(settings={"quota": "5"}), "setting quota is '5'"),
        (altered(settings={"quota": True}), "setting quota is True"),
        (altered(settings={"quota": -1}), "quota must be"),
        (altered(settings={"shared": 1}), "setting shared is 1"),
        (altered(settings={"duplicate_window": "1"}), "setting duplicate_window is '1'"),
        (altered(settings={"duplicate_window": False}), "setting duplicate_window is False"),
        (altered(settings={"status": None}), "setting status is None"),
        (altered(settings={"status": "Asleep"}), "status must be"),
        (altered(properties=None), "properties is None"),
    ],
)
def test_a_record_of_another_layout_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(DataLayoutError, match=reason) as raised:
        decode(text)
    assert "install that release" in str(raised.value)


def test_a_grown_entity_is_data_of_another_release_and_so_is_not_taken_for_damaged() -> None:
    with pytest.raises(DataLayoutError) as raised:
        decode(altered(generation=3, partitioned=True, partitions=[2, 1]))
    assert raised.value.layout is not None
    assert "Another release of sbredis has written it" in str(raised.value)


@given(st.binary(max_size=40) | st.builds(lambda rest: b"2 1 a " + rest, st.binary(max_size=80)))
def test_arbitrary_bytes_are_refused_as_a_record(text: bytes) -> None:
    with pytest.raises(DataLayoutError):
        decode(text)


def test_the_path_of_a_subscription_contains_the_path_of_its_topic() -> None:
    subscription = EntityDescription(
        name="Audit", kind="subscription", parent="Billing/Orders", store="1", partitions=(0,)
    )
    assert subscription.path == "Billing/Orders/subscriptions/Audit"
    assert split_path(subscription.path) == ("Billing/Orders", "Audit")
    assert split_path("A/b/SubScriptions/C") == ("A/b", "C")
    assert PLAIN.path == "Orders"
    assert split_path(PLAIN.path) == ("Orders", None)


@pytest.mark.parametrize(
    "path",
    [
        *("", "a//b", "a/subscriptions", "subscriptions/a", "a/subscriptions/", "/subscriptions/a"),
        *("a/subscriptions/b/c", "a/subscriptions/b/subscriptions/c", "a/subscriptions/b c", "$DeadLetterQueue"),
    ],
)
def test_an_invalid_entity_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="name"):
        split_path(path)


def test_every_setting_has_a_default_that_tells_its_type() -> None:
    """The codec of records uses the types of these defaults."""
    types = {each.name: type(each.default) for each in fields(PartitionSettings)}
    assert types.pop("duplicate_window") is type(None)
    assert set(types.values()) == {bool, int, str}
