"""Tests of single calls of the scripts of topics: their contracts, their answers to repeated calls, their refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import MalformedCallError, Request, head_keys, perform
from sbredis.engine._contracts import contract
from sbredis.engine._scripts import load, operations
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ScriptRefusedError,
)
from sbredis.registry import EntityChangedError, EntityRecord, NamespaceSlotsError
from sbredis.registry._entity import EntityDescription
from sbredis.registry._refusals import BucketMissingError, SubscriptionGoneError, rule_refusals
from sbredis.registry._registry import Registry, SeenEntity, register_namespace
from sbredis.registry._rulebook import Rulebook
from sbredis.rules import Rule
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.offenders import for_each
from tests.registry.keys import snapshot
from tests.registry.refusals import refused
from tests.registry.topics import ANY, CORRELATED, OF_SUBSCRIPTION, OF_TOPIC, SQL, judged_by, kept_of
from tools.repository import ROOT

REGISTRY, RULEBOOK = Registry("ns", 2), Rulebook("ns", 2)
KEYS = REGISTRY.keys("Topic")
BESIDE = next(name for name in map(str, range(100)) if REGISTRY.keys(name) == KEYS)
"""The name of an entity in the same bucket as the topic."""
BUCKET, ENTITIES, TALLIES = KEYS[0], KEYS[1], KEYS[6]
FIRST, SECOND, THIRD, FOURTH = "first_______", "second______", "third_______", "fourth______"
LONG = "x" * 13
TOPIC = EntityDescription(name="Topic", kind="topic", partitions=(0,), settings=OF_TOPIC)
SUB = EntityDescription(
    name="Sub", kind="subscription", parent="Topic", store="1", partitions=(0,), settings=OF_SUBSCRIPTION
)


@pytest.fixture
async def transport(url: str) -> AsyncIterator[Transport]:
    """A transport to a target that has only the namespace ``ns`` of two partitions."""
    async with await open_with_scripts(url) as transport:
        await perform(transport, register_namespace("ns", 2, exact=True))
        await perform(transport, REGISTRY.begin(REGISTRY.bucket_of("Topic"), limited=False))
        yield transport


async def ask(transport: Transport, request: Request[Any]) -> Any:
    return await perform(transport, request, refusals=rule_refusals("ns", SUB.path, "Sql"))


async def with_topic(transport: Transport) -> EntityRecord:
    record: EntityRecord = await ask(transport, REGISTRY.register(TOPIC, FIRST))
    active: EntityRecord = await ask(transport, REGISTRY.revise(replace(record, state="active"), "active______"))
    return active


async def with_subscription(transport: Transport, *rules: Rule) -> tuple[EntityRecord, EntityRecord]:
    """Create a topic with an active subscription."""
    topic = await with_topic(transport)
    record = await ask(transport, REGISTRY.register_subscription(topic, SUB, SECOND, rules))
    done = await ask(transport, REGISTRY.revise_subscription(replace(record, state="active"), THIRD, judging=True))
    return done.topic, done.record


# -- the contract ------------------------------------------------------------------------------------------------------

AS_TOPIC = EntityRecord(
    name="Topic",
    kind="topic",
    partitions=(0,),
    id="1",
    incarnation=FIRST,
    version=3,
    stamp=THIRD,
    created_at=1,
    updated_at=1,
)
AS_SUB = EntityRecord(
    name="Sub",
    kind="subscription",
    parent="Topic",
    store="1",
    partitions=(0,),
    id="2",
    incarnation=SECOND,
    version=1,
    stamp=THIRD,
    created_at=1,
    updated_at=1,
)
REQUESTS: list[Request[Any]] = [
    REGISTRY.register_subscription(AS_TOPIC, SUB, FIRST, [SQL, CORRELATED]),
    REGISTRY.revise_subscription(AS_SUB, FOURTH, judging=True),
    REGISTRY.mark_told(AS_TOPIC),
    REGISTRY.subscriptions("Topic", ""),
    RULEBOOK.create(AS_SUB, SQL, FOURTH),
    RULEBOOK.update(AS_SUB, SQL, FOURTH),
    RULEBOOK.delete(AS_SUB, "Sql", FOURTH),
    RULEBOOK.read(AS_SUB, "Sql"),
    RULEBOOK.listed(AS_SUB, "", 10),
]
each = pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.script.name)


@each
async def test_a_request_has_the_keys_and_arguments_that_the_header_of_its_script_names(request_: Request[Any]) -> None:
    header = contract((ROOT / "lua" / f"{request_.script.name}.lua").read_text("utf-8"))
    assert header.keys == (("bucket", len(KEYS)),)
    assert request_.keys == KEYS
    names = header.arguments[1:] if header.takes_run_id else header.arguments
    rest = request_.arguments[len(names) :]
    assert len(rest) == (6 if header.rest == "rules" else 0)
    expected = {
        "slots": 2,
        "topic": "topic",
        "name": "topic/subscriptions/sub",
        "place": "topic/subscriptions/sub sql",
        "stamp": FOURTH,
        "kind": "s",
        "sql": 2_000,
        "correlation": 100_000,
        "subscriptions": 2_000,
        "judging": 1,
        "ending": 0,
    }
    by_name = dict(zip(names, request_.arguments, strict=False))
    assert {name: value for name, value in by_name.items() if name in expected} == {
        name: value for name, value in expected.items() if name in by_name
    }
    assert request_.repeatable
    assert set(header.refusals) <= set(rule_refusals("ns", "q", "r"))


def test_the_flags_of_a_script_match_its_use_of_memory() -> None:
    """With full memory, scripts that delete data still run. Only scripts without writes are marked as reading."""
    flags: dict[tuple[str, ...], set[str]] = {
        (): {
            *("begin_bucket", "create_rule", "limit_namespace", "register_entity", "register_namespace"),
            *("register_subscription", "update_rule"),
        },
        ("allow-oom",): {
            *("condemn_entity", "delete_rule", "mark_told", "revise_entity", "revise_subscription"),
            "unregister_entity",
        },
        ("no-writes",): {
            *("find_entity", "list_entities", "list_rules", "list_subscriptions", "read_bucket", "read_changes"),
            *("read_entity", "read_namespace", "read_rule"),
        },
    }
    headers = {name: contract((ROOT / "lua" / f"{name}.lua").read_text("utf-8")) for name in operations()}
    of_registry = {name for name, header in headers.items() if header.keys[0][0] in {"bucket", "namespace"}}
    assert of_registry == set().union(*flags.values())
    for expected, names in flags.items():
        assert {headers[name].flags for name in names} == {expected}


# -- repeated calls ----------------------------------------------------------------------------------------------------


async def test_a_repeated_call_registers_a_subscription_only_once(transport: Transport) -> None:
    topic = await with_topic(transport)
    request = REGISTRY.register_subscription(topic, SUB, SECOND, [ANY, SQL])
    record = await ask(transport, request)
    assert (record.state, record.stamp) == ("creating", SECOND)
    before = await snapshot(transport)
    assert await ask(transport, request) == record
    assert await snapshot(transport) == before
    other = REGISTRY.register_subscription(topic, SUB, FOURTH, [ANY])
    await refused(transport, ask(transport, other), MessagingEntityAlreadyExistsError)
    assert (await ask(transport, REGISTRY.look("Topic"))) == SeenEntity(topic, subscriptions=1, sql_filters=2)
    assert judged_by(await kept_of(transport)) == frozenset(), "nothing is judged by it before it is active"


@pytest.mark.parametrize("ending", [False, True])
async def test_a_change_of_a_subscription_raises_its_topic_version_once(transport: Transport, *, ending: bool) -> None:
    topic, record = await with_subscription(transport, ANY)
    assert (topic.version, topic.stamp, record.stamp) == (2, THIRD, THIRD)
    revised = replace(record, state="deleting") if ending else replace(record, version=2)
    request = REGISTRY.revise_subscription(revised, FOURTH, judging=not ending)
    done = await ask(transport, request)
    assert done.record == replace(revised, stamp=FOURTH, updated_at=done.record.updated_at)
    assert done.topic == replace(topic, version=3, stamp=FOURTH)
    before = await snapshot(transport)
    assert await ask(transport, request) == done
    assert await snapshot(transport) == before
    await refused(transport, ask(transport, REGISTRY.revise_subscription(record, FIRST)), EntityChangedError)


async def test_a_change_that_does_not_affect_rules_keeps_the_topic_version(transport: Transport) -> None:
    topic, record = await with_subscription(transport, ANY)
    done = await ask(transport, REGISTRY.revise_subscription(replace(record, version=2), FOURTH))
    assert done.topic == topic
    assert await ask(transport, REGISTRY.read("Topic")) == topic


async def test_a_repeated_change_of_a_rule_gets_the_first_answer(transport: Transport) -> None:
    """A repeated change gets the first answer even after other changes."""
    _, record = await with_subscription(transport, ANY)
    requests: list[Request[Any]] = [
        RULEBOOK.create(record, SQL, "stamp-create"),
        RULEBOOK.update(record, Rule("Sql", CORRELATED.filter), "stamp-update"),
        RULEBOOK.delete(record, "SQL", "stamp-delete"),
    ]
    for place, request in enumerate(requests):
        first = await ask(transport, request)
        before = await snapshot(transport)
        for done in requests[: place + 1]:
            again = await ask(transport, done)
            assert done is not request or again == first
        assert await snapshot(transport) == before
    for number in range(10, 26):
        await ask(transport, RULEBOOK.update(record, ANY, f"stamp_____{number}"))
    await refused(transport, ask(transport, requests[2]), MessagingEntityNotFoundError)
    created = RULEBOOK.create(record, SQL, "stamp-again_")
    await ask(transport, created)
    for number in range(10, 30):
        await ask(transport, RULEBOOK.update(record, ANY, f"another___{number}"))
    before = await snapshot(transport)
    # The rule still has the stamp of this call, although the topic has forgotten the stamp.
    await ask(transport, created)
    assert await snapshot(transport) == before


async def test_the_version_that_all_partitions_know_never_goes_back(transport: Transport) -> None:
    topic, _ = await with_subscription(transport, ANY)
    assert (await ask(transport, REGISTRY.look("Topic"))).behind
    assert (await ask(transport, REGISTRY.look(SUB.path))).behind
    assert await ask(transport, REGISTRY.mark_told(topic)) is True
    assert not (await ask(transport, REGISTRY.look("Topic"))).behind
    before = await snapshot(transport)
    for outdated in (topic, replace(topic, version=1), replace(topic, version=9, incarnation=FOURTH)):
        assert await ask(transport, REGISTRY.mark_told(outdated)) is False
    assert await ask(transport, REGISTRY.mark_told(replace(topic, name=BESIDE))) is False
    assert await snapshot(transport) == before


async def test_a_topic_under_deletion_accepts_no_subscription_and_keeps_its_version(transport: Transport) -> None:
    topic, record = await with_subscription(transport, ANY)
    deleting = await ask(transport, REGISTRY.revise(replace(topic, state="deleting"), FOURTH))
    assert (await ask(transport, REGISTRY.look(SUB.path))).forsaken
    other = REGISTRY.register_subscription(topic, replace(SUB, name="Two"), FIRST, [])
    for request in (
        RULEBOOK.create(record, SQL, FIRST),
        RULEBOOK.update(record, ANY, FIRST),
        RULEBOOK.delete(record, "$Default", FIRST),
        REGISTRY.revise_subscription(replace(record, version=2), FIRST, judging=True),
        other,
    ):
        assert "There is no" in await refused(transport, ask(transport, request), SubscriptionGoneError)
    ended = await ask(transport, REGISTRY.revise_subscription(replace(record, state="deleting"), FIRST))
    assert (ended.record.state, ended.topic) == ("deleting", deleting)
    assert await ask(transport, REGISTRY.unregister(ended.record)) == (True, False)
    assert await ask(transport, REGISTRY.unregister(deleting)) == (True, False)
    assert set(await snapshot(transport)) == {*head_keys("ns"), BUCKET, *KEYS[-2:]}, "only the log is left"


async def test_a_call_for_another_incarnation_changes_nothing(transport: Transport) -> None:
    topic, record = await with_subscription(transport, ANY)
    other = replace(record, incarnation=FOURTH)
    for request in (
        RULEBOOK.create(other, SQL, FIRST),
        RULEBOOK.update(other, ANY, FIRST),
        RULEBOOK.delete(other, "$Default", FIRST),
        REGISTRY.revise_subscription(other, FIRST, judging=True),
        REGISTRY.register_subscription(replace(topic, incarnation=FOURTH), replace(SUB, name="Two"), FIRST, []),
    ):
        await refused(transport, ask(transport, request), SubscriptionGoneError)


async def test_an_active_subscription_or_topic_is_not_unregistered(transport: Transport) -> None:
    topic, record = await with_subscription(transport, ANY)
    for kept in (topic, record):
        await refused(transport, ask(transport, REGISTRY.unregister(kept)), MalformedCallError)


async def test_a_subscription_with_many_rules_is_unregistered_in_steps(transport: Transport) -> None:
    _, record = await with_subscription(transport, *(Rule(f"r{number}") for number in range(10)))
    ended = (await ask(transport, REGISTRY.revise_subscription(replace(record, state="deleting"), FOURTH))).record
    request = REGISTRY.unregister(ended)._replace(arguments=(*REGISTRY.unregister(ended).arguments[:-1], 4))
    assert [await ask(transport, request) for _ in range(4)] == [
        (True, True),
        (True, True),
        (True, False),
        (False, False),
    ]
    assert (await kept_of(transport)).rules == {}


# -- refusals of every call --------------------------------------------------------------------------------------------


@each
async def test_every_call_reports_a_missing_bucket(transport: Transport, request_: Request[Any]) -> None:
    await transport.command("DEL", BUCKET, key=BUCKET)
    await refused(transport, ask(transport, request_), BucketMissingError)


@each
async def test_a_bucket_of_other_slots_or_another_layout_is_not_changed(
    transport: Transport, request_: Request[Any]
) -> None:
    await transport.command("HSET", BUCKET, "slots", "40", key=BUCKET)
    await refused(transport, ask(transport, request_), NamespaceSlotsError)
    await transport.command("HSET", BUCKET, "layout", "3", key=BUCKET)
    await refused(transport, ask(transport, request_), DataLayoutError)


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("spoilt", ["topic", "subscription", "count"])
async def test_records_and_counts_of_another_layout_are_not_changed(
    transport: Transport, place: int, spoilt: str
) -> None:
    _, record = await with_subscription(transport, ANY)
    requests: list[Request[Any]] = [
        REGISTRY.revise_subscription(record, FOURTH, judging=True),
        RULEBOOK.create(record, SQL, FOURTH),
        RULEBOOK.update(record, ANY, FOURTH),
        RULEBOOK.delete(record, "$Default", FOURTH),
        REGISTRY.look(SUB.path),
        REGISTRY.subscriptions("Topic", ""),
        RULEBOOK.listed(record, "", 10),
    ]
    path = "topic" if spoilt != "subscription" else SUB.path.lower()
    await transport.command("HSET", TALLIES if spoilt == "count" else ENTITIES, path, "3 x", key=ENTITIES)
    needless = {(4, "topic"), (4, "count"), (5, "topic"), (5, "count"), (6, "topic"), (6, "count"), (6, "subscription")}
    if (place, spoilt) in {*needless, (5, "subscription")}:
        found = await ask(transport, requests[place])  # this call does without the changed record
        if (place, spoilt) == (5, "subscription"):
            assert [each.subscription.path for each in found.unreadable] == [path]
            assert not found.subscriptions
        return
    before = await snapshot(transport)
    with pytest.raises(DataLayoutError):
        await ask(transport, requests[place])
    assert await snapshot(transport) == before


PATH = "t/subscriptions/s"
GOOD: dict[str, tuple[str, ...]] = {
    "register_subscription": (
        *("2", "t", FIRST, PATH, SECOND, "{}", "9", "9", "9", "00", "0"),
        *(f"{PATH} r", "s", "{}"),
    ),
    "revise_subscription": ("2", "t", PATH, FIRST, SECOND, THIRD, "1", "0", "0", "{}"),
    "mark_told": ("2", "t", FIRST, "1"),
    "create_rule": ("2", "t", PATH, FIRST, SECOND, f"{PATH} r", "s", "{}", "9", "9"),
    "update_rule": ("2", "t", PATH, FIRST, SECOND, f"{PATH} r", "s", "{}", "9", "9", ""),
    "delete_rule": ("2", "t", PATH, FIRST, SECOND, f"{PATH} r"),
    "list_subscriptions": ("2", "t", "a", "b", "10"),
    "list_rules": ("2", "t", "a", "b", "10"),
}
BAD: dict[str, dict[int, tuple[str, ...]]] = {
    "register_subscription": {
        1: ("",), 2: (LONG, ""), 3: ("",), 4: (LONG,), 5: ("",), 6: ("", "x", "1000000"), 7: ("-1",), 8: ("1.5",),
        9: ("", "0", "0 0"), 11: ("r", "t/subscriptions/s", "t/subscriptions/s ", "t/subscriptions/ss r"),
        12: ("", "x"), 13: ("",),
    },
    "revise_subscription": {
        3: (LONG,), 4: ("a b c d e f ",), 5: ("with,a,comma",), 6: ("0", ""), 7: ("2", ""), 8: ("3", ""), 9: ("",),
    },
    "mark_told": {2: (LONG,), 3: ("0", "", "x")},
    "create_rule": {
        3: (LONG,), 4: ("with,a,comma",), 5: ("r", f"{PATH} "), 6: ("", "x", "st"), 7: ("",), 8: ("",), 9: ("x",),
    },
    "update_rule": {
        3: (LONG,), 4: ("with,a,comma",), 5: ("r", f"{PATH} "), 6: ("", "x", "st"), 7: ("",), 8: ("",), 9: ("x",),
    },
    "delete_rule": {3: (LONG,), 4: ("",), 5: ("r", f"{PATH} ")},
    "list_subscriptions": {4: ("0", "1001", "")},
    "list_rules": {4: ("0", "1001", "")},
}  # fmt: skip


@pytest.mark.slow
@for_each(
    ("name", "arguments"),
    [
        (name, (*GOOD[name][:place], value, *GOOD[name][place + 1 :]))
        for name, places in BAD.items()
        for place, values in places.items()
        for value in values
    ]
    + [
        ("register_subscription", (*GOOD["register_subscription"], *more))
        for more in (("x",), (f"{PATH} r", "s", "{}"))
    ],
)
async def test_a_malformed_call_is_refused(transport: Transport, name: str, arguments: tuple[str, ...]) -> None:
    before = await snapshot(transport)
    for given, codes in ((arguments, {"BADCALL"}), (GOOD[name], {"GONE", "0"})):
        code = "0"
        try:
            await transport.call(load(name), KEYS, given)
        except ScriptRefusedError as error:
            code = error.reply_code
        assert code in codes
    assert await snapshot(transport) == before
