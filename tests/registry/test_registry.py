"""Tests of single calls of the registry's scripts: their writes, their answers to repeated calls, their refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import (
    MalformedCallError,
    Request,
    bucket_of_id,
    due_channel,
    head_keys,
    name_key,
    new_stamp,
    perform,
    slot_salt,
)
from sbredis.engine._contracts import contract
from sbredis.engine._scripts import load
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ScriptRefusedError,
)
from sbredis.registry import LONGEST_PAGE, EntityChangedError, EntityRecord, Namespace, NamespaceSlotsError
from sbredis.registry._entity import EntityDescription, Head, decode
from sbredis.registry._refusals import BucketMissingError, refusals
from sbredis.registry._registry import NamespaceHead, Registry, read_namespace, register_namespace
from sbredis.transport import Script, Transport
from tests.engine.opening import open_with_scripts
from tests.offenders import for_each
from tests.registry.keys import keys_of, snapshot
from tests.registry.refusals import refused
from tools.repository import ROOT

REGISTRY = Registry("ns", 1)
"""With one slot, all entities are in one bucket."""
HEAD = head_keys("ns")
KEYS = REGISTRY.bucket_keys(0)
BUCKET, ENTITIES, NAMES = KEYS[:3]
ORDERS = EntityDescription(name="Billing/Orders", partitions=(0,))
FIRST, SECOND, THIRD = "first_______", "second______", "third_______"

on_real_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)


@pytest.fixture
async def transport(url: str) -> AsyncIterator[Transport]:
    """A transport to a target that has only the namespace ``ns`` of one slot, and its bucket."""
    async with await open_with_scripts(url) as transport:
        await perform(transport, register_namespace("ns", 1, exact=True))
        await perform(transport, REGISTRY.begin(0, limited=False))
        await transport.command("HSET", BUCKET, "last", "0", key=BUCKET)
        yield transport


async def ask(transport: Transport, request: Request[Any]) -> Any:
    return await perform(transport, request, refusals=refusals("ns", "Billing/Orders"))


async def registered(transport: Transport, description: EntityDescription = ORDERS) -> EntityRecord:
    record: EntityRecord = await ask(transport, REGISTRY.register(description, new_stamp()))
    return record


# -- the contract ------------------------------------------------------------------------------------------------------

RECORD = EntityRecord(
    name="q", partitions=(0,), id="1", incarnation=FIRST, version=1, stamp=FIRST, created_at=1, updated_at=1
)
REQUESTS: list[Request[Any]] = [
    register_namespace("ns", 1, exact=True),
    read_namespace("ns", 1),
    REGISTRY.limit(1, None),
    REGISTRY.begin(0, limited=False),
    REGISTRY.counts(0),
    REGISTRY.changes(0, 0, 100),
    REGISTRY.find(0, "001"),
    REGISTRY.register(ORDERS, FIRST),
    REGISTRY.revise(RECORD, SECOND),
    REGISTRY.unregister(RECORD),
    REGISTRY.read("q"),
    REGISTRY.listed(0, b"", 100),
    REGISTRY.condemn("q", b"", Head("", FIRST, 1), ORDERS, SECOND),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.script.name)
async def test_a_request_has_the_keys_and_arguments_that_the_header_of_its_script_names(request_: Request[Any]) -> None:
    header = contract((ROOT / "lua" / f"{request_.script.name}.lua").read_text("utf-8"))
    listed = tuple((key.decode().rpartition(":")[2], 1) for key in KEYS)
    if "namespace" in request_.script.name:
        assert (header.keys, request_.keys) == ((("namespace", 1),), HEAD)
    else:
        assert header.keys == (listed if request_.script.name == "begin_bucket" else (("bucket", len(KEYS)),))
        assert request_.keys == KEYS
    names = header.arguments[1:] if header.takes_run_id else header.arguments
    assert (len(request_.arguments), header.rest) == (len(names), None)
    by_name = dict(zip(names, request_.arguments, strict=True))
    assert by_name["slots"] == 1
    assert by_name.get("incarnation", FIRST) == by_name.get("expected", FIRST) == FIRST
    assert by_name.get("stamp", SECOND) == SECOND
    assert request_.repeatable
    assert set(header.refusals) <= set(refusals("ns"))


# -- the namespace -----------------------------------------------------------------------------------------------------


async def test_a_namespace_is_made_once_and_never_changes(transport: Transport) -> None:
    before = await snapshot(transport)
    assert set(keys_of(before, "ns")) == {"{registry}:namespace", "{0}:bucket"}
    kept = before[HEAD[0]][1]
    head = NamespaceHead(1, int(kept[b"created"]), None, None)
    assert head.created_at > 1_700_000_000_000
    assert set(kept) == {b"layout", b"slots", b"created"}
    assert (kept[b"layout"], kept[b"slots"]) == (b"2", b"1")
    assert await ask(transport, register_namespace("ns", 1, exact=True)) == head
    assert await ask(transport, register_namespace("ns", 16, exact=False)) == head
    assert await ask(transport, read_namespace("ns", 1)) == await ask(transport, read_namespace("ns")) == head
    await ask(transport, REGISTRY.begin(0, limited=True))
    assert await ask(transport, read_namespace("other")) is None
    assert await snapshot(transport) == before


async def test_an_exact_partition_count_that_differs_is_refused(transport: Transport) -> None:
    for request in (register_namespace("ns", 16, exact=True), read_namespace("ns", 16)):
        text = await refused(transport, ask(transport, request), NamespaceSlotsError)
        assert text == "Namespace 'ns' has 1 slots, which cannot change: name this number, or no number."


@pytest.mark.everywhere("namespaces lie in different slots")
async def test_namespaces_share_no_keys(transport: Transport) -> None:
    await registered(transport)
    before = keys_of(await snapshot(transport), "ns")
    await ask(transport, register_namespace("NS", 8, exact=True))
    other = Registry("NS", 8)
    await ask(transport, other.begin(other.bucket_of("Billing/Orders"), limited=False))
    assert await ask(transport, other.read("Billing/Orders")) is None
    await ask(transport, other.register(ORDERS, FIRST))
    assert keys_of(await snapshot(transport), "ns") == before


# -- creation ----------------------------------------------------------------------------------------------------------


async def test_an_entity_is_registered_with_its_whole_record(transport: Transport) -> None:
    record = await ask(transport, REGISTRY.register(ORDERS, FIRST))
    assert record == EntityRecord(
        name="Billing/Orders",
        partitions=(0,),
        id="001",
        incarnation=FIRST,
        version=1,
        stamp=FIRST,
        created_at=record.created_at,
        updated_at=record.created_at,
    )
    assert record.created_at > 1_700_000_000_000
    found = await snapshot(transport)
    assert list(found[ENTITIES][1]) == [b"billing/orders"]
    assert len(found[NAMES][1]) in (1, 2)  # the name and its score are in one list, or each score is in a separate list
    assert (await ask(transport, REGISTRY.read("BILLING/orders"))) == record


async def test_a_repeated_creation_gets_the_first_answer(transport: Transport) -> None:
    request = REGISTRY.register(ORDERS, FIRST)
    record = await ask(transport, request)
    before = await snapshot(transport)
    assert await ask(transport, request) == record
    assert await snapshot(transport) == before
    active = await ask(transport, REGISTRY.revise(replace(record, state="active"), SECOND))
    assert await ask(transport, request) == active


async def test_a_name_that_differs_only_in_case_from_another_is_taken(transport: Transport) -> None:
    await registered(transport)
    again = REGISTRY.register(replace(ORDERS, name="BILLING/ORDERS"), new_stamp())
    text = await refused(transport, ask(transport, again), MessagingEntityAlreadyExistsError)
    assert text == (
        "There is already an entity 'Billing/Orders' in namespace 'ns'; names are compared without regard to case. "
        "Use it, delete it first, or choose another name."
    )


async def test_ids_count_in_base_36_and_never_repeat(transport: Transport) -> None:
    """A creation takes two numbers: that of the id, and that of the change."""
    records = [await registered(transport, replace(ORDERS, name=f"q{number}")) for number in range(20)]
    assert [record.id for record in records] == [*(f"00{digit}" for digit in "13579bdfhjlnprtvxz"), "0011", "0013"]
    for record in records:
        await ask(transport, REGISTRY.unregister(record))
    last = int((await registered(transport)).id, 36)
    assert last > max(int(record.id, 36) for record in records)


@pytest.mark.parametrize(
    ("last", "next_id"),
    [(36**2 - 2, "00zz"), (36**2 - 1, "00100"), (36**9 - 1, "001000000000"), (10**15 - 2, "009ugxnorjlr")],
)
async def test_an_id_can_have_many_digits(transport: Transport, last: int, next_id: str) -> None:
    await transport.command("HSET", BUCKET, "last", last, key=BUCKET)
    assert (await registered(transport)).id == next_id


async def test_an_id_begins_with_the_number_of_its_bucket(transport: Transport) -> None:
    registry = Registry("ns", 1024)
    names = {registry.bucket_of(f"q{number}"): f"q{number}" for number in range(5000)}
    for number in (0, 35, 36, 1023):
        await ask(transport, registry.begin(number, limited=False))
        record = await ask(transport, registry.register(replace(ORDERS, name=names[number]), FIRST))
        assert bucket_of_id(record.id, 1024) == number
        assert await ask(transport, registry.find(number, record.id)) == record
    assert bucket_of_id("sg1", 1024) is bucket_of_id("00", 1024) is bucket_of_id("0_1", 1024) is None


@on_real_servers
async def test_ids_jump_after_a_change_of_the_server_process(transport: Transport) -> None:
    assert (await registered(transport)).id == "001"
    await transport.command("HSET", BUCKET, "run_id", "f" * 40, key=BUCKET)
    ids = [(await registered(transport, replace(ORDERS, name=name))).id for name in ("a", "b")]
    assert ids == ["001002", "001004"]
    await transport.command("HSET", BUCKET, "run_id", "?", key=BUCKET)
    assert (await registered(transport, replace(ORDERS, name="c"))).id == "001006", "an unknown process is no other one"


@on_real_servers
@pytest.mark.any_form("the call is not that of the library")
async def test_ids_continue_if_the_server_process_is_unknown(transport: Transport) -> None:
    nameless = Script("register_entity", load("register_entity").source)
    await transport.command("HSET", BUCKET, "run_id", "f" * 40, key=BUCKET)
    for name, expected in (("a", b"001"), ("b", b"003")):
        reply = await transport.call(nameless, KEYS, ("?", "1", name, FIRST, "0", "0", "00", "0", "{}"))
        assert reply.split()[2] == expected
    assert (await snapshot(transport))[BUCKET][1][b"run_id"] == b"f" * 40


# -- changes -----------------------------------------------------------------------------------------------------------


async def test_a_caller_that_has_read_a_record_can_replace_it(transport: Transport) -> None:
    record = await registered(transport)
    wanted = replace(record, state="active", properties={"a": 1})
    revised = await ask(transport, REGISTRY.revise(wanted, SECOND))
    assert revised == replace(wanted, stamp=SECOND)
    assert await ask(transport, REGISTRY.read("Billing/Orders")) == revised


async def test_each_version_stores_a_change_time_that_never_goes_back(transport: Transport) -> None:
    record = await registered(transport)
    later = b"9000000000000"
    text = (await transport.command("HGET", ENTITIES, "billing/orders", key=ENTITIES)).split(b" ", 7)
    assert text[5] == text[6] == b"%d" % record.created_at
    text[5], text[6] = b"5", b"6"
    await transport.command("HSET", ENTITIES, "billing/orders", b" ".join(text), key=ENTITIES)
    activated = await ask(transport, REGISTRY.revise(replace(record, state="active"), SECOND))
    assert (activated.version, activated.created_at, activated.updated_at) == (1, 5, 6), "no setting has changed"
    changed = await ask(transport, REGISTRY.revise(replace(activated, version=2), THIRD))
    assert (changed.version, changed.created_at) == (2, 5)
    assert changed.updated_at >= record.created_at
    text = (await transport.command("HGET", ENTITIES, "billing/orders", key=ENTITIES)).split(b" ", 7)
    text[6] = later
    await transport.command("HSET", ENTITIES, "billing/orders", b" ".join(text), key=ENTITIES)
    assert (await ask(transport, REGISTRY.revise(replace(changed, version=3), FIRST[::-1]))).updated_at == int(later)


async def test_a_repeated_change_is_recognised_after_later_changes(transport: Transport) -> None:
    record = await registered(transport)
    request = REGISTRY.revise(replace(record, state="active"), SECOND)
    active = await ask(transport, request)
    before = await snapshot(transport)
    assert await ask(transport, request) == active
    assert await snapshot(transport) == before
    latest = active
    for number in range(10, 25):
        latest = await ask(transport, REGISTRY.revise(latest, f"stamp_____{number}"))
        assert await ask(transport, request) == latest
    latest = await ask(transport, REGISTRY.revise(latest, "stamp_____25"))
    await refused(transport, ask(transport, request), EntityChangedError)


async def test_a_change_based_on_an_older_record_is_refused(transport: Transport) -> None:
    record = await registered(transport)
    await ask(transport, REGISTRY.revise(replace(record, state="active", version=2), SECOND))
    text = await refused(
        transport, ask(transport, REGISTRY.revise(replace(record, state="deleting"), THIRD)), EntityChangedError
    )
    assert text == (
        "The entity 'Billing/Orders' has changed since it was read: its settings now have version 2. "
        "Read it again, and change the new state."
    )
    await refused(transport, ask(transport, REGISTRY.unregister(record)), EntityChangedError)


async def test_a_deleted_or_replaced_entity_is_not_changed(transport: Transport) -> None:
    record = await registered(transport)
    await ask(transport, REGISTRY.unregister(record))
    text = await refused(transport, ask(transport, REGISTRY.revise(record, SECOND)), MessagingEntityNotFoundError)
    assert text == (
        "There is no entity 'Billing/Orders' in namespace 'ns'. "
        "Create it with ServiceBusAdministrationClient.ensure_queue('Billing/Orders') or "
        "ensure_topic('Billing/Orders'), or get the sender or "
        "receiver with create_if_missing=True, or look for the name in another namespace."
    )
    await registered(transport)
    await refused(transport, ask(transport, REGISTRY.revise(record, SECOND)), MessagingEntityNotFoundError)


@pytest.mark.parametrize("version", [1, 2, 4, 5])
async def test_versions_increase_by_exactly_one(transport: Transport, version: int) -> None:
    record = await registered(transport)
    for stamp in (SECOND, THIRD):
        record = await ask(transport, REGISTRY.revise(replace(record, version=record.version + 1), stamp))
    request = REGISTRY.revise(replace(record, version=version), "another_____")
    if version == 4:
        assert (await ask(transport, request)).version == 4
    else:
        await refused(transport, ask(transport, request), MalformedCallError)


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_an_entity_is_unregistered_once_and_leaves_no_keys(transport: Transport) -> None:
    before = keys_of(await snapshot(transport), "ns")
    record = await registered(transport)
    assert await ask(transport, REGISTRY.unregister(record)) == (True, False)
    after = keys_of(await snapshot(transport), "ns")
    assert set(after) == {*before, "{0}:changes", "{0}:gone"}
    assert await ask(transport, REGISTRY.unregister(record)) == (False, False)
    assert await ask(transport, REGISTRY.read("Billing/Orders")) is None


async def test_a_late_deletion_spares_a_newer_entity_of_the_same_name(transport: Transport) -> None:
    old = await registered(transport)
    await ask(transport, REGISTRY.unregister(old))
    new = await registered(transport)
    before = await snapshot(transport)
    assert await ask(transport, REGISTRY.unregister(old)) == (False, False)
    assert await snapshot(transport) == before
    assert await ask(transport, REGISTRY.read("Billing/Orders")) == new


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_reading_changes_nothing(transport: Transport) -> None:
    await registered(transport)
    before = await snapshot(transport)
    await ask(transport, REGISTRY.read("Billing/Orders"))
    assert await ask(transport, REGISTRY.read("nothing")) is None
    await ask(transport, REGISTRY.listed(0, b"", 5))
    await ask(transport, REGISTRY.changes(0, 0, 5))
    await ask(transport, REGISTRY.counts(0))
    assert await snapshot(transport) == before


async def test_entities_are_listed_by_name_page_by_page(transport: Transport) -> None:
    names = ["b", "A", "a/b", "C", "a.1", "a-1", "z9", "Z10", "0"]
    for name in names:
        await registered(transport, replace(ORDERS, name=name))
    expected = sorted(names, key=name_key)
    for limit in (1, 2, 4, 9, 1000):
        listed: list[str] = []
        after, page = b"", [(b"", b"")]
        while page:
            page = await ask(transport, REGISTRY.listed(0, after, limit))
            assert len(page) <= limit
            listed += [decode(text).name for _, text in page]
            after = page[-1][0] if page else b""
        assert listed == expected
    ((name, _),) = await ask(transport, REGISTRY.listed(0, b"aa", 1))
    assert name == b"b", "also after no name"


@pytest.mark.slow
async def test_one_page_holds_as_many_entities_as_may_be_requested(transport: Transport) -> None:
    for number in range(LONGEST_PAGE + 1):
        await ask(transport, REGISTRY.register(replace(ORDERS, name=f"q{number:04}"), new_stamp()))
    page = await ask(transport, REGISTRY.listed(0, b"", LONGEST_PAGE))
    assert [name.decode() for name, _ in page] == [f"q{number:04}" for number in range(LONGEST_PAGE)]


@pytest.mark.parametrize(
    "name", [b"\xff", b"a\xc3", b"a" * 20_000, b"\xff" * 20_000], ids=["lead", "cut", "long", "both"]
)
@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_a_list_goes_on_after_damaged_names_that_no_caller_can_give_back(
    transport: Transport, name: bytes, limit: int
) -> None:
    namespace = await Namespace.open(transport, "ns", 1)
    good = [f"{letter}{number}" for letter in "az" for number in range(20)]
    for each in good:
        await registered(transport, replace(ORDERS, name=each))
    damaged = [name + b"%02d" % number for number in range(40)]
    for bad in damaged:
        await transport.command("ZADD", REGISTRY.bucket_keys(0)[2], 0, bad, key=BUCKET)
    listed, unreadable = list[str](), 0
    page = await namespace.page_of_entities("", limit)
    while True:
        listed += [record.name for record in page.records]
        unreadable, onward = unreadable + len(page.unreadable), page.onward
        if onward is None:
            break
        page = await namespace.page_of_entities(onward, limit)
        assert page.onward != onward, "the list would never end"
    assert (listed, unreadable) == (sorted(good), len(damaged))
    found, after = list[str](), ""
    while part := await namespace.list_entities(after, limit):
        found += [record.name for record in part]
        after = part[-1].name
    assert found == sorted(good)


@given(st.text("aAzZ09", min_size=1, max_size=6), st.text("aAzZ09", min_size=1, max_size=6))
def test_names_mean_the_same_entity_if_and_only_if_they_are_equal_in_lower_case(one: str, other: str) -> None:
    asked = [REGISTRY.read(name).arguments for name in (one, other)]
    assert (asked[0] == asked[1]) == (one.lower() == other.lower())


# -- refusals of every call --------------------------------------------------------------------------------------------


READS_A_BUCKET = ("read_bucket", "read_changes", "find_entity", "list_entities")
"""The calls to which a missing bucket is an empty one."""


@pytest.mark.parametrize(
    "request_",
    [request for request in REQUESTS[4:] if request.script.name not in READS_A_BUCKET],
    ids=lambda request: request.script.name,
)
async def test_a_call_about_an_entity_reports_a_missing_bucket(transport: Transport, request_: Request[Any]) -> None:
    await transport.command("DEL", BUCKET, key=BUCKET)
    text = await refused(transport, ask(transport, request_), BucketMissingError)
    assert text.startswith("There is no entity 'Billing/Orders' in namespace 'ns'. ")


@pytest.mark.parametrize(
    "request_",
    [request for request in REQUESTS if request.script.name in READS_A_BUCKET],
    ids=lambda request: request.script.name,
)
async def test_to_a_call_that_reads_a_bucket_a_missing_one_is_no_error(
    transport: Transport, request_: Request[Any]
) -> None:
    await transport.command("DEL", BUCKET, key=BUCKET)
    before = await snapshot(transport)
    assert await ask(transport, request_) is None
    assert await snapshot(transport) == before


@pytest.mark.parametrize("request_", REQUESTS[3:], ids=lambda request: request.script.name)
async def test_a_bucket_of_a_namespace_with_other_slots_refuses_calls(
    transport: Transport, request_: Request[Any]
) -> None:
    await transport.command("HSET", BUCKET, "slots", "40", key=BUCKET)
    assert "when the namespace had 40 slots" in await refused(transport, ask(transport, request_), NamespaceSlotsError)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.script.name)
async def test_data_of_another_layout_is_not_changed(transport: Transport, request_: Request[Any]) -> None:
    for key in (*HEAD, BUCKET):
        await transport.command("HSET", key, "layout", "3", key=key)
    text = await refused(transport, ask(transport, request_), DataLayoutError)
    subject = "Namespace 'ns'" if request_.keys == HEAD else "A part of the registry of namespace 'ns'"
    assert text == (
        f"{subject} has data layout 3, and this release of sbredis reads and writes layout 2. Install a release "
        "that can read it, in all services of the namespace."
    )


DAMAGED_FIELDS = [
    *((field, None) for field in ("last", "run_id", "channel", "created", "floor")),
    *(("last", each) for each in ("", "x", "-5", "1e99", "1" * 16, "inf")),
    *(("floor", each) for each in ("", "nan", "2.5")),
    *(("channel", each) for each in ("", "elsewhere", "{elsewhere}:due")),
]


@pytest.mark.parametrize(("field", "value"), DAMAGED_FIELDS)
async def test_a_bucket_with_a_damaged_field_refuses_every_call(
    transport: Transport, field: str, value: str | None
) -> None:
    """A script that meets such a field after its first write would end in the middle."""
    if value is None:
        await transport.command("HDEL", BUCKET, field, key=BUCKET)
    else:
        await transport.command("HSET", BUCKET, field, value, key=BUCKET)
    for request in REQUESTS[3:]:
        assert await refused(transport, ask(transport, request), DataLayoutError) == (
            "A part of the registry of namespace 'ns' cannot be read: it is damaged. If a newer release of sbredis has "
            "written it, install that release. Otherwise restore a backup of its server."
        )


@pytest.mark.parametrize(
    ("kept", "form"),
    [
        (f"3 1 1 {FIRST} {FIRST} 5 5 {{}}", "layout '3'"),
        ("3 x", "layout '3'"),
        ("2 x", "as it should"),
        ("", "as it should"),
        ("2 1 1 a b 5 {}", "as it should"),
    ],
)
@pytest.mark.parametrize("place", [1, 2, 3])
async def test_a_record_of_another_layout_is_not_changed(
    transport: Transport, place: int, kept: str, form: str
) -> None:
    await transport.command("HSET", ENTITIES, "q", kept, key=ENTITIES)
    request = [
        None,
        REGISTRY.register(replace(ORDERS, name="q"), FIRST),
        REGISTRY.revise(RECORD, SECOND),
        REGISTRY.unregister(RECORD),
    ][place]
    assert request is not None
    text = await refused(transport, ask(transport, request), DataLayoutError)
    assert text.startswith("The record of 'q' cannot be read: ")
    assert form in text


LONG = "x" * 13
CHANNEL = due_channel("ns", slot_salt("ns", 0, 1)).decode()


@pytest.fixture
async def orders(transport: Transport) -> None:
    """Create a queue called ``q``."""
    await ask(transport, REGISTRY.register(replace(ORDERS, name="q"), FIRST))


@pytest.mark.slow
@pytest.mark.usefixtures("orders")
@for_each(
    ("name", "arguments"),
    [
        ("register_namespace", ("0", "0")),
        ("register_namespace", ("1025", "0")),
        ("register_namespace", ("", "0")),
        ("register_namespace", ("4.0", "0")),
        ("register_namespace", ("1", "")),
        ("register_namespace", ("1", "2")),
        ("read_namespace", ("0",)),
        ("read_namespace", ("1025",)),
        ("read_namespace", ("4.0",)),
        ("register_entity", ("1", "", FIRST, "0", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", "", "0", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", LONG, "0", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", "with a blank", "0", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", FIRST, "0", "0", "00", "0", "")),
        ("register_entity", ("1", "q", FIRST, "2", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", FIRST, "", "0", "00", "0", "{}")),
        ("register_entity", ("1", "q", FIRST, "0", "-1", "00", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, SECOND, "1", "0", "", "0", "{}")),
        ("limit_namespace", ("1", "-1", "")),
        ("limit_namespace", ("1", "", "1.5")),
        ("revise_entity", ("1", "q", LONG, FIRST, SECOND, "1", "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, LONG, SECOND, "1", "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, LONG, "1", "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, "with,a,comma", "1", "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, SECOND, "0", "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, SECOND, "1" * 16, "0", "0", "0", "{}")),
        ("revise_entity", ("1", "q", FIRST, FIRST, SECOND, "1", "0", "0", "0", "")),
        ("revise_entity", ("1", "q", FIRST, FIRST, SECOND, "1", "3", "0", "0", "{}")),
        ("unregister_entity", ("1", "q", LONG, FIRST, "1")),
        ("unregister_entity", ("1", "q", FIRST, "", "1")),
        ("unregister_entity", ("1", "q", FIRST, FIRST, "0")),
        ("unregister_entity", ("1", "q", FIRST, FIRST, "1001")),
        ("condemn_entity", ("1", "", "q", "", "", FIRST, "1", SECOND, "00", "{}")),
        ("condemn_entity", ("1", "q", "", "", "", FIRST, "1", SECOND, "00", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "a b", FIRST, "1", SECOND, "00", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "", LONG, "1", SECOND, "00", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "", FIRST, "0", SECOND, "00", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "", FIRST, "1", "with,a,comma", "00", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "", FIRST, "1", SECOND, "00", "")),
        ("register_entity", ("1", "q", FIRST, "0", "0", "0", "0", "{}")),
        ("condemn_entity", ("1", "q", "q", "", "", FIRST, "1", SECOND, "", "{}")),
        ("begin_bucket", ("0", CHANNEL, "0", "0")),
        ("begin_bucket", ("1", "elsewhere", "0", "0")),
        ("begin_bucket", ("1", CHANNEL, "", "0")),
        ("begin_bucket", ("1", CHANNEL, "0", "2")),
        ("read_changes", ("1", "-1", "1")),
        ("read_changes", ("1", "0", "0")),
        ("read_changes", ("1", "0", "1001")),
        ("list_entities", ("1", "", "0")),
        ("list_entities", ("1", "", "1001")),
        ("list_entities", ("1", "", "")),
    ],
)
async def test_a_malformed_call_is_refused(transport: Transport, name: str, arguments: tuple[str, ...]) -> None:
    before = await snapshot(transport)
    with pytest.raises(ScriptRefusedError) as raised:
        await transport.call(load(name), HEAD if "namespace" in name else KEYS, arguments)
    assert raised.value.reply_code == "BADCALL"
    assert await snapshot(transport) == before
