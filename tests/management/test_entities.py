"""Tests of what an administrator does with a queue, a topic or a subscription in the same way: creating, finding,
changing, listing and deleting it.

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, OperationTimeoutError
from tests.management.conftest import held
from tests.management.kinds import FIXED, KINDS, QUEUE, RULE, SUBSCRIPTION, TOPIC, EntityKind, every_kind
from tests.management.refusals import refused
from tests.offenders import for_each
from tests.stored_settings import settings_of


def shape_of(*, partitioned: bool) -> dict[str, Any]:
    """Return the properties of an entity that lies in all four slots of the namespace, or in one."""
    return {"enable_partitioning": True, "partition_count": 4} if partitioned else {}


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
every_kind_and_rules = pytest.mark.parametrize("kind", [*KINDS, RULE], ids=lambda kind: kind.word)
queues_and_topics = pytest.mark.parametrize("kind", [QUEUE, TOPIC], ids=lambda kind: kind.word)
Admin = ServiceBusAdministrationClient


@pytest.fixture
async def admin(admin: Admin) -> Admin:
    """The client, with a topic that has a subscription without rules, and a queue."""
    await admin.create_topic("News")
    await admin.create_subscription("News", "All", rules=[])
    await admin.create_queue("Other")
    return admin


# -- creating and finding ----------------------------------------------------------------------------------------------


@every_kind
async def test_each_property_is_read_back_as_given(admin: Admin, kind: EntityKind) -> None:
    created = []
    for number, (name, kept) in enumerate(kind.kept.items()):
        expected = kind.properties(f"E{number:02}", **{name: kept.value})
        assert await kind.call(admin, "create", expected.name, **{name: kept.value}) == expected
        assert await kind.call(admin, "get", expected.name.lower()) == expected
        created.append(expected)
    assert [each async for each in kind.call(admin, "list") if each.name.startswith("E")] == created


@in_memory
@every_kind
async def test_every_property_except_the_fixed_ones_can_be_changed_and_reset(admin: Admin, kind: EntityKind) -> None:
    for name, kept in kind.kept.items():
        made = await kind.call(admin, "create", f"of-{name}")
        setattr(made, name, kept.value)
        if name in FIXED:
            continue
        await kind.call(admin, "update", made)
        assert await kind.call(admin, "get", made.name) == made
        await kind.call(admin, "update", made, **{name: None})
        assert await kind.call(admin, "get", made.name) == kind.properties(made.name)


REACHED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]] = {
    "queue": (
        {"lock_duration": "PT30S", "requires_session": True, "max_size_in_megabytes": 2},
        {"lock_duration": 30_000, "sessions": True, "quota": 2 * 1024 * 1024},
        {"lock": b"30000", "sessions": b"1"},
    ),
    "topic": (
        {"max_size_in_megabytes": 2, "default_message_time_to_live": "PT30S"},
        {"quota": 2 * 1024 * 1024, "time_to_live": 30_000},
        {"topic": b"1", "ttl": b"30000"},
    ),
    "subscription": (
        {"lock_duration": "PT30S", "requires_session": True},
        {"lock_duration": 30_000, "sessions": True},
        {"lock": b"30000", "sessions": b"1"},
    ),
}
"""Properties, the settings of a partition, and some fields in which a partition stores them."""


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
@every_kind
async def test_the_settings_of_an_entity_reach_its_partitions(
    admin: Admin, kind: EntityKind, *, partitioned: bool
) -> None:
    given, settings, fields = REACHED[kind.word]
    shape = {"enable_partitioning": partitioned}
    if kind is SUBSCRIPTION:
        await admin.delete_topic("News")
        await admin.create_topic("News", enable_partitioning=partitioned)
    made = await kind.call(admin, "create", "one", **given, **({} if kind is SUBSCRIPTION else shape))
    assert await kind.call(admin, "get", "one") == made
    await kind.call(admin, "update", {"name": "one"}, status="Disabled")
    namespace = admin._connection.namespace
    record = await namespace.get_entity("/subscriptions/".join([*kind.of, "one"]))
    assert record.settings == replace(kind.settings, **settings, status="Disabled")
    assert len(record.partitions) == (4 if partitioned else 1)
    assert record.partitioned is partitioned
    if kind is SUBSCRIPTION:
        assert record.partitions == (await namespace.get_entity("News")).partitions
    for number in record.partitions:
        state = namespace.partition(record, number).keys[0]
        stored = settings_of(await admin._connection.transport.command("HGET", state, "settings", key=state))
        assert {name: stored[name] for name in fields} == fields
        assert stored["status"] == b"Disabled"


@every_kind
async def test_a_name_that_is_taken_is_refused(admin: Admin, kind: EntityKind) -> None:
    await kind.call(admin, "create", "One")
    text = f"There is already an entity '{'/subscriptions/'.join([*kind.of, 'One'])}' in namespace 'ns'"
    await refused(admin, kind.call(admin, "create", "oNE"), MessagingEntityAlreadyExistsError, text)


@every_kind_and_rules
async def test_it_is_known_whether_an_entity_exists(admin: Admin, kind: EntityKind) -> None:
    await kind.call(admin, "create", "One")
    before = await held(admin)
    another = "Other" if kind is TOPIC else "News"
    assert [await kind.call(admin, "exists", name) for name in ("ONE", "two", another)] == [True, False, False]
    for at in range(len(kind.of)):  # in a topic, and of a subscription, that does not exist
        elsewhere = kind._replace(of=(*kind.of[:at], "Nothing", *kind.of[at + 1 :]))
        assert not await elsewhere.call(admin, "exists", "One")
    assert await held(admin) == before


REMEDIES = {
    "queue": r"ensure_queue\('Nothing'\), .* with create_if_missing=True",
    "topic": r"create_topic\('Nothing'\)",
    "subscription": "There is no subscription 'Nothing' of a topic 'News' in namespace 'ns'. .*create_subscription",
}


@every_kind
async def test_the_error_for_a_missing_entity_names_it_and_suggests_a_remedy(admin: Admin, kind: EntityKind) -> None:
    for verb, given in (
        ("get", "Nothing"),
        ("count", "Nothing"),
        ("update", {"name": "Nothing"}),
        ("delete", "Nothing"),
    ):
        done = kind.call(admin, verb, given)
        await refused(admin, done, MessagingEntityNotFoundError, REMEDIES[kind.word])
        with pytest.raises(MessagingEntityNotFoundError) as caught:
            await kind.call(admin, verb, given)
        assert caught.value.entity == "/subscriptions/".join([*kind.of, "Nothing"])


@queues_and_topics
async def test_an_entity_of_another_kind_is_not_found(admin: Admin, kind: EntityKind) -> None:
    other = "topic" if kind is QUEUE else "queue"
    taken = "News" if kind is QUEUE else "Other"
    text = f"'{taken}' in namespace 'ns' is a {other}, not a {kind.word}"
    for verb, given in (("get", taken), ("count", taken), ("update", {"name": taken}), ("delete", taken)):
        await refused(admin, kind.call(admin, verb, given), MessagingEntityNotFoundError, text)
    text = f"an entity '{taken}' in namespace 'ns', and it is a {other}, not a {kind.word}; .* Delete it first"
    await refused(admin, kind.call(admin, "create", taken.upper()), MessagingEntityAlreadyExistsError, text)
    text = f"'{taken}' already exists, and is a {other}, not a {kind.word}"
    await refused(admin, kind.call(admin, "ensure", taken.upper()), MessagingEntityAlreadyExistsError, text)
    for verb in ("list", "list counts"):
        assert taken not in [each.name async for each in kind.call(admin, verb)]


# -- refusals ----------------------------------------------------------------------------------------------------------

OF_QUEUES, OF_RECEIVERS, OF_STORES = {"queue"}, {"queue", "subscription"}, {"queue", "topic"}
OF_ALL = {"queue", "topic", "subscription"}
WRONG: list[tuple[set[str], dict[str, Any], type[Exception], str]] = [
    (
        OF_RECEIVERS,
        {"lock_duration": "PT5M0.001S"},
        ValueError,
        "^The supplied lock time exceeds the allowed maximum of '5' minutes$",
    ),
    (OF_RECEIVERS, {"lock_duration": "PT4.999S"}, ValueError, "lock_duration must be 0:00:05 or longer"),
    (OF_QUEUES, {"lock_duration": "P99D"}, ValueError, "exceeds the allowed maximum of '5' minutes"),
    (OF_RECEIVERS, {"max_delivery_count": 0}, ValueError, "max_delivery_count must be from 1 to 99999, not 0"),
    (OF_QUEUES, {"max_delivery_count": 100_000}, ValueError, "max_delivery_count must be from 1"),
    (OF_ALL, {"default_message_time_to_live": "PT0.9S"}, ValueError, "_time_to_live must be 0:00:01 or longer"),
    (OF_STORES, {"duplicate_detection_history_time_window": "PT19S"}, ValueError, "must be 0:00:20 or longer"),
    (
        OF_STORES,
        {"duplicate_detection_history_time_window": "P7DT1S"},
        ValueError,
        "must be 7 days, 0:00:00 or shorter",
    ),
    (OF_STORES, {"duplicate_detection_history_max_ids": -1}, ValueError, "must be from 0 to"),
    (OF_STORES, {"max_size_in_megabytes": 0}, ValueError, "max_size_in_megabytes must be from 1 to"),
    (OF_STORES, {"max_message_size_in_kilobytes": 0}, ValueError, "must be from 1 to 102400"),
    (OF_STORES, {"max_message_size_in_kilobytes": 102_401}, ValueError, "from 1 to 102400, not 102401"),
    (OF_ALL, {"user_metadata": "x" * 1025}, ValueError, "user_metadata has 1025 characters; at most 1024 are allowed"),
    (OF_ALL, {"status": "Deleting"}, ValueError, "status can be set to Active, Disabled, .*, not to 'Deleting'"),
    (OF_ALL, {"auto_delete_on_idle": "PT4M59S"}, ValueError, "auto_delete_on_idle must be 0:05:00 or longer"),
    (OF_RECEIVERS, {"forward_to": "news/subscriptions/all"}, ValueError, "forward_to: .* is a subscription"),
    (OF_RECEIVERS, {"forward_dead_lettered_messages_to": "o/$DeadLetterQueue"}, ValueError, "is a dead-letter queue"),
    (OF_QUEUES, {"lock_duration": 30}, TypeError, "lock_duration must be a datetime.timedelta or a str"),
    (OF_QUEUES, {"lock_durration": "PT30S"}, TypeError, "lock_durration"),
    (OF_STORES, {"authorization_rules": [{"key_name": "k" * 70_000}]}, ValueError, "at most 65536 are stored"),
    ({"topic"}, {"size_in_bytes": -1}, ValueError, "size_in_bytes must be from 0 to"),
    ({"topic"}, {"support_ordering": "yes"}, TypeError, "support_ordering must be True or False, not str"),
    ({"topic"}, {"lock_duration": "PT30S"}, TypeError, "lock_duration"),
    ({"topic"}, {"forward_to": "other"}, TypeError, "forward_to"),
    ({"subscription"}, {"dead_lettering_on_filter_evaluation_exceptions": 1}, TypeError, "must be True or False, not"),
    ({"subscription"}, {"max_size_in_megabytes": 5}, TypeError, "max_size_in_megabytes"),
    ({"subscription"}, {"enable_partitioning": True}, TypeError, "enable_partitioning"),
    ({"subscription"}, {"colocate_with": "other"}, TypeError, "colocate_with"),
]


@pytest.fixture
async def old(admin: Admin) -> None:
    """Create an entity of each kind that is called ``old``."""
    for kind in KINDS[:2]:
        await kind.call(admin, "create", f"old-{kind.word}")
    await SUBSCRIPTION.call(admin, "create", "old-subscription")


@in_memory
@pytest.mark.usefixtures("old")
@for_each(
    ("kind", "properties", "error", "text"),
    [
        pytest.param(kind, given, error, text, id=f"{kind.word}: {given}")
        for kind in KINDS
        for words, given, error, text in WRONG
        if kind.word in words
    ],
)
async def test_wrong_properties_neither_create_nor_change_an_entity(
    admin: Admin, kind: EntityKind, properties: dict[str, Any], error: type[Exception], text: str
) -> None:
    old = f"old-{kind.word}"
    for verb, given, options in (
        ("create", "new", properties),
        ("ensure", "new", properties),
        ("ensure", old, properties),
        ("update", {"name": old, **properties}, {}),
        ("update", kind.properties(old), properties),
    ):
        await refused(admin, kind.call(admin, verb, given, **options), error, text)


LONG, SHORT = "entity name", "(subscription|rule) name"
WRONG_PATHS: dict[str, list[tuple[str, ...]]] = {
    "queue": [("a b",), ("a" * 261,), ("t/subscriptions/s",), ("",)],
    "topic": [("a b",), ("a" * 261,), ("t/subscriptions/s",), ("",)],
    "subscription": [("a b", "s"), ("n" * 261, "s"), ("t", "a b"), ("t", "s" * 51), ("t", ""), ("t", "a/b")],
    "rule": [("a b", "s", "r"), ("t", "s" * 51, "r"), ("t", "s", "a b"), ("t", "s", "r" * 51), ("t", "s", "$Other")],
}


@in_memory
@every_kind_and_rules
async def test_wrong_arguments_are_refused_before_connecting(where: str, kind: EntityKind) -> None:
    admin = Admin(where)
    for *of, name in WRONG_PATHS[kind.word]:
        for verb in ("create", "get", "exists", "delete", "update", "ensure", "count"):
            if kind is RULE and verb in {"ensure", "count"}:
                continue
            given = {"name": name} if verb == "update" else name
            with pytest.raises(ValueError, match=r"(entity|subscription|rule) name"):
                await kind._replace(of=tuple(of)).call(admin, verb, given)
    wrong: list[tuple[object, type[Exception]]] = [
        ("x", TypeError),
        (None, TypeError),
        ({}, ValueError),
        ({"name": 5}, TypeError),
        ({"name": "x", "colour": 1}, TypeError),
        ((TOPIC if kind is QUEUE else QUEUE).properties("x"), TypeError),
    ]
    for given_, error in wrong:
        with pytest.raises(error):
            await kind.call(admin, "update", given_)
    assert not admin._connection._opened
    await admin.close()


UNCHANGEABLE = [
    (QUEUE, "requires_session", True, "RequiresSession"),
    (QUEUE, "requires_duplicate_detection", True, "RequiresDuplicateDetection"),
    (QUEUE, "enable_partitioning", True, "EnablePartitioning"),
    (QUEUE, "colocate_with", "other", "ColocateWith"),
    (TOPIC, "requires_duplicate_detection", True, "RequiresDuplicateDetection"),
    (TOPIC, "enable_partitioning", True, "EnablePartitioning"),
    (TOPIC, "colocate_with", "other", "ColocateWith"),
    (SUBSCRIPTION, "requires_session", True, "RequiresSession"),
]


@for_each(
    ("kind", "name", "value", "words"), [pytest.param(*each, id=f"{each[0].word}: {each[1]}") for each in UNCHANGEABLE]
)
@pytest.mark.usefixtures("old")
async def test_fixed_properties_cannot_be_changed(
    admin: Admin, kind: EntityKind, name: str, value: Any, words: str
) -> None:
    old = f"old-{kind.word}"
    made = await kind.call(admin, "get", old)
    setattr(made, name, value)
    made.user_metadata = "ours"
    text = f"^The value for the {words} property of an existing {kind.properties.kind} cannot be changed: it is "
    await refused(admin, kind.call(admin, "update", made), ValueError, f"{text}(False|None)$")
    differs = f"{old}' already exists with other properties, which cannot be changed: {name} is (False|None), not "
    await refused(admin, kind.call(admin, "ensure", old, **{name: value}), ValueError, differs)


# -- changing and ensuring ---------------------------------------------------------------------------------------------


@every_kind
async def test_concurrent_changes_all_succeed(admin: Admin, kind: EntityKind) -> None:
    await kind.call(admin, "create", "one")
    changes = {"default_message_time_to_live": "PT30S", "user_metadata": "ours", "status": "Disabled"}
    more = [RULE.call(admin, "create", "red")]
    if kind is TOPIC:
        more += [admin.create_subscription("one", name) for name in ("all", "other")]
    await asyncio.gather(
        *(kind.call(admin, "update", {"name": "one"}, **{name: value}) for name, value in changes.items()), *more
    )
    assert await kind.call(admin, "get", "one") == kind.properties("one", **changes)
    assert await admin.rule_exists("News", "All", "red")
    if kind is TOPIC:
        assert [each.name async for each in admin.list_subscriptions("one")] == ["all", "other"]


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
@every_kind
async def test_ensure_creates_what_is_missing_and_leaves_what_exists(
    admin: Admin, where: str, kind: EntityKind, *, partitioned: bool
) -> None:
    shape = {} if kind is SUBSCRIPTION else shape_of(partitioned=partitioned)
    made = await kind.call(admin, "ensure", "One", default_message_time_to_live="PT30S", **shape)
    assert made == kind.properties("One", default_message_time_to_live="PT30S", **shape)
    before = await held(admin)
    assert await kind.call(admin, "ensure", "ONE", default_message_time_to_live="PT10S") == made
    assert await held(admin) == before
    async with Admin(where) as another:
        found = await asyncio.gather(
            *(
                kind.call(client, "ensure", "many", user_metadata=str(number), **shape)
                for number, client in enumerate((admin, another) * 8)
            )
        )
    assert len({each.user_metadata for each in found}) == 1
    assert found[0] == await kind.call(admin, "get", "many")


@pytest.mark.slow
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@every_kind
async def test_concurrent_ensure_and_delete_succeed_or_find_nothing(admin: Admin, kind: EntityKind) -> None:
    for _ in range(3):
        done = await asyncio.gather(
            *(kind.call(admin, "ensure", "one") for _ in range(4)),
            *(kind.call(admin, "delete", "one") for _ in range(4)),
            return_exceptions=True,
        )
        wrong: list[object] = [each for each in done[:4] if not isinstance(each, kind.properties)]
        wrong += [each for each in done[4:] if not (each is None or type(each) is MessagingEntityNotFoundError)]
        assert wrong == []


# -- listing and deleting ----------------------------------------------------------------------------------------------


@every_kind_and_rules
async def test_a_list_is_sorted_by_name_and_has_pages(
    admin: Admin, kind: EntityKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbredis.aio.management._calls.PAGE", 3)
    await admin.delete_topic("News")
    await admin.delete_queue("Other")
    if kind.of:
        await admin.create_topic("News")
    if kind is RULE:
        await admin.create_subscription("News", "All", rules=[])
    assert [each async for each in kind.call(admin, "list")] == []
    names = ["b", "A", "c", "B2", "a2", "d"]
    for name in names:
        await kind.call(admin, "create", name)
    by_name = sorted(names, key=str.lower)
    for verb in ("list",) if kind is RULE else ("list", "list counts"):
        assert [each.name async for each in kind.call(admin, verb)] == by_name
        pages = kind.call(admin, verb).by_page()
        assert [each.name async for each in await anext(pages)] == by_name[:3]
        assert pages.continuation_token == by_name[2]
        assert [[each.name async for each in page] async for page in pages] == [by_name[3:]]
    await kind.call(admin, "delete", by_name[2])
    rest = kind.call(admin, "list").by_page(by_name[2])
    assert [[each.name async for each in page] async for page in rest] == [by_name[3:]], "no empty page behind the last"
    assert rest.continuation_token is None
    listing = kind.call(admin, "list")
    assert (await anext(listing)).name == "A"
    assert [each.name async for each in listing] == [by_name[1], *by_name[3:]]


@in_memory
@every_kind_and_rules
async def test_a_call_with_a_timeout_of_zero_changes_nothing(admin: Admin, kind: EntityKind) -> None:
    await kind.call(admin, "create", "one")
    calls: list[tuple[str, Any]] = [("create", "new"), ("get", "one"), ("exists", "one"), ("delete", "one")]
    calls.append(("update", {"name": "one"}))
    if kind is not RULE:
        calls += [("ensure", "new"), ("count", "one")]
    for verb, given in calls:
        await refused(admin, kind.call(admin, verb, given, timeout=1e-9), OperationTimeoutError, ".")
    for verb in ("list",) if kind is RULE else ("list", "list counts"):
        await refused(admin, anext(kind.call(admin, verb, timeout=1e-9)), OperationTimeoutError, ".")
